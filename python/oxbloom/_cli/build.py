"""`oxbloom build`: builds a filter from lines."""

import argparse
from collections.abc import Iterable

from oxbloom._cli import arguments, lines, store
from oxbloom._cli.errors import CommandError, say
from oxbloom._cli.text import size
from oxbloom._oxbloom import BloomFilter, Chunk, FilterFullError


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "build",
        help="build a filter from lines",
        description="Builds a filter from the lines of files or of standard input. Each line is an item, without its "
        "line feed. The filter appears when it is complete, or not at all.",
    )
    arguments.add_filter(parser)
    arguments.add_lines(parser)
    parser.add_argument(
        "--replace", action="store_true", help="overwrite the filter in the file or the key"
    )
    arguments.add_kind(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    try:
        filter = BloomFilter(options.capacity, options.error_rate, **arguments.kind_of(options))
    except ValueError as error:
        raise CommandError(str(error)) from None
    destination = store.destination(options)
    blocks = lines.blocks(options.lines, what="building")
    fill(filter, blocks, destination, if_full="use a larger --capacity, or --growing")
    return 0


def fill(
    filter: BloomFilter,
    blocks: Iterable[Chunk],
    destination: store.Destination,
    *,
    if_full: str,
) -> None:
    """Adds lines to a filter and saves it. Prints what was added, to standard error if standard output has the filter.

    if_full: what the user can do if the filter does not take all lines.
    """
    added = present = 0
    for block in blocks:
        try:
            present += filter.add_all(block).count(True)
        except FilterFullError:
            raise CommandError(
                f"the filter is full after {len(filter):,} items: {if_full}"
            ) from None
        added += len(block)
    destination.save(filter)
    line = (
        f"added {added:,} lines to {destination.name}: {added - present:,} new, {present:,} already there; "
        f"{size(filter.memory)}"
    )
    if isinstance(destination, store.Output):
        say(line)
    else:
        print(line)
