"""`make bench-scrapy`: compares dupefilters for Scrapy, each on a server of its own.

Writes the figures into `docs/scrapy.md`, between the markers. With `QUICK=1`, measures a tenth of the items, and writes
the figures into the build folder.

All filters are created from settings, by `from_spider`, as scrapy-redis's scheduler creates them. They get the same URLs
in the same order, take turns every 200 requests, and each round starts with another one. Half of the URLs are in the
filters before they are timed, as in the middle of a crawl, and four of five requests are duplicates. Each filter gets
new requests, since Scrapy caches the fingerprint of a request; creating them is not timed. A duplicate that is let
through ends the run.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import random
import statistics
import sys
import time
from contextlib import ExitStack
from datetime import date
from typing import Any

import report
from oxbloom.scrapy import RFPDupeFilter
from report import say
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler
from scrapy_redis.dupefilter import RFPDupeFilter as SetDupeFilter
from scrapy_redis_bloomfilter.dupefilter import RFPDupeFilter as BitsDupeFilter
from servers import OXBLOOM, running

ITEMS, ROUNDS = (5_000, 15) if report.IS_QUICK else (50_000, 151)
BLOCK = 200
NEW = 0.2
"""The share of requests that are new."""
SIZE = {"BLOOMFILTER_CAPACITY": ITEMS, "BLOOMFILTER_ERROR_RATE": 0.001}
PACKAGES = ("redis", "Scrapy", "scrapy-redis", "Scrapy-Redis-BloomFilter")


class Contender:
    """A filter on a server of its own, and its times in microseconds per request."""

    def __init__(
        self, stack: ExitStack, name: str, made_by: type[Any], settings: dict[str, Any]
    ) -> None:
        self.name = name
        self.times: list[float] = []
        self.times_of_server: list[float] = []
        self.server = stack.enter_context(running(OXBLOOM if made_by is RFPDupeFilter else None))
        settings = {"REDIS_URL": self.server.url, "LOG_ENABLED": False, **settings}
        spider = get_crawler(Spider, settings)._create_spider("bench")
        spider.crawler.spider = spider
        with contextlib.redirect_stdout(io.StringIO()):  # one of the classes prints its settings
            self.dupefilter = made_by.from_spider(spider)

    def cpu(self) -> float:
        usage = self.server.client.info("cpu")
        return float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"])

    def time(self, urls: list[str], is_new: list[bool]) -> None:
        requests = [Request(url) for url in urls]
        gc.collect()
        cpu, begin = self.cpu(), time.perf_counter()
        seen = list(map(self.dupefilter.request_seen, requests))
        self.times.append((time.perf_counter() - begin) / len(urls) * 1e6)
        self.times_of_server.append((self.cpu() - cpu) / len(urls) * 1e6)
        if not all(was or new for was, new in zip(seen, is_new, strict=True)):
            sys.exit(f"{self.name} let a duplicate through")

    def memory(self) -> int:
        client = self.server.client
        return sum(client.memory_usage(key, samples=0) for key in client.scan_iter())


def url(number: int) -> str:
    return f"https://example.com/products/{number}?lang=en"


def measured(stack: ExitStack) -> list[Contender]:
    def start(name: str, made_by: type[Any], **settings: Any) -> Contender:
        contender = Contender(stack, name, made_by, settings)
        say(f"Filling {name}")
        fill(contender, range(ITEMS // 2))
        return contender

    def fill(contender: Contender, numbers: range) -> None:
        for number in numbers:
            contender.dupefilter.request_seen(Request(url(number)))

    ours = start("oxbloom", RFPDupeFilter, **SIZE)
    bits = round(math.log2(8 * ours.memory()))
    contenders = [
        ours,
        start("oxbloom, COUNTING", RFPDupeFilter, **SIZE, BLOOMFILTER_COUNTING=True),
        start("oxbloom, 16 shards", RFPDupeFilter, **SIZE, BLOOMFILTER_SHARDS=16),
        start("scrapy-redis, a set", SetDupeFilter),
        start("scrapy-redis-bloomfilter, BIT=30", BitsDupeFilter),
        start(f"scrapy-redis-bloomfilter, BIT={bits}", BitsDupeFilter, BLOOMFILTER_BIT=bits),
    ]
    say("Timing")
    chance, there = random.Random(2), ITEMS // 2
    for turn in range(ROUNDS):
        is_new = [chance.random() < NEW for _ in range(BLOCK)]
        urls = []
        for new in is_new:
            urls.append(url(there if new else chance.randrange(there)))
            there += new
        first = turn % len(contenders)
        for each in contenders[first:] + contenders[:first]:
            each.time(urls, is_new)
    for each in contenders:
        fill(each, range(there, ITEMS))
    return contenders


def markdown(contenders: list[Contender]) -> str:
    ours = contenders[0].times

    def line(each: Contender) -> list[str]:
        ratio = statistics.median(a / b for a, b in zip(each.times, ours, strict=True))
        micros = [f"{statistics.median(times):.0f}" for times in (each.times, each.times_of_server)]
        memory = each.memory()
        return [
            each.name,
            *micros,
            f"{ratio:.2f}",
            f"{memory / 1e6:.2f} MB",
            f"{memory / ITEMS:,.1f}",
        ]

    server = contenders[0].server.client.info("server")
    heads = "µs a request|server's CPU|ratio to oxbloom|`MEMORY USAGE`|bytes a URL"
    return (
        f"Written by `make bench-scrapy`, {date.today()}, on {report.machine()}. "
        f"Redis {server['redis_version']}; {report.versions(PACKAGES)}. Filters of {ITEMS:,} URLs, half full when they "
        f"are timed. Medians of {ROUNDS} rounds of {BLOCK} requests.\n\n{report.table(heads, map(line, contenders))}"
    )


def main() -> None:
    with ExitStack() as stack:
        report.publish(markdown(measured(stack)), "scrapy.md")


if __name__ == "__main__":
    main()
