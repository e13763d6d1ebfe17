"""The fixtures that all tests of clients share: a server for each file, emptied before each test."""

import signal
from collections.abc import Iterator

import pytest
from servers import OXBLOOM, Server, running


def pytest_configure() -> None:
    """Makes SIGTERM end a run as Ctrl-C does, so that its servers are stopped too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        yield server


@pytest.fixture
def server(running_server: Server) -> Server:
    running_server.client.flushall()
    return running_server
