"""Runs the tests of node-redis, which are in `node/`. They get the port of a server."""

import os
import subprocess

import pytest
from servers import ROOT, WITHIN, Server

FILES = sorted((ROOT / "tests/clients/node").glob("*.test.mjs"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_node_redis_works_with_the_module(server: Server, file):
    environment = os.environ | {"PORT": str(server.port)}
    command = ["node", "--test", "--test-concurrency=1", file]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert done.returncode == 0, done.stdout
