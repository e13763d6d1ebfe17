"""`oxbloom merge`: unites filters."""

import argparse
import os

from oxbloom._cli import arguments, store
from oxbloom._cli.errors import CommandError
from oxbloom._cli.text import shown, size


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "merge",
        help="unite filters",
        description="Unites filters that were built with the same options and the same seed. The result has the items "
        "of all of them.",
    )
    arguments.add_filter(parser)
    parser.add_argument(
        "sources", metavar="SOURCE", type=os.fsencode, nargs="+", help="the filters to unite"
    )
    parser.add_argument(
        "--replace", action="store_true", help="overwrite the filter in the file or the key"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    return merge_files(options) if options.server is None else merge_keys(options)


def merge_files(options: argparse.Namespace) -> int:
    destination = store.destination(options)
    first, *others = options.sources
    union = store.load_file(first)
    for source in others:
        try:
            union = union.union(store.load_file(source))
        except ValueError as error:
            raise CommandError(
                f"cannot unite {shown(first)} and {shown(source)}: {error}"
            ) from None
    destination.save(union)
    if not isinstance(destination, store.Output):
        print(
            f"merged {len(options.sources)} filters into {destination.name}; {size(union.memory)}"
        )
    return 0


def merge_keys(options: argparse.Namespace) -> int:
    from oxbloom._cli import servers

    client, key = servers.connect_for_filter(options.server, "BF.MERGE"), options.filter
    with servers.errors(client, *options.sources, key):
        for source in options.sources:
            servers.check_exists(client, source)
        if not options.replace and client.execute_command("EXISTS", key):
            raise store.key_exists(key)
        client.execute_command("BF.MERGE", key, len(options.sources), *options.sources, "REPLACE")
    print(f"merged {len(options.sources)} filters into {shown(key)}")
    return 0
