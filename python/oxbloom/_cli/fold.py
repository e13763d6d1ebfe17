"""`oxbloom fold`: shrinks a filter."""

import argparse

from oxbloom._cli import arguments, store
from oxbloom._cli.errors import CommandError
from oxbloom._cli.text import shown


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "fold",
        help="shrink a filter that was built too large",
        description="Shrinks a filter that was built too large, without its items. It keeps its error rate.",
    )
    arguments.add_filter(parser)
    parser.add_argument(
        "--capacity",
        metavar="N",
        type=arguments.count,
        help="leave room for this many items. The default is the number that the filter has",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    factor = fold_file(options) if options.server is None else fold_key(options)
    if options.server is not None or options.filter != store.STANDARD:
        name = shown(options.filter)
        print(f"{name} is now {factor} times smaller" if factor > 1 else f"{name} is unchanged")
    return 0


def fold_file(options: argparse.Namespace) -> int:
    filter, destination = store.load_to_replace(options.filter)
    try:
        factor = filter.fold(options.capacity or 0)
    except ValueError as error:
        raise CommandError(f"cannot fold {shown(options.filter)}: {error}") from None
    destination.save(filter)
    return factor


def fold_key(options: argparse.Namespace) -> int:
    from oxbloom._cli import servers

    client, key = servers.connect_for_filter(options.server, "BF.FOLD"), options.filter
    room = () if options.capacity is None else ("CAPACITY", options.capacity)
    with servers.errors(client, key):
        servers.check_exists(client, key)
        return int(client.execute_command("BF.FOLD", key, *room))
