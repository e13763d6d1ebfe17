"""Formats the figures of `make bench-scrapy` for `docs/scrapy.md`. Other benchmarks use some of its functions."""

from __future__ import annotations

import math
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib import metadata
from pathlib import Path

from servers import ROOT

IS_QUICK = os.environ.get("QUICK", "") not in ("", "0")
TARGET = Path(os.environ.get("TARGET", ROOT / "target"))
PACKAGES = ("redis", "Scrapy", "scrapy-redis", "Scrapy-Redis-BloomFilter")


@dataclass
class Speed:
    """Microseconds per request, one figure per round."""

    whole: list[float] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    """The same, with fingerprints that were computed in advance."""
    client: list[float] = field(default_factory=list)
    """The processor time of the crawler's process, for the same requests as `whole`."""
    server: list[float] = field(default_factory=list)
    """The processor time of the server, for the same requests as `whole`."""


@dataclass
class Row:
    """The measurements of one filter."""

    name: str
    promised: float
    """The requested error rate. For scrapy-redis-bloomfilter, which has no such option, the theoretical one."""
    speed: Speed
    size: int = 0
    used: int = 0
    wrong: int = 0
    """The number of false positives."""


@dataclass(frozen=True)
class Report:
    server: str
    items: int
    others: int
    rounds: int
    block: int
    rows: list[Row]
    pings: list[float]

    def markdown(self) -> str:
        parts = self._setup, self._speeds, self._memory
        return "\n\n".join(part() for part in parts)

    def _setup(self) -> str:
        named = f"{self.server}; {versions(PACKAGES)}"
        return f"Written by `make bench-scrapy`, {date.today()}, on {machine()}. {named}."

    def _speeds(self) -> str:
        ours = next(row for row in self.rows if row.name == "oxbloom").speed.whole

        def line(row: Row) -> list[str]:
            speed = row.speed
            whole = statistics.median(speed.whole)
            ratio = statistics.median(a / b for a, b in zip(speed.whole, ours, strict=True))
            others = map(statistics.median, (speed.known, speed.client, speed.server))
            micros = [f"{micros:.0f}" for micros in (whole, *others)]
            return [row.name, f"{1e6 / whole:,.0f}", *micros, f"{ratio:.2f}"]

        intro = (
            f"Filters that hold {self.items // 2:,} URLs, medians of {self.rounds} rounds of "
            f"{self.block:,} requests. The ratio is that to oxbloom: the median of the rounds' ratios of µs a request."
        )
        heads = "requests a second|µs a request|fingerprint known|crawler's CPU|server's CPU|ratio"
        ping = ["a PING with the same client", "", "", f"{statistics.median(self.pings):.0f}"]
        rows = [*map(line, self.rows), [*ping, "", "", ""]]
        return f"{intro}\n\n{table(heads, rows)}"

    def _memory(self) -> str:
        def line(row: Row) -> list[str]:
            sizes = f"{row.size / 1e6:.2f} MB", f"{row.used / 1e6:.2f} MB"
            measured = f"{row.wrong:,}: {percent(row.wrong / self.others)}"
            per_item = f"{row.size / self.items:,.1f}"
            return [row.name, *sizes, per_item, percent(row.promised), measured]

        intro = (
            f"The next table has filters of {self.items:,} URLs: their memory, and how many of "
            f"{self.others:,} other URLs are false positives."
        )
        heads = "`MEMORY USAGE`|growth of `used_memory`|bytes a URL|promised|false positives"
        theirs = (
            "For scrapy-redis-bloomfilter, the promised rate is the theoretical one for good hash functions, "
            "(1 - e^(-kn/m))^k. Its first function is the sum of the fingerprint's characters, which has few different "
            "values, so only the other functions are of use."
        )
        return f"{intro}\n\n{table(heads, map(line, self.rows))}\n\n{theirs}"


def table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown. `heads` are separated by bars. The first column, of names, has no head."""
    titles = heads.split("|")
    lines = [["", *titles], ["---"] + ["--:"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def percent(share: float) -> str:
    """Returns a share in percent, with three significant digits.

    Close to 100 %, the difference from 100 % has three significant digits. Tiny shares have one, and an exponent.
    """
    if share in (0, 1):
        return f"{100 * share:.0f} %" if share else "0"
    if share < 1e-8:
        return f"{100 * share:.0e} %"
    decimals = max(0, 2 - math.floor(math.log10(100 * min(share, 1 - share))))
    return f"{100 * share:.{decimals}f} %"


def versions(packages: Iterable[str]) -> str:
    parsing = "with hiredis" if installed("hiredis") else "without hiredis"
    named = [f"{name} {metadata.version(name)}" for name in packages]
    named[0] = f"{named[0]} ({parsing})".replace("redis", "redis-py", 1)
    return ", ".join([f"{platform.python_implementation()} {platform.python_version()}", *named])


def machine() -> str:
    return f"{os.cpu_count()} cores of {processor()}, {platform.system()}"


def installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def publish(figures: str, page: str, name: str = "figures") -> None:
    """Prints the figures, and writes them into a page of docs/. Those of a quick run go into the build folder instead.

    `name` is the name of the markers in the page.
    """
    print(figures)
    file = TARGET / "bench" / f"{Path(sys.argv[0]).stem}.md" if IS_QUICK else ROOT / "docs" / page
    if IS_QUICK:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(figures + "\n")
    else:
        write(file, figures, name)
    say(f"Written to {file}")


def write(page: Path, figures: str, name: str) -> None:
    """Replaces the text between the markers of the page by the figures."""
    start, stop = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, begin, rest = page.read_text().partition(start)
    _, end, after = rest.partition(stop)
    if not (begin and end):
        sys.exit(f"{page} has no {start} … {stop}")
    page.write_text(f"{before}{start}\n\n{figures}\n\n{stop}{after}")


def say(text: str) -> None:
    """Prints what the benchmark does, for its user."""
    print(text, file=sys.stderr, flush=True)
