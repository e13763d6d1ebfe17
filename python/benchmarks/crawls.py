"""A part of `make bench-scrapy`: the time of crawls with and without `LinksMiddleware`.

Writes the figures into `docs/scrapy.md`, between the markers. With `QUICK=1`, measures one short crawl of each kind, and
writes the figures into the build folder.

Each page of the site has 100 links: ten to pages that no earlier page links to, and 90 to others, as in the middle of a
crawl. The spider follows all links with `follow_all`. A crawl is stopped after a number of pages. Site, crawler and
server are processes on the same machine. The kinds of crawls take turns, and each round starts with another kind.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any

import report
from scrapy import Spider, signals
from scrapy.crawler import CrawlerProcess
from servers import HOST, OXBLOOM, running

LINKS = 100
NEW = 10
"""The number of links of a page that lead to new pages."""

SCHEDULERS = {
    "Scrapy's scheduler": {},
    "scrapy-redis's scheduler": {"SCHEDULER": "scrapy_redis.scheduler.Scheduler"},
    "our scheduler": {"SCHEDULER": "oxbloom.scrapy.Scheduler"},
}
MIDDLEWARE = {"SPIDER_MIDDLEWARES": {"oxbloom.scrapy.LinksMiddleware": 10}}
SETTINGS = {
    "DUPEFILTER_CLASS": "oxbloom.scrapy.RFPDupeFilter",
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
}

spawning = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Plan:
    pages: int
    """The number of pages after which a crawl is stopped. A few more are in progress then."""
    rounds: int


FULL = Plan(300, 5)
QUICK = Plan(100, 1)


@dataclass(frozen=True)
class Crawl:
    """The milliseconds that a page took."""

    whole: float
    cpu: float
    """The processor time of the crawler's process."""


# ---- The site -------------------------------------------------------------------------------------------------------


class Site:
    """Serves pages. A crawl begins with page 0, which makes the links the same for each crawl."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.random = random.Random(3)
        self.linked = 1

    def page(self, number: int) -> bytes:
        if number == 0:
            self.begin()
        links = [*range(self.linked, self.linked + NEW)]
        self.linked += NEW
        links += [self.random.randrange(self.linked) for _ in range(LINKS - NEW)]
        self.random.shuffle(links)
        return "".join(f'<a href="/page/{link}">{link}</a>\n' for link in links).encode()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s"
        try:
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                body = self.page(int(line.split()[1].rpartition(b"/")[2]))
                writer.write(head % (len(body), body))
        except ConnectionError:
            pass
        finally:
            writer.close()


def serve(ports: Any) -> None:
    async def serve() -> None:
        server = await asyncio.start_server(Site().answer, HOST, 0)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def site() -> Iterator[str]:
    """Starts a site. Yields the URL of its first page."""
    ports = spawning.Queue()
    process = spawning.Process(target=serve, args=(ports,))
    process.start()
    try:
        yield f"http://{HOST}:{ports.get(timeout=60)}/page/0"
    finally:
        process.terminate()
        process.join()


# ---- Crawls ---------------------------------------------------------------------------------------------------------


class Follow(Spider):
    name = "follow"

    def parse(self, response: Any) -> Iterator[Any]:
        yield from response.follow_all(css="a")


def crawl(url: str, settings: dict[str, Any], figures: Any) -> None:
    """Crawls in this process, which cannot crawl again."""
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(Follow)
    times: list[tuple[float, float]] = []

    def note(**_: object) -> None:
        times.append((time.perf_counter(), time.process_time()))

    crawler.signals.connect(note, signals.spider_opened)
    crawler.signals.connect(note, signals.spider_closed)
    process.crawl(crawler, start_urls=[url])
    process.start()
    pages = crawler.stats.get_value("response_received_count")
    figures.put(Crawl(*(1e3 * (end - begin) / pages for begin, end in zip(*times, strict=True))))


def measured(url: str, settings: dict[str, Any]) -> Crawl:
    figures = spawning.Queue()
    process = spawning.Process(target=crawl, args=(url, settings, figures))
    process.start()
    result: Crawl = figures.get(timeout=600)
    process.join()
    return result


def measure(plan: Plan) -> dict[tuple[str, bool], list[Crawl]]:
    kinds = [(name, looks_up) for name in SCHEDULERS for looks_up in (False, True)]
    crawls: dict[tuple[str, bool], list[Crawl]] = {kind: [] for kind in kinds}
    with running(OXBLOOM) as server, site() as url:
        for turn in range(plan.rounds):
            first = turn % len(kinds)
            for name, looks_up in kinds[first:] + kinds[:first]:
                server.client.flushall()
                more = {"REDIS_URL": server.url, "CLOSESPIDER_PAGECOUNT": plan.pages}
                settings = {
                    **SETTINGS,
                    **more,
                    **SCHEDULERS[name],
                    **(MIDDLEWARE if looks_up else {}),
                }
                crawls[name, looks_up].append(measured(url, settings))
                report.say(f"{name} {looks_up} {crawls[name, looks_up][-1]}")
    return crawls


# ---- The figures ----------------------------------------------------------------------------------------------------


def markdown(plan: Plan, crawls: dict[tuple[str, bool], list[Crawl]]) -> str:
    def line(name: str, looks_up: bool) -> list[str]:
        own, without = crawls[name, looks_up], crawls[name, False]
        ratio = statistics.median(a.whole / b.whole for a, b in zip(own, without, strict=True))
        times = [statistics.median(c.whole for c in own), statistics.median(c.cpu for c in own)]
        label = f"{name}, `LinksMiddleware`" if looks_up else name
        return [label, *(f"{each:.1f}" for each in times), f"{ratio:.2f}"]

    intro = (
        f"Written by `make bench-scrapy`, {date.today()}, on {report.machine()}. "
        f"{report.versions(report.PACKAGES[:3])}. Crawls of {plan.pages} pages with {LINKS} links each, {NEW} of them "
        f"to new pages; medians of {plan.rounds} crawls, in milliseconds a page. The ratio is the median of the "
        "rounds' ratios to the same crawl without the middleware."
    )
    table = report.table("ms a page|crawler's CPU|ratio", (line(*kind) for kind in crawls))
    return f"{intro}\n\n{table}"


def main() -> None:
    plan = QUICK if report.IS_QUICK else FULL
    report.publish(markdown(plan, measure(plan)), "scrapy.md", "crawls")


if __name__ == "__main__":
    main()
