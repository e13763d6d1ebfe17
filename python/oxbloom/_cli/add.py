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
    batches = lines.batches(options.lines, what="adding")
    build.fill(filter, batches, destination, if_full="build a larger one")
    return 0


def add_to_key(options: argparse.Namespace) -> int:
    from oxbloom._cli import servers

    client, key = servers.connect_for_filter(options.server, "BF.INSERT"), options.filter
    added = new = 0
    with servers.errors():
        servers.check_exists(client, key, otherwise=": create it with build")
        for batch in lines.batches(options.lines, what="adding"):
            for some in servers.per_command(batch):
                for answer in client.execute_command("BF.INSERT", key, "NOCREATE", "ITEMS", *some):
                    if isinstance(answer, Exception):
                        raise answer
                    new += bool(answer)
                    added += 1
    print(f"added {added:,} lines to {shown(key)}: {new:,} new, {added - new:,} already there")
    return 0
