"""A real server for each file of tests, with nothing in it when a test begins."""

from collections.abc import Iterator

import pytest
from servers import OXBLOOM, Server, running


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        yield server


@pytest.fixture
def server(running_server: Server) -> Server:
    running_server.client.flushall()
    return running_server
