"""Formats the figures of the benchmarks, and writes them into pages."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from servers import ROOT

IS_QUICK = os.environ.get("QUICK", "") not in ("", "0")
TARGET = Path(os.environ.get("TARGET", ROOT / "target"))


def table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown. `heads` are separated by bars. The first column, of names, has no head."""
    titles = heads.split("|")
    lines = [["", *titles], ["---"] + ["--:"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def versions(packages: Iterable[str]) -> str:
    installed = {package.metadata["Name"] for package in metadata.distributions()}
    parsing = "with hiredis" if "hiredis" in installed else "without hiredis"
    named = [f"{name} {metadata.version(name)}" for name in packages]
    named[0] = f"{named[0]} ({parsing})".replace("redis", "redis-py", 1)
    return ", ".join([f"{platform.python_implementation()} {platform.python_version()}", *named])


def machine() -> str:
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{os.cpu_count()} cores of {models[0] if models else platform.processor()}, Linux"


def publish(figures: str, page: str) -> None:
    """Prints the figures, and writes them into a page of docs/, between its markers. Those of a quick run go into the
    build folder instead."""
    print(figures)
    if IS_QUICK:
        file = TARGET / "bench" / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(figures + "\n")
    else:
        file = ROOT / "docs" / page
        start, stop = "<!-- figures -->", "<!-- /figures -->"
        before, _, rest = file.read_text().partition(start)
        file.write_text(f"{before}{start}\n\n{figures}\n\n{stop}{rest.partition(stop)[2]}")
    say(f"Written to {file}")


def say(text: str) -> None:
    """Prints what the benchmark does, for its user."""
    print(text, file=sys.stderr, flush=True)
