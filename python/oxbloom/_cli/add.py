"""`oxbloom add`: adds lines to an existing filter."""

import argparse

from oxbloom._cli import arguments, build, lines, store
from oxbloom._cli.errors import CommandError
from oxbloom._cli.text import shown
from oxbloom._oxbloom import FilterFullError

ITEMS_PER_COMMAND = 1000


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "add",
        help="add lines to a filter",
        description="Adds the lines of files or of standard input to an existing filter. A file is replaced when all "
        "lines are added, or not at all. A key gets the lines as they are read.",
    )
    arguments.add_filter(parser)
    arguments.add_lines(parser)
    parser.set_defaults(run=run, replace=True)


def run(options: argparse.Namespace) -> int:
    return add_to_file(options) if options.server is None else add_to_key(options)


def add_to_file(options: argparse.Namespace) -> int:
    filter = store.load(options)
    destination = store.destination(options)
    added = present = 0
    for batch in lines.batches(options.lines, what="adding"):
        try:
            present += sum(filter.add_all(batch))
        except FilterFullError:
            raise CommandError(
                f"the filter is full after {len(filter):,} items: build a larger one"
            ) from None
        added += len(batch)
    destination.save(filter)
    build.report(destination, added, present, filter)
    return 0


def add_to_key(options: argparse.Namespace) -> int:
    from oxbloom._cli import servers

    client, key = servers.connect_for_filter(options.server, "BF.INSERT"), options.filter
    added = new = 0
    with servers.errors():
        if not client.execute_command("EXISTS", key):
            raise CommandError(f"the server has no key {shown(key)}: create it with build")
        for batch in lines.batches(options.lines, what="adding"):
            for start in range(0, len(batch), ITEMS_PER_COMMAND):
                some = batch[start : start + ITEMS_PER_COMMAND]
                for answer in client.execute_command("BF.INSERT", key, "NOCREATE", "ITEMS", *some):
                    if isinstance(answer, Exception):
                        raise answer
                    new += bool(answer)
                    added += 1
    print(f"added {added:,} lines to {shown(key)}: {new:,} new, {added - new:,} already there")
    return 0
