"""`oxbloom follow`: keeps a file equal to a filter on a server."""

import argparse
import os
import time

from oxbloom._cli import arguments, store
from oxbloom._cli.errors import CommandError, say
from oxbloom._cli.text import shown


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "follow",
        help="keep a file equal to a filter on a server",
        description="Copies a filter on a server to a file, and then follows it: whenever items became new, the file "
        "is replaced, until the command is interrupted.",
    )
    parser.add_argument(
        "server", metavar="URL", help="redis://[user@]host:port[/db], as for --server"
    )
    parser.add_argument("key", metavar="KEY", type=os.fsencode)
    parser.add_argument(
        "file", metavar="FILE", type=os.fsencode, help="is overwritten if it holds a filter"
    )
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=arguments.duration,
        default="1s",
        help="the time between two questions, such as 500ms or 1m (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from oxbloom._cli import servers
    from oxbloom._live import Follower
    from oxbloom._sharded.errors import KeyTakenError

    def ask() -> None:
        try:
            with servers.errors(client, key):
                follower.ask()
        except KeyTakenError:
            raise CommandError(servers.no_bloom_filter(client, [key])) from None
        except (RuntimeError, ValueError) as error:
            raise CommandError(f"key {shown(key)}: {error}") from None

    key, interval = options.key, options.interval.total_seconds()
    file = store.File(options.file, replace=True)
    client = servers.connect_for_filter(options.server, "BF.CHANGES")
    follower, saved = Follower(client, key), 0
    with servers.errors(client, key):
        servers.check_exists(client, key)
    ask()
    while True:
        if follower.changes != saved:
            saved = follower.changes
            file.save(follower.copy)
        time.sleep(follower.wait(interval))
        before = str(follower.error)
        try:
            ask()
        except CommandError as error:
            follower.ended(error)
            if str(error) != before:
                say(f"oxbloom: {shown(key)}: {error}; trying again")
        else:
            follower.ended(None)
