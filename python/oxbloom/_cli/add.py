"""`oxbloom add`: adds lines to an existing filter."""

import argparse

from oxbloom._cli import arguments, build, lines, store
from oxbloom._cli.text import shown


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "add",
        help="add lines to a filter",
        description="Adds the lines of files or of standard input to an existing filter. A file is replaced when all "
        "lines are added, or not at all. A key gets the lines as they are read.",
    )
    arguments.add_filter(parser)
    arguments.add_lines(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return add_to_file(options) if options.server is None else add_to_key(options)


def add_to_file(options: argparse.Namespace) -> int:
    filter, destination = store.load_to_replace(options.filter)
    blocks = lines.blocks(options.lines, what="adding")
    build.fill(filter, blocks, destination, if_full="build a larger one")
    return 0


def add_to_key(options: argparse.Namespace) -> int:
    from oxbloom._cli import servers
    from oxbloom._sharded.commands import Operation

    # The key may be deleted while lines are added. It is not created again.
    addition = Operation(("BF.ADDPACKED", "NOCREATE"), ("BF.INSERT", "NOCREATE", "ITEMS"))
    client, key = servers.connect_for_filter(options.server, "BF.INSERT"), options.filter
    with servers.errors(client, key):
        servers.check_exists(client, key, otherwise=": create it with build")
    server = servers.Lines(client, key, addition)
    added = new = 0
    for block in lines.blocks(options.lines, what="adding"):
        added += len(block)
        new += server.send(block).count(1)
    print(f"added {added:,} lines to {shown(key)}: {new:,} new, {added - new:,} already there")
    return 0
