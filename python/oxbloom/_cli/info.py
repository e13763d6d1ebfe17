"""`oxbloom info`: describes a filter."""

import argparse
import json
import mmap
import os
from typing import Any

from oxbloom._cli import arguments, rdb, store
from oxbloom._cli.errors import ERROR, CommandError, say
from oxbloom._cli.text import shown, size, table
from oxbloom._oxbloom import BloomFilter

Facts = dict[str, Any]

# The fields of BF.INFO key ALL. Each has its name here, and a function that converts its value.
FIELDS: dict[str, tuple[str, Any]] = {
    "Layout": ("kind", bytes.decode),
    "Capacity": ("capacity", int),
    "Number of items inserted": ("count", int),
    "Number of items is an estimate": ("estimated", bool),
    "Error rate": ("error_rate", float),
    "Estimated false positive rate": ("false_positive_rate", float),
    "Fill ratio": ("fill", float),
    "Size": ("memory", int),
    "Expansion rate": ("growing", int),
    "Seed": ("seed", int),
    "Window": ("window", float),
    "Slices": ("slices", int),
    "Refresh": ("refresh", bool),
    "Rolling": ("rolling", bool),
}
# The fields of a part in BF.DEBUG, and their names here.
PART_FIELDS = {
    "bytes": "bytes",
    "blocks": "blocks_per_item",
    "hashes": "probes",
    "capacity": "capacity",
    "size": "count",
}


def add_to(commands: arguments.Subparsers) -> None:
    parser = commands.add_parser(
        "info",
        help="describe a filter",
        description="Describes the filter in a file or a key, or lists the filters in an RDB file. Only --json prints the seed, since anyone who knows it "
        "can craft collisions.",
    )
    arguments.add_filter(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON, with exact numbers; for an RDB file, a line for each filter",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.server is None and is_snapshot(options.filter):
        return of_snapshot(options)
    facts = of_file(options.filter) if options.server is None else of_key(options)
    print(json.dumps(facts, indent=2) if options.json else as_table(facts))
    return 0


def is_snapshot(path: bytes) -> bool:
    """Returns true if a file is an RDB file, which holds many keys."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return rdb.is_rdb(file.read(8))


def of_snapshot(options: argparse.Namespace) -> int:
    """Lists the filters in an RDB file."""
    rows = [["key", "kind", "items", "capacity", "error rate", "memory"]]
    status = 0
    with (
        open(options.filter, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        try:
            for key, filter in rdb.filters(data):
                name = "(compressed)" if key is None else shown(key)
                if not isinstance(filter, BloomFilter):
                    say(f"key {name}: {filter}")
                    status = 1
                elif options.json:
                    key_of = None if key is None else key.decode(errors="backslashreplace")
                    print(json.dumps({"key": key_of, **facts_of(filter)}))
                else:
                    numbers = [
                        f"{len(filter):,}",
                        f"{filter.capacity:,}",
                        number(filter.error_rate),
                    ]
                    kind = filter.kind or "RedisBloom's"
                    rows.append([name, kind, *numbers, size(filter.memory)])
        except rdb.MisleadingError as error:
            say(f"oxbloom: {shown(options.filter)}: {error}")
            status = ERROR
    if len(rows) > 1:
        print(table(rows, frozenset({2, 3, 4, 5})))
    elif not options.json and not status:
        say(f"{shown(options.filter)} has no filters")
    return status


def of_file(path: bytes) -> Facts:
    return facts_of(store.load_file(path))


def facts_of(filter: BloomFilter) -> Facts:
    facts: Facts = {**filter.info()}
    window = facts["window"]
    return facts | {"window": window and window.total_seconds()}


def of_key(options: argparse.Namespace) -> Facts:
    from oxbloom._cli import servers

    key = options.filter
    client = servers.connect_for_filter(options.server, "BF.INFO")
    try:
        with servers.errors(client, key):
            try:
                reply = client.execute_command("BF.INFO", key, "ALL")
            except servers.Rejection as error:
                if "invalid information" not in str(error).lower():
                    raise
                reply = client.execute_command("BF.INFO", key)  # RedisBloom has no ALL
            parts = client.execute_command("BF.DEBUG", key)[1:]
    except CommandError as error:
        if "not found" in str(error):
            raise CommandError(f"the server has no key {shown(key)}") from None
        raise
    known = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    facts: Facts = {}
    for field, (name, read) in FIELDS.items():
        value = known.get(field)
        facts[name] = None if value is None else read(value)
    facts["parts"] = [of_part(part.decode()) for part in parts]
    return facts


def of_part(text: str) -> Facts:
    known = dict(pair.split(":", 1) for pair in text.split())
    return {
        name: int(known[field]) if field in known else None for field, name in PART_FIELDS.items()
    }


def as_table(facts: Facts) -> str:
    rows = [
        ["kind", facts["kind"] or "RedisBloom's"],
        ["items", f"{facts['count']:,}{' (an estimate)' if facts['estimated'] else ''}"],
        ["capacity", f"{facts['capacity']:,}"],
        ["grows", "no" if facts["growing"] is None else f"yes, with expansion {facts['growing']}"],
        ["error rate", number(facts["error_rate"])],
        ["false positives now", number(facts["false_positive_rate"])],
        ["fill", number(facts["fill"])],
        ["memory", size(facts["memory"])],
        ["bits per item", bits_per_item(facts)],
    ]
    if facts["window"] is not None:
        rows.append(["window", f"{facts['window']:,.10g} seconds"])
    if facts["slices"] is not None:
        rows.append(["slices", str(facts["slices"])])
    rows += [[name, "yes"] for name in ("refresh", "rolling") if facts[name]]
    for index, part in enumerate(facts["parts"], 1):
        blocks = part["blocks_per_item"]
        where = "" if blocks is None else f" in {blocks} blocks"
        items = f"{part['count']:,} of {part['capacity']:,} items"
        rows.append(
            [f"part {index}", f"{items}, {size(part['bytes'])}, {part['probes']} probes{where}"]
        )
    return table([row for row in rows if row[1]])


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def bits_per_item(facts: Facts) -> str:
    return f"{8 * facts['memory'] / facts['count']:.2f}" if facts["count"] else ""
