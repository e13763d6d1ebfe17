"""What all tests of clients share: a server for each file of them, with nothing in it when a test begins."""

import signal
from collections.abc import Iterator

import pytest
from servers import OXBLOOM, Server, running


def pytest_configure() -> None:
    """A run that is told to stop ends as at Ctrl-C: its servers with it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        yield server


@pytest.fixture
def server(running_server: Server) -> Server:
    running_server.client.flushall()
    return running_server
