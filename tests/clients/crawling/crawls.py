"""Runs real crawlers: processes of Scrapy, which are started with `scrapy crawl`."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pages import blocks, page, section
from servers import WITHIN, Server, hear_interrupts, wait_until
from website import Site

HERE = Path(__file__).parent

IN_FLIGHT = "{follow:requests}:inflight"
LEASE = 2  # seconds

PLAIN = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "oxbloom.scrapy.RFPDupeFilter",
}
LASTING = {**PLAIN, "SCHEDULER": "oxbloom.scrapy.Scheduler"}
SCRAPYS_OWN = {"DUPEFILTER_CLASS": "oxbloom.scrapy.RFPDupeFilter"}

LOOKING_UP = {"SPIDER_MIDDLEWARES": {"oxbloom.scrapy.LinksMiddleware": 10}}
"""Settings to look up all links of a page at once."""

# Creates a case that `make test` leaves out. `make test-release` runs all.
thorough = partial(pytest.param, marks=pytest.mark.thorough)
SCHEDULERS = [thorough(PLAIN, id="scrapy-redis"), pytest.param(LASTING, id="lasting")]
SCHEDULERS_OF_QUEUES = pytest.mark.parametrize("settings", SCHEDULERS)
ALL_SCHEDULERS = pytest.mark.parametrize(
    "settings", [*SCHEDULERS, thorough(SCRAPYS_OWN, id="scrapy")]
)
WITH_AND_WITHOUT_LOOK_UPS = pytest.mark.parametrize(
    "links", [{}, LOOKING_UP], ids=["one by one", "looked up"]
)


def options(settings: dict[str, Any]) -> list[str]:
    """Returns settings as options of the command `scrapy`."""
    texts = {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in settings.items()
    }
    return [word for name, text in texts.items() for word in ("-s", f"{name}={text}")]


def environment() -> dict[str, str]:
    """Returns the environment in which Scrapy finds the modules of the tests."""
    return {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"}


def settings_of_the_page(heading: str) -> dict[str, Any]:
    """Returns the settings that docs/crawling.md gives below a heading."""
    settings: dict[str, Any] = {}
    exec(blocks(section(page("crawling.md"), heading), "python")[0], {}, settings)  # noqa: S102
    return settings


def pages_in_flight(server: Server) -> set[int]:
    """Returns the pages of the requests that crawlers have taken and not finished, according to the server."""
    entries = server.client.hvals(IN_FLIGHT)
    urls = [urlsplit(pickle.loads(entry.split(b" ", 1)[1])["url"]) for entry in entries]
    return {int(parse_qs(url.query)["id"][0]) for url in urls if url.path == "/page"}


class Crawler:
    """A running crawler, with its output."""

    def __init__(
        self, log: Path, spider: str, arguments: dict[str, str], settings: dict[str, Any]
    ) -> None:
        command = [sys.executable, "-m", "scrapy", "crawl", spider]
        for name, value in arguments.items():
            command += ["-a", f"{name}={value}"]
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                command + options(settings),
                cwd=HERE / "project",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=hear_interrupts,  # noqa: PLW1509
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def finish(self, code: int = 0) -> dict[str, int | str]:
        """Waits until the crawler exits. Returns its stats."""
        try:
            assert self.process.wait(WITHIN) == code, self.text()
        except subprocess.TimeoutExpired:
            pytest.fail(f"the crawl does not end:\n{self.text()[-20_000:]}", pytrace=False)
        pairs = re.findall(r"^[ {]'([^']+)': (?:(\d+)|'([^']*)')[,}]", self.text(), re.MULTILINE)
        return {name: int(number) if number else text for name, number, text in pairs}

    def error(self, reason: str) -> str:
        """Waits until the crawler exits with code 1, for this reason. Returns the one error that it logged."""
        assert self.finish(code=1)["finish_reason"] == reason
        errors = [line for line in self.text().splitlines() if " ERROR: " in line]
        assert len(errors) == 1, self.text()
        assert not re.search("Traceback|CRITICAL", self.text())
        return errors[0].partition(" ERROR: ")[2]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Crawl:
    """Crawlers of one site that share a server and a journal."""

    def __init__(self, server: Server, folder: Path, **settings: Any) -> None:
        self.server, self.folder = server, folder
        self.settings = {"REDIS_URL": server.url, **settings}
        self.journal, self.flag = folder / "journal", folder / "go"
        self.journal.touch()
        self.crawlers: list[Crawler] = []

    def start(self, spider: str, arguments: dict[str, str], **settings: Any) -> Crawler:
        log = self.folder / f"crawler-{len(self.crawlers)}.log"
        arguments = {"journal": str(self.journal), "go": str(self.flag), **arguments}
        crawler = Crawler(log, spider, arguments, {**self.settings, **settings})
        self.crawlers.append(crawler)
        return crawler

    def follow(
        self,
        *urls: str,
        again: str = "",
        spider: str = "follow",
        **settings: Any,
    ) -> Crawler:
        """Starts a crawler that follows links from `urls`. It begins when `go` is called."""
        arguments = {"urls": " ".join(urls), "again": again}
        return self.start(spider, arguments, **settings)

    def go(self) -> None:
        """Waits until each crawler is ready or has exited. Then lets them begin at the same moment."""
        wait_until(lambda: all(map(self.is_ready, self.crawlers)))
        self.flag.touch()

    def is_ready(self, crawler: Crawler) -> bool:
        ready = self.folder / f"go-{crawler.process.pid}"
        return ready.exists() or crawler.process.poll() is not None

    def crawled(self) -> Counter[int]:
        """Returns how often each page was crawled.

        The journal is read while crawlers write to it, and a killed one may leave half an entry, which does not count.
        """
        return Counter(map(int, re.findall(r"<(\d+)>", self.journal.read_text())))


def every_page_once(crawl: Crawl, site: Site) -> None:
    """Checks that each page was served once, and crawled once."""
    pages = dict.fromkeys(range(site.pages), 1)
    assert dict(crawl.crawled()) == pages
    assert dict(site.visits()) == pages


@contextmanager
def crawl(server: Server, folder: Path, **settings: Any) -> Iterator[Crawl]:
    crawl = Crawl(server, folder, **settings)
    try:
        yield crawl
    finally:
        for crawler in crawl.crawlers:
            crawler.kill()
