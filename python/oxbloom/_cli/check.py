"""`oxbloom check`: prints the lines that are in a filter."""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import compress

from oxbloom._cli import arguments, lines, store
from oxbloom._cli.errors import CommandError
from oxbloom._oxbloom import Chunk

FOUND, NOT_FOUND = 0, 1  # exit statuses, as in grep
PREFIXES = (b"no\t", b"yes\t")

Contains = Callable[[Chunk], Sequence[int]]


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "check",
        help="print the lines that are in a filter",
        description="Prints the lines that are in a filter, and a few that are not (false positives).",
        epilog="Exit status: 0 if a line was found, 1 if none was, 2 after an error.",
    )
    arguments.add_filter(parser)
    arguments.add_lines(parser)
    parser.add_argument(
        "-v",
        "--invert-match",
        action="store_true",
        help="find the lines that are not in the filter",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "-a", "--all", action="store_true", help="print all lines, after yes or no and a tab"
    )
    output.add_argument("-c", "--count", action="store_true", help="print how many lines are found")
    output.add_argument(
        "-q", "--quiet", action="store_true", help="print nothing, and stop at the first line found"
    )
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="fetch the filter from the server once, instead of asking the server about all lines",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    contains = question(options)
    total = 0
    for block in lines.blocks(options.lines, what="checking", hidden=sys.stdout.isatty()):
        found = contains(block)
        if options.invert_match:
            found = [not each for each in found]
        total += sum(found)
        if options.quiet and total:
            break
        if not options.quiet and not options.count:
            write(block, found, all_lines=options.all)
    if options.count:
        print(total)
    return FOUND if total else NOT_FOUND


def write(block: Chunk, found: Sequence[int], *, all_lines: bool) -> None:
    if all_lines:
        chosen = [PREFIXES[flag] + line for flag, line in zip(found, block, strict=True)]
    else:
        chosen = list(compress(block, found))
    if chosen:
        chosen.append(b"")
        sys.stdout.buffer.write(b"\n".join(chosen))
        sys.stdout.buffer.flush()


def question(options: argparse.Namespace) -> Contains:
    """Returns a function that checks which items are in the filter."""
    if options.server is None and options.fetch:
        raise CommandError("--fetch needs --server")
    if options.server is None or options.fetch:
        return store.load(options).contains_all
    from oxbloom._cli import servers
    from oxbloom._sharded.commands import QUERY

    client, key = servers.connect_for_filter(options.server, "BF.MEXISTS"), options.filter
    with servers.errors(client, key):
        servers.check_exists(client, key)
    return servers.Lines(client, key, QUERY).send
