"""`make bench-python`: compares Bloom filters in a Python process.

Writes the figures into `docs/python-benchmarks.md`, between the markers. With `QUICK=1`, takes two minutes: leaves out
the filters of 10^8 items, and writes the figures into the build folder.

# How the comparison is kept fair

* All filters get the same items, of type str, in the same order, at an error rate of 1 %. They are half full before
  they are timed.
* Each round times each operation on a block of items, for one filter after the other, and starts with another filter. A
  figure is the median of the rounds, and a ratio is the median of the rounds' ratios. Creating the items is not timed.
* Single items are timed with the code that a program has in a loop: `filter.add(item)`, `item in filter`. The loop is
  part of the time.
* Replies are checked: a false negative ends the run.
* False positives are counted in full filters.
"""

from __future__ import annotations

import asyncio
import gc
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import redis
import redis.asyncio
import report
from contenders import (
    CHUNK,
    CONTENDERS,
    ERROR_RATE,
    Contender,
    PyBloom,
    chunks,
    items,
)
from oxbloom import AsyncRemoteFilter, BloomFilter, RemoteFilter
from report import say
from servers import OXBLOOM, Server, running

PACKAGES = ("redis", "pybloom-live", "rbloom", "fastbloom-rs", "numpy", "pyarrow")
SINGLE, BATCH = 2_000, 50_000
"""The number of items of a round, one by one and in a batch. Fewer are added if they would not fit."""
SMALL = 10_000
"""Filters of at most this size are created again for each round of additions, so that enough items fit."""
SLOWEST = 1_000_000
"""pybloom has no larger filters, since filling them takes minutes."""
MADD = 1_000
"""The number of items per BF.MADD."""


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...]
    rounds: int
    shipped: int
    """The number of items that are added to a filter on a server, or to one that is built offline and saved there."""


FULL = Plan((10_000, 1_000_000, 100_000_000), 31, 100_000_000)
QUICK = Plan((10_000, 1_000_000), 7, 1_000_000)


# ---- Measuring ------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """The measurements of one filter."""

    name: str
    memory: int = 0
    false_positives: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)
    """For each operation, the nanoseconds per item in each round."""


OPERATIONS = ("add", "hit", "miss", "add, batch", "hit, batch", "miss, batch")
ARRAYS = ("hit, NumPy array of bytes", "hit, NumPy array of str", "hit, Arrow array")


def timed(call: Callable[[], Any], count: int) -> tuple[float, Any]:
    begin = time.perf_counter()
    returned = call()
    return (time.perf_counter() - begin) / count * 1e9, returned


def half_full(kind: Callable[[int], Contender], size: int) -> Contender:
    contender = kind(size)
    contender.fill(0, size // 2)
    return contender


def measure(size: int, plan: Plan) -> list[Measured]:
    kinds = [kind for kind in CONTENDERS if kind is not PyBloom or size <= SLOWEST]
    say(f"filling {len(kinds)} filters for {size:,} items")
    contenders = [half_full(kind, size) for kind in kinds]
    half = size // 2
    measured = {each.name: Measured(each.name) for each in contenders}
    # All additions must fit into the other half of the filter.
    limit = half if size <= SMALL else half // (2 * plan.rounds)
    random = np.random.default_rng(2)
    next_new, next_absent = half, 1 << 40
    gc.collect()
    gc.freeze()
    say("timing")
    for turn in range(plan.rounds):
        first = turn % len(contenders)
        for operation in OPERATIONS:
            count = BATCH if "batch" in operation else SINGLE
            if operation.startswith("add"):
                count = min(count, limit)
                wanted = items(next_new, next_new + count)
                next_new += count if size > SMALL else 0
            elif operation.startswith("hit"):
                wanted = [items(n, n + 1)[0] for n in random.integers(half, size=count)]
            else:
                wanted = items(next_absent, next_absent + count)
                next_absent += count
            for each in contenders[first:] + contenders[:first]:
                is_new = operation.startswith("add") and size <= SMALL
                timed_filter = half_full(type(each), size) if is_new else each
                method = "add" if operation.startswith("add") else "look_up"
                call = getattr(timed_filter, f"{method}_all" if "batch" in operation else method)
                took, found = timed(partial(call, wanted), count)
                if operation.startswith("hit") and not all(found):
                    sys.exit(f"{each.name}: a false negative")
                measured[each.name].times.setdefault(operation, []).append(took)
        present = items(half - min(BATCH, half), half)
        arrays = np.array(present, np.bytes_), np.array(present), pa.array(present)
        for name, array in zip(ARRAYS, arrays, strict=True):
            took, found = timed(partial(contenders[0].look_up_all, array), len(present))
            if not all(found):
                sys.exit("oxbloom: a false negative")
            measured[contenders[0].name].times.setdefault(name, []).append(took)
    absent = items(1 << 41, (1 << 41) + CHUNK)
    say("counting false positives")
    for each in contenders:
        each.fill(next_new, size)
        measured[each.name].memory = each.memory()
        measured[each.name].false_positives = sum(each.look_up_all(absent))
    return list(measured.values())


# ---- Building offline -----------------------------------------------------------------------------------------------


@dataclass
class Shipped:
    name: str
    seconds: float
    server_cpu: float
    peak: int
    """The largest resident memory of the program, in bytes."""
    server_peak: int


def shipped(count: int) -> list[Shipped]:
    ways = (("built offline", offline), ("RemoteFilter", by_remote_filter), ("BF.MADD", by_madd))
    return [ship(name, way, count) for name, way in ways]


def ship(name: str, way: Callable[[str, int], float], count: int) -> Shipped:
    """Measures one way to get items into a new server, in a process of its own."""
    say(f"{name}: {count:,} items")
    with running(OXBLOOM) as server, get_context("spawn").Pool(1) as pool:
        before = cpu(server)
        seconds, peak = pool.apply(in_process, (way, server.url, count))
        if server.client.execute_command("BF.CARD", "seen") < 0.98 * count:
            sys.exit(f"{name}: items are missing")
        memory = server.client.info("memory")["used_memory_peak"]
        return Shipped(name, seconds, cpu(server) - before, peak, memory)


def cpu(server: Server) -> float:
    usage = server.client.info("cpu")
    return float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"])


def in_process(way: Callable[[str, int], float], url: str, count: int) -> tuple[float, int]:
    seconds = way(url, count)
    # Unlike this figure, ru_maxrss also includes the memory of the process that started this one.
    (peak,) = re.findall(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return seconds, int(peak) * 1024


def offline(url: str, count: int) -> float:
    client, seen = redis.Redis.from_url(url), BloomFilter(count, ERROR_RATE)
    spent = sum(timed(partial(seen.add_all, chunk), 1)[0] for chunk in chunks(0, count))
    return (spent + timed(partial(seen.save_to, client, "seen"), 1)[0]) / 1e9


def by_madd(url: str, count: int) -> float:
    client = redis.Redis.from_url(url)
    client.execute_command("BF.RESERVE", "seen", ERROR_RATE, count, "NONSCALING")

    def send(chunk: list[str]) -> None:
        with client.pipeline(transaction=False) as pipeline:
            for at in range(0, len(chunk), MADD):
                pipeline.execute_command("BF.MADD", "seen", *chunk[at : at + MADD])
            pipeline.execute()

    parts = (
        chunk[at : at + 10 * MADD]
        for chunk in chunks(0, count)
        for at in range(0, len(chunk), 10 * MADD)
    )
    return sum(timed(partial(send, part), 1)[0] for part in parts) / 1e9


def by_remote_filter(url: str, count: int) -> float:
    seen = RemoteFilter(redis.Redis.from_url(url), "seen", capacity=count, error_rate=ERROR_RATE)
    seen.reserve()
    return sum(timed(partial(seen.add_all, chunk), 1)[0] for chunk in chunks(0, count)) / 1e9


# ---- Tasks of asyncio -----------------------------------------------------------------------------------------------

TASKS = 10_000
CONNECTIONS = 50
"""The connections of the pool. With one for each task, redis-py takes even longer."""

Add = Callable[[str], Awaitable[object]]


def tasks(rounds: int) -> Iterator[list[str]]:
    """Yields a row for each way to add an item in each of many tasks: its times in milliseconds."""
    ways = {"AsyncRemoteFilter": by_turns, "`client.bf().add`": by_commands}
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    with running(OXBLOOM) as server:
        for _ in range(rounds):
            for name, way in ways.items():
                server.client.flushall()
                before = cpu(server)
                spent = asyncio.run(in_tasks(server.url, way))
                times[name].append((*spent, cpu(server) - before))
    for name, all_times in times.items():
        medians = map(statistics.median, zip(*all_times, strict=True))
        yield [name, *(f"{1e3 * seconds:.1f} ms" for seconds in medians)]


async def in_tasks(url: str, way: Callable[[redis.asyncio.Redis], Add]) -> tuple[float, float]:
    """Returns the time, and the processor time of this process."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url, max_connections=CONNECTIONS, timeout=None
    )
    async with redis.asyncio.Redis.from_pool(pool) as client:
        add = way(client)
        await asyncio.gather(*map(add, items(0, CONNECTIONS)))  # opens the connections
        wanted = items(CONNECTIONS, CONNECTIONS + TASKS)
        start, start_of_cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(add, wanted))
        return time.perf_counter() - start, time.process_time() - start_of_cpu


def by_turns(client: redis.asyncio.Redis) -> Add:
    return AsyncRemoteFilter(client, "seen", error_rate=ERROR_RATE).add


def by_commands(client: redis.asyncio.Redis) -> Add:
    return partial(client.bf().add, "seen")


# ---- The run --------------------------------------------------------------------------------------------------------


def main() -> None:
    figures = "\n\n".join(parts(QUICK if report.IS_QUICK else FULL))
    report.publish(figures, "python-benchmarks.md")


def parts(plan: Plan) -> Iterator[str]:
    yield (
        f"Written by `make bench-python`, {date.today()}, on {report.machine()}. "
        f"{report.versions(PACKAGES)}. Medians of {plan.rounds} rounds."
    )
    for size in plan.sizes:
        yield f"### {size:,} items"
        yield from speeds(measure(size, plan))
    yield f"### {plan.shipped:,} items on a server"
    yield report.table(
        "seconds|server's processor time|memory of the program|memory of the server",
        [
            [
                each.name,
                f"{each.seconds:.1f} s",
                f"{each.server_cpu:.2f} s",
                f"{each.peak / 1e6:.0f} MB",
                f"{each.server_peak / 1e6:.0f} MB",
            ]
            for each in shipped(plan.shipped)
        ],
    )
    yield f"### {TASKS:,} tasks of asyncio that each add an item on a server"
    heads = "time|program's processor time|server's processor time"
    yield report.table(heads, tasks(plan.rounds))


def speeds(measured: list[Measured]) -> Iterable[str]:
    ours = measured[0]

    def cell(each: Measured, operation: str) -> str:
        times = each.times[operation]
        if each is ours:
            return f"{statistics.median(times):.0f}"
        ratios = (a / b for a, b in zip(ours.times[operation], times, strict=True))
        return f"{statistics.median(times):.0f} ({statistics.median(ratios):.2f})"

    rows = [[op, *(cell(each, op) for each in measured)] for op in OPERATIONS]
    rows += [[op, cell(ours, op), *([""] * (len(measured) - 1))] for op in ARRAYS]
    rows.append(["memory", *(f"{each.memory / 1e3:,.0f} kB" for each in measured)])
    rates = (f"{100 * each.false_positives / CHUNK:.2f} %" for each in measured)
    rows.append(["false positives", *rates])
    yield report.table("|".join(each.name for each in measured), rows)


if __name__ == "__main__":
    main()
