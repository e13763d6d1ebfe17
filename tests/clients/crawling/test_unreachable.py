"""Crawls whose server cannot be reached end with one clear error, in the time that the settings allow or at Ctrl-C."""

import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from crawls import LASTING, LOOKING_UP, PLAIN, SCRAPYS_OWN, Crawl, Crawler, crawl, thorough
from servers import HOST, OXBLOOM, Server, free_port, running, wait_until
from website import site

SHORT = 3  # seconds, for BLOOMFILTER_PATIENCE
LONG = 60
SOON = 20  # more seconds, for a busy machine, but fewer than LONG
WITH_A_FILTER_ELSEWHERE = "BLOOMFILTER_REDIS_PARAMS"


@contextmanager
def refusing() -> Iterator[int]:
    """Yields a port without a server."""
    yield free_port()


@contextmanager
def silent() -> Iterator[int]:
    """Yields the port of a server that never replies. The system accepts connections, but no process reads them."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def black_hole() -> Iterator[int]:
    """Yields the port of a server that accepts no connections, since its queue of new connections is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


SCHEDULERS = pytest.mark.parametrize(
    ("settings", "named"),
    [
        thorough(PLAIN, WITH_A_FILTER_ELSEWHERE, id="scrapy-redis"),
        pytest.param(LASTING, "REDIS_URL", id="lasting"),
        thorough(LASTING, WITH_A_FILTER_ELSEWHERE, id="lasting, filter elsewhere"),
        thorough(SCRAPYS_OWN, "REDIS_URL", id="scrapy"),
    ],
)
INTERRUPTED = pytest.mark.parametrize("interrupted", [False, True], ids=["gives up", "Ctrl-C"])
UNREACHABLE = pytest.mark.parametrize(
    "unreachable", [refusing, silent, black_hole], ids=lambda unreachable: unreachable.__name__
)


def at(named: str, port: int) -> dict[str, Any]:
    """Returns the setting with this name, for a server at a port."""
    url = f"redis://:secret@{HOST}:{port}"
    return {named: {"url": url} if named == WITH_A_FILTER_ELSEWHERE else url}


def error_of(crawler: Crawler, reason: str, interrupted: bool) -> str:
    """Waits until a crawler exits in time, after Ctrl-C or because it gives up. Returns the one error that it logged."""
    began = time.monotonic()
    if interrupted:
        wait_until(lambda: waits(crawler))
        began = time.monotonic()
        crawler.interrupt()
    error = crawler.error(reason)
    assert time.monotonic() - began < SOON + (0 if interrupted else SHORT), crawler.text()
    assert "secret" not in error
    return error


@SCHEDULERS
@UNREACHABLE
@INTERRUPTED
def test_no_server_at_the_start_is_one_error_that_names_the_server_and_the_settings(
    server, tmp_path, settings, named, unreachable, interrupted
):
    patience = LONG if interrupted else SHORT
    with unreachable() as port, site() as pages:
        settings = {**settings, **at(named, port), "BLOOMFILTER_PATIENCE": patience}
        with crawl(server, tmp_path, **settings) as failed:
            crawler = failed.start("textbook", {"site": pages.root})
            error = error_of(crawler, "bloomfilter_unusable", interrupted)
        place = f"the server {HOST}:{port} ({named})"
        if interrupted:
            assert error == f"The crawl cannot start: interrupted before {place} answered"
        else:
            assert error.startswith(f"The crawl cannot start: {place} has not answered for ")
            seconds, stated = re.findall(r"answered for ([\d.]+) s \(\w+ = (\d+)\)", error)[0]
            assert int(stated) == SHORT
            assert SHORT / 2 <= float(seconds) <= SHORT + SOON
        assert pages.served == []


def waits(crawler: Crawler) -> bool:
    """Returns true once a crawler has given up its first attempt."""
    assert crawler.process.poll() is None, crawler.text()
    return "does not answer" in crawler.text()


OUTAGES = {
    "dies": Server.kill,
    "hangs": lambda server: server.process.send_signal(signal.SIGSTOP),
}
each_outage = pytest.mark.parametrize("outage", OUTAGES)


@contextmanager
def interrupted_crawl(
    queue: Server, folder: Path, outage: str, named: str, **settings: Any
) -> Iterator[tuple[Crawl, Server]]:
    """Starts a crawl, and kills or stops its server in the middle of it."""
    with running(OXBLOOM) as server, site(delay=0.2) as pages:
        settings = {**settings, **at(named, server.port)}
        server.client.config_set("requirepass", "secret")
        with crawl(queue, folder, **settings) as stopped:
            stopped.follow(pages.url(0))
            stopped.go()
            wait_until(lambda: len(stopped.crawled()) > 0.1 * pages.pages)
            OUTAGES[outage](server)
            yield stopped, server


@SCHEDULERS
@each_outage
@INTERRUPTED
@pytest.mark.parametrize(
    "links", [thorough({}, id="one by one"), pytest.param(LOOKING_UP, id="looked up")]
)
def test_no_server_in_the_middle_of_a_crawl_is_one_error_that_names_the_server_and_the_settings(
    server, tmp_path, settings, named, outage, links, interrupted
):
    # Our scheduler stops as if it were killed, so that no request is lost.
    reason = "queue_unusable" if settings is LASTING else "bloomfilter_unusable"
    settings = {**settings, **links, "BLOOMFILTER_PATIENCE": LONG if interrupted else SHORT}
    with interrupted_crawl(server, tmp_path, outage, named, **settings) as (stopped, lost):
        error = error_of(stopped.crawlers[0], reason, interrupted)
        place = f"the server {HOST}:{lost.port} ({named})"
        if interrupted:
            assert error.endswith(f"interrupted before {place} answered")
        else:
            stops = "The crawler stops: queue or filter cannot be used: "
            assert error.startswith(f"{stops}{place} has not answered for ")
