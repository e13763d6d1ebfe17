"""`oxbloom size`: prints the memory of filters. All figures come from the library."""

import argparse
import json
from datetime import timedelta
from typing import Any, NamedTuple

from oxbloom._cli import arguments
from oxbloom._cli.errors import CommandError
from oxbloom._cli.plans import planned
from oxbloom._cli.text import size, table
from oxbloom._types import Plan

DEFAULT_FIRST = 100  # the default capacity of a filter that BF.ADD creates
DEFAULT_SLICES = 15
DAY = timedelta(days=1)
ESTIMATE = "~"


class Row(NamedTuple):
    """A filter that has room for the items, and the command that creates it on a server."""

    name: str
    plan: Plan | None
    command: str


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "size",
        help="print the memory of filters, and how to create them",
        description="Prints the memory of filters of all kinds for a number of items and an error rate, and the "
        f"commands that create them. Sizes after {ESTIMATE} are estimates: they depend on the hashes of the items.",
    )
    add = parser.add_argument
    add("-c", "--capacity", metavar="N", type=arguments.count, required=True,
        help="number of distinct items, such as 1000000 or 1e6")  # fmt: skip
    add("-e", "--error-rate", metavar="RATE", type=arguments.rate,
        default=arguments.DEFAULT_ERROR_RATE,
        help="share of false positives, such as 0.01 or 1%% (default: %(default)s)")  # fmt: skip
    add("--first", metavar="N", type=arguments.count, default=DEFAULT_FIRST,
        help="capacity with which growing filters start (default: %(default)s)")  # fmt: skip
    add("--slices", metavar="N", type=arguments.count, default=DEFAULT_SLICES,
        help="slices of windows (default: %(default)s)")  # fmt: skip
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument(
        "--chart",
        choices=("rate", "memory"),
        help="also draw the false-positive rate, or the memory, against the number of items",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not 2 <= options.slices <= 64:
        raise CommandError("--slices must be from 2 to 64")
    rows = rows_for(options)
    if options.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return 0
    print(f"{options.capacity:,} items at an error rate of {options.error_rate!r}:\n")
    print(as_table(rows, options.capacity))
    if options.chart:
        from oxbloom._cli import chart

        print()
        print(chart.of_rate(options) if options.chart == "rate" else chart.of_memory(options))
    return 0


def rows_for(options: argparse.Namespace) -> list[Row]:
    items, rate, first, slices = options.capacity, options.error_rate, options.first, options.slices
    first = min(first, items)

    def row(name: str, command: str, capacity: int = items, **kind: Any) -> Row:
        reserve = f"BF.RESERVE key {rate!r} {capacity}"
        return Row(name, planned(items, capacity, rate, **kind), f"{reserve} {command}".rstrip())

    window = f"WINDOW 86400{'' if slices == DEFAULT_SLICES else f' SLICES {slices}'}"
    rolling = window.replace("WINDOW 86400", "ROLLING")
    return [
        row("fixed", "NONSCALING"),
        row("may grow", "", growing=True),
        row(f"grown from {first:,}", "", first, growing=True),
        row("counting, fixed", "COUNTING NONSCALING", counting=True),
        row(f"counting, grown from {first:,}", "COUNTING", first, counting=True, growing=True),
        Row(
            "cuckoo, with CF commands",
            planned(items, items, rate, counting=True, growing=True),
            f"CF.RESERVE key {items} ERROR {rate!r}",
        ),
        row("items of a window", f"{window} NONSCALING", window=DAY, slices=slices),
        row(
            f"window, grown from {first:,}", window, first, window=DAY, slices=slices, growing=True
        ),
        row("last items", rolling, rolling=True, slices=slices),
        row("RedisBloom, fixed", "NONSCALING", classic=True),
        row("RedisBloom, may grow", "", classic=True, growing=True),
        row(f"RedisBloom, grown from {first:,}", "", first, classic=True, growing=True),
    ]


def as_table(rows: list[Row], items: int) -> str:
    lines = [["filter", "memory", "bits/item", "probes", "blocks", "to create it"]]
    for name, plan, command in rows:
        if plan is None:
            lines.append([name, "too large", "", "", "", ""])
            continue
        mark = ESTIMATE if plan["estimated"] else ""
        each, blocks = plan["blocks_per_item"], plan["blocks"]
        lines.append(
            [
                name,
                mark + size(plan["memory"]),
                f"{mark}{8 * plan['memory'] / items:.2f}",
                str(plan["probes"]),
                "" if each is None else f"{each} of {blocks:,}",
                command,
            ]
        )
    return table(lines, numbers=frozenset({1, 2, 3, 4}))
