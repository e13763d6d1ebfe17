"""Runs the tests of node-redis, which are in `node/`. They get the ports of servers with our module and RedisBloom's."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from servers import REDISBLOOM, ROOT, WITHIN, Server, running

FILES = sorted((ROOT / "tests/clients/node").glob("*.test.mjs"))


@pytest.fixture(scope="module")
def redisbloom() -> Iterator[Server]:
    with running(REDISBLOOM) as server:
        yield server


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_node_redis_works_with_the_module(server: Server, redisbloom: Server, file):
    ports = {"PORT": str(server.port), "PORT_OF_REDISBLOOM": str(redisbloom.port)}
    command = ["node", "--test", "--test-concurrency=1", file]
    done = subprocess.run(
        command, env=os.environ | ports, capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert done.returncode == 0, done.stdout
