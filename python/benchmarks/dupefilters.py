"""`make bench-scrapy`: compares dupefilters for Scrapy, each on a server of its own.

Writes the figures into `docs/scrapy.md`, between the markers. With `QUICK=1`, measures a tenth of the items, which
takes a minute, and writes the figures into the build folder.

# How the comparison is kept fair

* All filters are created from settings, by `from_spider`, as scrapy-redis's scheduler creates them. All servers are the
  same, except that the module is only loaded where it is needed.
* All filters get the same URLs in the same order. They take turns every 200 requests, and each round starts with
  another filter.
* Four of five requests are duplicates, drawn from all earlier URLs. Filters hold half of their items before they are
  timed, as in the middle of a crawl.
* Each filter gets new requests, since Scrapy caches the fingerprint of a request. Creating them is not timed.
* The time without fingerprints is measured with fingerprints that are computed in advance.
* Replies are checked: a duplicate that is let through ends the run.

# How scrapy-redis-bloomfilter is filled

It sends a command for each of its bits and waits for the reply: a million URLs would take longer than everything else
here together. So only a sample is added with its `insert`. For all other URLs, its `HashMap` computes the positions,
and the bits are written into the key at once. With samples, the benchmark checks that both ways give the same bits, and
that `exists` agrees with the bits.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import multiprocessing
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
import report
import urls
from oxbloom.scrapy import RFPDupeFilter
from report import say
from scrapy import Request, Spider
from scrapy.utils.request import fingerprint
from scrapy.utils.test import get_crawler
from scrapy_redis.dupefilter import RFPDupeFilter as SetDupeFilter
from scrapy_redis_bloomfilter.bloomfilter import HashMap
from scrapy_redis_bloomfilter.defaults import BLOOMFILTER_BIT, BLOOMFILTER_HASH_NUMBER
from scrapy_redis_bloomfilter.dupefilter import RFPDupeFilter as BitsDupeFilter
from servers import OXBLOOM, Server, running

ERROR_RATE = 0.001
SHARDS = 16
NEW = 0.2
"""The share of requests that are new."""
BATCH = 10_000
QUIET = 3
"""Seconds until a server has freed its clients' buffers and has finished growing its hash tables."""


@dataclass(frozen=True)
class Plan:
    items: int
    """The number of URLs that each filter holds in the end."""
    others: int
    """The maximum number of other URLs, with which false positives are counted."""
    rounds: int
    block: int
    """The number of requests of a round, for each filter."""
    sample: int
    """The number of URLs with which the shortcuts for scrapy-redis-bloomfilter are checked."""


FULL = Plan(1_000_000, 1_000_000, 151, 200, 2_000)
QUICK = Plan(100_000, 100_000, 15, 200, 500)


# ---- URLs -----------------------------------------------------------------------------------------------------------

HASHES = [HashMap(1 << BLOOMFILTER_BIT, seed) for seed in range(BLOOMFILTER_HASH_NUMBER)]
"""scrapy-redis-bloomfilter's hash functions. They compute a number modulo the number of bits, which is a power of two.
So in a filter with fewer bits, a position is the lower bits of such a number.
"""


@dataclass
class Prints:
    """URLs, their two kinds of fingerprints, and scrapy-redis-bloomfilter's positions for them."""

    urls: list[str] = field(default_factory=list)
    scrapy: list[str] = field(default_factory=list)
    scrapy_redis: list[str] = field(default_factory=list)
    positions: array[int] = field(default_factory=lambda: array("I"))

    def part(self, start: int, end: int) -> Prints:
        positions = self.positions[start * len(HASHES) : end * len(HASHES)]
        marks = self.scrapy[start:end], self.scrapy_redis[start:end]
        return Prints(self.urls[start:end], *marks, positions)


def prints(batch: Sequence[str]) -> Prints:
    """Returns the fingerprints of URLs. Leaves out invalid URLs."""
    found, theirs = Prints(), SetDupeFilter(None, "")
    for url in batch:
        with contextlib.suppress(ValueError):
            request = Request(url)
            found.scrapy.append(fingerprint(request).hex())
            found.scrapy_redis.append(theirs.request_fingerprint(request))
            found.urls.append(url)
            found.positions.extend(hash.hash(found.scrapy_redis[-1]) for hash in HASHES)
    return found


def distinct_prints(all_urls: Sequence[str], wanted: int) -> Prints:
    """Returns `wanted` URLs with different fingerprints. (Different URLs can have the same one.)"""
    distinct, seen = Prints(), set[str]()
    with multiprocessing.Pool() as workers:
        for batch in workers.imap(prints, batches(all_urls)):
            for at, mark in enumerate(batch.scrapy):
                if mark not in seen:
                    seen.add(mark)
                    distinct.urls.append(batch.urls[at])
                    distinct.scrapy.append(mark)
                    distinct.scrapy_redis.append(batch.scrapy_redis[at])
                    distinct.positions.extend(batch.part(at, at + 1).positions)
            if len(seen) >= wanted:
                break
    return distinct.part(0, wanted)


# ---- Filters --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A class of filters, and settings for it."""

    name: str
    made_by: type[Any]
    settings: dict[str, Any]
    promised: float
    """The error rate that the filter should have when it holds all items."""

    def on(self, url: str) -> Any:
        settings = {"REDIS_URL": url, "LOG_ENABLED": False, **self.settings}
        spider = get_crawler(Spider, settings)._create_spider("bench")
        spider.crawler.spider = spider
        with contextlib.redirect_stdout(io.StringIO()):  # one of the classes prints its settings
            return self.made_by.from_spider(spider)


class Contender:
    """A filter on a server of its own.

    Its classes have two more methods: `fill` adds items, and `false_positives` returns how many of some items that were
    not added are found.
    """

    def __init__(self, kind: Kind, server: Server) -> None:
        self.kind = kind
        self.name = kind.name
        self.server = server
        self.empty = self.used()
        self.dupefilter = kind.on(server.url)
        self.known: dict[Request, str] = {}
        self.own_fingerprint = self.dupefilter.request_fingerprint

    @property
    def keys(self) -> list[str]:
        return [self.dupefilter.key]

    def prepare(self, wanted: Sequence[str], *, known: bool) -> list[Request]:
        """Returns new requests. If `known`, `request_seen` looks up their fingerprints instead of computing them."""
        self.dupefilter.request_fingerprint = self.own_fingerprint
        requests = [Request(url) for url in wanted]
        if known:
            self.known = {each: self.own_fingerprint(Request(each.url)) for each in requests}
            self.dupefilter.request_fingerprint = self.known.__getitem__
        return requests

    def cpu(self) -> float:
        """Returns the processor time of the server, in seconds."""
        information = self.server.client.info("cpu")
        return information["used_cpu_user"] + information["used_cpu_sys"]

    def used(self) -> int:
        return self.server.client.info("memory")["used_memory"]

    def size(self) -> int:
        """Returns the memory of the keys in bytes. The server measures all members of a set, not a sample."""
        usage = [self.server.client.memory_usage(key, samples=0) for key in self.keys]
        return sum(filter(None, usage))


class SetContender(Contender):
    def fill(self, items: Prints) -> None:
        for batch in batches(items.scrapy_redis):
            self.server.client.sadd(self.dupefilter.key, *batch)

    def false_positives(self, items: Prints) -> int:
        client, key = self.server.client, self.dupefilter.key
        return sum(sum(client.smismember(key, b)) for b in batches(items.scrapy_redis))


class BloomContender(Contender):
    @property
    def keys(self) -> list[str]:
        return self.dupefilter.filter.keys

    def fill(self, items: Prints) -> None:
        self.dupefilter.filter.add_all(items.scrapy)

    def false_positives(self, items: Prints) -> int:
        return sum(self.dupefilter.filter.contains_all(items.scrapy))


class BitsContender(Contender):
    """A filter of scrapy-redis-bloomfilter, with a copy of its bits."""

    def __init__(self, kind: Kind, server: Server, sample: int) -> None:
        super().__init__(kind, server)
        self.sample = sample
        self.mask = self.dupefilter.bf.m - 1
        self.bits = bytearray(self.dupefilter.bf.m // 8)

    def fill(self, items: Prints) -> None:
        if not self.server.client.exists(self.dupefilter.key):
            self.insert_sample(items)
        self.set(items.positions)
        # Writes into the string that `insert` created, so that it keeps the spare room that the server gave it.
        self.server.client.setrange(self.dupefilter.key, 0, bytes(self.bits).rstrip(b"\0"))

    def insert_sample(self, items: Prints) -> None:
        for mark in items.scrapy_redis[: self.sample]:
            self.dupefilter.bf.insert(mark)
        self.set(items.part(0, self.sample).positions)
        there = self.server.client.get(self.dupefilter.key)
        if there.rstrip(b"\0") != bytes(self.bits).rstrip(b"\0"):
            sys.exit(f"{self.name}: insert() sets other bits than HashMap computes")

    def false_positives(self, items: Prints) -> int:
        every = len(HASHES)
        of_each = [self.are_set(items.positions[number::every]) for number in range(every)]
        answers = list(map(all, zip(*of_each, strict=True)))
        sample = items.scrapy_redis[: self.sample]
        if [bool(self.dupefilter.bf.exists(mark)) for mark in sample] != answers[: self.sample]:
            sys.exit(f"{self.name}: exists() contradicts the bits")
        return sum(answers)

    def set(self, positions: Iterable[int]) -> None:
        bits, mask = self.bits, self.mask
        for position in positions:
            bits[(position & mask) >> 3] |= 128 >> (position & 7)

    def are_set(self, positions: Iterable[int]) -> list[bool]:
        bits, mask = self.bits, self.mask
        return [bool(bits[(p & mask) >> 3] & (128 >> (p & 7))) for p in positions]


def share_set(bits: int, items: int) -> float:
    """Returns the share of bits that are set in theory, with independent and uniform hash functions."""
    return -math.expm1(-len(HASHES) * items / bits)


def batches(items: Sequence[str]) -> Iterator[Sequence[str]]:
    return (items[at : at + BATCH] for at in range(0, len(items), BATCH))


def start(plan: Plan, stack: ExitStack) -> list[Contender]:
    def server(module: str | None = None) -> Server:
        return stack.enter_context(running(module))

    def bloom(name: str, **more: object) -> BloomContender:
        capacity = {"BLOOMFILTER_CAPACITY": plan.items, "BLOOMFILTER_ERROR_RATE": ERROR_RATE}
        return BloomContender(
            Kind(name, RFPDupeFilter, capacity | more, ERROR_RATE), server(OXBLOOM)
        )

    def bits(bit: int) -> BitsContender:
        promised = share_set(1 << bit, plan.items) ** len(HASHES)
        name = f"scrapy-redis-bloomfilter, BIT={bit}"
        kind = Kind(name, BitsDupeFilter, {"BLOOMFILTER_BIT": bit}, promised)
        return BitsContender(kind, server(), plan.sample)

    plain = bloom("oxbloom")
    as_large = round(math.log2(8 * plain.dupefilter.filter.info().size))
    return [
        SetContender(Kind("scrapy-redis, a set", SetDupeFilter, {}, 0.0), server()),
        bits(BLOOMFILTER_BIT),
        bits(as_large),
        plain,
        bloom("oxbloom, COUNTING", BLOOMFILTER_COUNTING=True),
        bloom(f"oxbloom, {SHARDS} shards", BLOOMFILTER_SHARDS=SHARDS),
    ]


# ---- Measuring ------------------------------------------------------------------------------------------------------


class Stream:
    """The URLs that a crawler finds: new ones in order, and duplicates of earlier ones."""

    def __init__(self, items: Sequence[str], seen: int) -> None:
        self.items = items
        self.seen = seen
        self.random = random.Random(2)

    def block(self, size: int) -> tuple[list[str], list[bool]]:
        """Returns URLs, and for each whether it is new."""
        wanted, new = [], []
        for _ in range(size):
            new.append(self.random.random() < NEW)
            wanted.append(self.items[self.seen if new[-1] else self.random.randrange(self.seen)])
            self.seen += new[-1]
        return wanted, new


def speeds(
    contenders: list[Contender], stream: Stream, plan: Plan
) -> tuple[dict[str, report.Speed], list[float]]:
    """Measures the speeds of the contenders, and of a PING."""
    measured = {each.name: report.Speed() for each in contenders}
    pings = []
    ping = contenders[0].dupefilter.server.ping
    for turn in range(plan.rounds):
        first = turn % len(contenders)
        for known in (False, True):
            wanted, new = stream.block(plan.block)
            for each in contenders[first:] + contenders[:first]:
                requests = each.prepare(wanted, known=known)
                server = each.cpu()
                took, client, seen = timed(each.dupefilter.request_seen, requests)
                server = (each.cpu() - server) / plan.block * 1e6
                if not all(was or is_new for was, is_new in zip(seen, new, strict=True)):
                    sys.exit(f"{each.name} let a duplicate through")
                speed = measured[each.name]
                if known:
                    speed.known.append(took)
                else:
                    speed.whole.append(took)
                    speed.client.append(client)
                    speed.server.append(server)
        pings.append(timed(lambda _: ping(), range(plan.block))[0])
    return measured, pings


def timed(call: Callable[[Any], Any], arguments: Sequence[Any]) -> tuple[float, float, list[Any]]:
    """Returns the time and this process's processor time in microseconds per call, and the results."""
    gc.collect()
    begin, cpu = time.perf_counter(), time.process_time()
    returned = [call(argument) for argument in arguments]
    took, cpu = time.perf_counter() - begin, time.process_time() - cpu
    scale = 1e6 / len(arguments)
    return took * scale, cpu * scale, returned


# ---- The run --------------------------------------------------------------------------------------------------------


def main() -> None:
    figures = run(QUICK if report.IS_QUICK else FULL, report.TARGET / "demo").markdown()
    report.publish(figures, "scrapy.md")


def run(plan: Plan, data: Path) -> report.Report:
    say("Computing fingerprints")
    everything = distinct_prints(urls.load(data), plan.items + plan.others)
    items = everything.part(0, plan.items)
    others = everything.part(plan.items, len(everything.urls))
    gc.collect()
    gc.freeze()  # otherwise, the collector would scan all these URLs while requests are timed

    with ExitStack() as stack:
        contenders = start(plan, stack)
        measured, pings = speeds_when_half_full(contenders, items, plan)
        rows = [
            report.Row(each.name, each.kind.promised, measured[each.name]) for each in contenders
        ]
        for each, row in zip(contenders, rows, strict=True):
            say(f"Counting false positives of {each.name}")
            row.size, row.used = each.size(), each.used() - each.empty
            row.wrong = each.false_positives(others)
        return report.Report(
            described(contenders[-1].server.client),
            len(items.urls),
            len(others.urls),
            plan.rounds,
            plan.block,
            rows,
            pings,
        )


def speeds_when_half_full(
    contenders: list[Contender], items: Prints, plan: Plan
) -> tuple[dict[str, report.Speed], list[float]]:
    half = plan.items // 2
    for each in contenders:
        say(f"Filling {each.name}")
        each.fill(items.part(0, half))
    say("Timing")
    stream = Stream(items.urls, half)
    measured = speeds(contenders, stream, plan)
    assert stream.seen <= plan.items
    for each in contenders:
        # These include the URLs that were timed. If one was a false positive, it was not added.
        each.fill(items.part(half, plan.items))
    time.sleep(QUIET)
    return measured


def described(client: redis.Redis) -> str:
    server = client.info("server")
    name = server.get("server_name", "redis").capitalize()
    version = server.get(f"{name.lower()}_version", server["redis_version"])
    # The version in MODULE LIST is that of the RedisBloom that the module is compatible with.
    module = client.info("bf")["bf_version"]
    return f"{name} {version} ({client.info('memory')['mem_allocator']}), oxbloom {module}"


if __name__ == "__main__":
    main()
