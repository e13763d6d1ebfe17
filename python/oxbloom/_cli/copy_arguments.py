"""The arguments of `oxbloom copy`. The command itself is in `copy`, which needs redis-py."""

import argparse
import os
from pathlib import Path

from oxbloom._cli import arguments

DEFAULT_FILE = Path("oxbloom-copy.progress")
DEFAULT_PASSES = 3

DESCRIPTION = """\
Copies all Bloom filters and cuckoo filters of one server to another, over the network.

Use it if a server, such as a managed one, gives access neither to its RDB file nor to replication. Both servers need
RedisBloom or oxbloom, and each may be a cluster. Filters are read with BF.SCANDUMP and CF.SCANDUMP, and written with
BF.LOADCHUNK and CF.LOADCHUNK.

Each filter is loaded into a temporary key, gets its expiry, and is renamed in one step: no client sees an incomplete
filter.

* A copy has every item that was added before the copy started. A filter that changes while it is copied is copied
  again. After --passes attempts, it is reported. Stop the writers before the last run.
* After an interruption, the same command continues: it skips filters that the destination has, and continues an
  incomplete copy after its last chunk.
* Without --replace, no key of the destination is overwritten, except temporary keys.

Filters are equal if their headers are equal (sizes, layers, numbers of items). With --verify, the bits are also
compared. Keys that are created while the command runs may be missed: run it again. Never run it twice at the same time
for the same servers: both runs would use the same temporary keys.
"""

EPILOG = """\
URLs: redis://[user:password@]host:port[/db], or rediss:// for TLS.

Exit status: 0 if all filters were copied, 1 if some were not (they are listed), 2 after an error, 130 after an
interruption.
"""


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "copy",
        help="copy all filters of a server to another",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", metavar="SOURCE_URL")
    add("destination", metavar="DESTINATION_URL")
    add("--match", metavar="GLOB", type=os.fsencode, help="copy only keys that match this pattern")
    add("--replace", action="store_true", help="overwrite existing keys of the destination")
    add("--native", action="store_true",
        help="convert RedisBloom's cuckoo filters to oxbloom's own layout, with the same items")  # fmt: skip
    add("--source-prefix", metavar="PREFIX", default="",
        help="prefix of oxbloom's commands at the source, such as OX; only its own filters are then copied")  # fmt: skip
    add("--destination-prefix", metavar="PREFIX", default="",
        help="prefix of oxbloom's commands at the destination")  # fmt: skip
    add("--verify", action="store_true", help="read each copy back and compare its bits")
    add("--progress-file", metavar="FILE", type=Path, default=DEFAULT_FILE,
        help="file for the progress of an interrupted run (default: %(default)s)")  # fmt: skip
    add("--passes", metavar="N", type=arguments.count, default=DEFAULT_PASSES,
        help="maximum attempts to copy a filter that changes (default: %(default)s)")  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from oxbloom._cli import copy

    return copy.run(options)
