#!/usr/bin/env python3
"""Copies all Bloom filters of one server to another, over the network.

Use it if a server, such as a managed one, gives access neither to its RDB file nor to replication.
Both servers need RedisBloom or oxbloom. The tool reads filters with BF.SCANDUMP, and writes them
with BF.LOADCHUNK. Each side may be a cluster. The tool needs the Python packages redis and tqdm.

The tool loads each filter into a temporary key (`user:1` into `{user:1}:oxbloom-copy`), sets its
expiry, and renames it in one step: no client sees an incomplete filter. The tool guarantees:

* A copy has every item that was added before the copy started. If a filter changes while it is
  copied, the tool copies it again. After --passes attempts, it reports the filter. Stop the writers
  before the last run.
* After an interruption, the same command continues: it skips filters that the destination has, and
  continues an incomplete copy after its last chunk. If a server was restarted, it may have lost
  unsaved data, so the tool starts the incomplete copy from the beginning.
* Without --replace, the tool overwrites no key of the destination, except temporary keys.

The tool considers filters equal if their headers are equal (sizes, layers, numbers of items). With
--verify, it also compares the bits. It may miss keys that are created while it runs: run it again.
Never run two copies of the tool at the same time: they would share their temporary keys.

Exit status: 0 if all filters were copied, 1 if some were not (the tool lists them), 2 if the tool
could not run, 130 if it was interrupted.
"""

import argparse
import base64
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from redis import Redis, RedisError, ResponseError, exceptions
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.retry import Retry
from tqdm import tqdm

CLASSIC, NATIVE = "MBbloom--", "oxbloom--"  # data types: RedisBloom's, and oxbloom's own
NO_EXPIRY, NO_KEY = -1, -2  # what PEXPIRETIME and PTTL reply
HEADER = 1  # the cursor that comes with a filter's header
SUFFIX = b":oxbloom-copy"
SCAN_COUNT = 1000
INFO_BATCH = 500  # commands in a pipeline
SECONDS_BETWEEN_LINES = 10  # of progress, if there is no terminal
PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterDownError,
    exceptions.RedisClusterException,
    exceptions.TryAgainError,
)
WAIT = ExponentialBackoff(cap=10, base=0.5)
ATTEMPTS = 20  # with these waits: three minutes
TAKEN = "the destination has another key of this name"
CONTINUE = "the same command continues"

Client = Redis | RedisCluster
T = TypeVar("T")


class Fatal(Exception):
    """The reason why the tool cannot run."""


class NotCopied(Exception):
    """The reason why a filter was not copied."""


class Gone(Exception):
    """The source no longer has the filter."""


class Filter(NamedTuple):
    key: bytes
    size: int
    native: bool


class Record(NamedTuple):
    """A line of the progress file: the part of a filter that its temporary key has."""

    key: str  # base64
    header: str  # digest
    runs: list[str]  # the runs of the two servers
    cursor: int
    size: int


@dataclass
class Job:
    source: Client
    destination: Client
    options: argparse.Namespace
    file: TextIO
    record: Record | None  # of the run before
    bar: Any  # a tqdm, which has no types
    position: int = 0
    copied_bytes: int = 0
    next_line: float = time.monotonic() + SECONDS_BETWEEN_LINES


# --- Servers --------------------------------------------------------------------------------------


def connect(url: str, side: str, command: str) -> Client:
    settings: dict[str, Any] = dict(protocol=2, socket_timeout=60, socket_connect_timeout=10)
    settings["retry"] = Retry(NoBackoff(), 0)  # left to `insist`
    try:
        client: Client = Redis.from_url(url, **settings)
        client.ping()
        if is_cluster(client):
            client.close()
            client = RedisCluster.from_url(url, **settings)
    except (RedisError, exceptions.RedisClusterException, ValueError, TypeError) as error:
        raise Fatal(f"cannot connect to the {side}: {error}") from None
    try:
        client.execute_command(command, SUFFIX)
    except RedisError as error:  # that an argument is missing, if all is well
        if "wrong number of arguments" not in str(error).lower():
            raise Fatal(f"the {side} rejects {command}: {error}") from None
    return client


def is_cluster(client: Client) -> bool:
    try:
        return client.execute_command("INFO", "cluster").get("cluster_enabled") == 1
    except ResponseError:  # not permitted
        return False


def insist(do: Callable[[], T]) -> T:
    """Calls `do` again as long as the connection is lost."""

    def tell(error: Exception, failures: int) -> None:
        if failures == 1:
            say(f"connection lost ({error}), trying again")

    try:
        return Retry(WAIT, ATTEMPTS, PASSING).call_with_retry(do, tell, with_failure_count=True)
    except PASSING as error:
        raise Fatal(f"connection lost: {error}; {CONTINUE}") from None


def ask(client: Client, *command: bytes | str | int) -> Any:
    return insist(lambda: client.execute_command(*command))


def ask_node(client: Client, key: bytes, *command: str) -> Any:
    """Sends a command without a key to the node that has `key`."""
    if isinstance(client, Redis):
        return ask(client, *command)
    return insist(
        lambda: client.execute_command(*command, target_nodes=client.get_node_from_key(key))
    )


def runs(job: Job, key: bytes) -> list[str]:
    """Identifies the runs of both servers' processes: these change when one is restarted."""
    sides = (job.source, job.destination)
    return [str(ask_node(side, key, "INFO", "server").get("run_id")) for side in sides]


# --- Filters --------------------------------------------------------------------------------------


def find_filters(source: Client, match: bytes | None) -> list[Filter]:
    found = []
    for kind in (CLASSIC, NATIVE):
        keys = sorted(scan(source, match, kind))
        for start in range(0, len(keys), INFO_BATCH):
            batch = keys[start : start + INFO_BATCH]
            for key, size in zip(batch, sizes(source, batch), strict=True):
                found.append(Filter(key, size, kind == NATIVE))
    return found


def scan(source: Client, match: bytes | None, kind: str) -> set[bytes]:
    try:
        return insist(lambda: set(source.scan_iter(match=match, count=SCAN_COUNT, _type=kind)))
    except ResponseError as error:  # some servers reject a type that none of their modules has
        if "unknown type" in str(error).lower():
            return set()
        raise


def sizes(source: Client, keys: list[bytes]) -> list[int]:
    def replies() -> list[Any]:
        with source.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.execute_command("BF.INFO", key, "SIZE")
            return pipeline.execute(raise_on_error=False)

    return [reply[0] if isinstance(reply, list) else 0 for reply in insist(replies)]


def header_of(client: Client, key: bytes) -> bytes | None:
    """Returns the header of a filter; None without the key, b"" if it has another type."""
    try:
        return ask(client, "BF.SCANDUMP", key, 0)[1]
    except ResponseError as error:
        if "not found" in str(error):
            return None
        if str(error).startswith("WRONGTYPE"):
            return b""
        raise


def chunks(client: Client, key: bytes, cursor: int = HEADER) -> Iterator[tuple[int, bytes]]:
    """Yields the chunks after a cursor, each with its own cursor."""
    while True:
        cursor, data = ask(client, "BF.SCANDUMP", key, cursor)
        if cursor == 0:
            return
        yield cursor, data


def expiry_of(source: Client, key: bytes) -> int:
    """Returns when a key expires, in Unix milliseconds, or NO_EXPIRY or NO_KEY."""
    try:
        return ask(source, "PEXPIRETIME", key)
    except ResponseError:  # before Redis 7.0
        left = ask(source, "PTTL", key)
        seconds, microseconds = ask_node(source, key, "TIME")
        return left if left < 0 else left + seconds * 1000 + microseconds // 1000


def temporary_name(key: bytes) -> bytes:
    """Returns the temporary name of a key, which is in the same slot of a cluster."""
    slot = key_slot(key)
    for name in (key + SUFFIX, b"{" + key + b"}" + SUFFIX):
        if key_slot(name) == slot:
            return name
    # A key with braces of its own, such as `}{`, gets a number of the same slot as a hash tag.
    return b"{%d}" % numbers_by_slot()[slot] + key + SUFFIX


@functools.cache
def numbers_by_slot() -> dict[int, int]:
    return {key_slot(b"%d" % number): number for number in range(1 << 18)}  # these reach all slots


# --- Copying --------------------------------------------------------------------------------------


def copy_filter(job: Job, filter: Filter) -> bool:
    """Copies a filter. Returns False if the destination already has it."""
    for _ in range(job.options.passes):
        header = header_of(job.source, filter.key)
        if not header:
            raise Gone
        present = header_of(job.destination, filter.key)
        if present == header and (not job.options.verify or same_bits(job, filter.key, filter.key)):
            return False
        if present is not None and not job.options.replace:
            raise NotCopied(TAKEN)
        if copy_once(job, filter):
            return True
    raise NotCopied("changed while it was copied")


def copy_once(job: Job, filter: Filter) -> bool:
    """Copies a filter. Returns False if the filter or a server changed in between."""
    key, temporary = filter.key, temporary_name(filter.key)
    before, header = runs(job, key), header_of(job.source, key)
    if not header:
        return False
    failure: Exception | None = None
    try:
        load(job, filter, temporary, header, before)
        if header_of(job.destination, temporary) != header:
            failure = NotCopied("the copy is incomplete")
        elif job.options.verify and not same_bits(job, key, temporary):
            failure = NotCopied("the copy differs from the filter")
    except ResponseError as error:
        failure = error
    expiry = expiry_of(job.source, key)
    if header_of(job.source, key) != header or runs(job, key) != before:
        return False
    if failure and filter.native and "bad data" in str(failure):
        raise NotCopied("native layout: cannot be copied to RedisBloom")
    if failure:
        raise failure
    return publish(job, key, temporary, expiry)


def load(job: Job, filter: Filter, temporary: bytes, header: bytes, between: list[str]) -> None:
    """Loads a filter, or its missing chunks, into its temporary key."""

    def start_over() -> None:  # a header is rejected if the key has a filter
        job.destination.execute_command("UNLINK", temporary)
        job.destination.execute_command("BF.LOADCHUNK", temporary, HEADER, header)

    record = Record(encoded(filter.key), hashlib.sha256(header).hexdigest(), between, HEADER, 0)
    earlier, job.record = job.record, None
    if earlier and earlier[:3] == record[:3] and header_of(job.destination, temporary):
        record = earlier
        say(f"{shown(filter.key)}: continuing after {megabytes(record.size)} MB")
    else:
        insist(start_over)
    for cursor, data in chunks(job.source, filter.key, record.cursor):
        ask(job.destination, "BF.LOADCHUNK", temporary, cursor, data)
        record = record._replace(cursor=cursor, size=record.size + len(data))
        print(json.dumps(record._asdict()), file=job.file, flush=True)
        job.copied_bytes += len(data)
        advance(job, len(data))


def same_bits(job: Job, key: bytes, copy: bytes) -> bool:
    ours, theirs = hashlib.sha256(), hashlib.sha256()
    for _, data in chunks(job.source, key):
        ours.update(data)
        advance(job, len(data))
    for _, data in chunks(job.destination, copy):
        theirs.update(data)
    return ours.digest() == theirs.digest()


def publish(job: Job, key: bytes, temporary: bytes, expiry: int) -> bool:
    """Sets the expiration and the name of a copy, unless the connection is lost.

    Does not retry: a destination that comes back may have lost a part of the copy.
    """
    expire = ("PERSIST",) if expiry == NO_EXPIRY else ("PEXPIREAT", expiry)
    rename = "RENAME" if job.options.replace else "RENAMENX"
    try:
        job.destination.execute_command(expire[0], temporary, *expire[1:])
        renamed = job.destination.execute_command(rename, temporary, key)
    except PASSING:
        return False
    except ResponseError as error:
        if expiry != NO_EXPIRY and "no such key" in str(error):
            raise Gone from None
        raise
    if not renamed:
        raise NotCopied(TAKEN)
    return True


def copy_all(job: Job, filters: list[Filter]) -> tuple[int, int, list[str]]:
    """Returns the numbers of copied and of skipped filters, and the reasons for the others."""
    copied, skipped, failures, end = 0, 0, [], 0
    for filter in filters:
        try:
            if copy_filter(job, filter):
                copied += 1
            else:
                skipped += 1
        except (Gone, NotCopied, ResponseError) as error:
            with suppress(ResponseError):
                ask(job.destination, "UNLINK", temporary_name(filter.key))
            if isinstance(error, Gone):
                say(f"{shown(filter.key)}: the source no longer has it")
            else:
                failures.append(f"{shown(filter.key)}: {error}")
        job.file.truncate(0)  # a finished copy is recognized at the destination
        end += planned_bytes(job.options, filter)
        advance(job, end - job.position)
    return copied, skipped, failures


# --- Progress, for the user and for the next run --------------------------------------------------


def last_record(path: Path) -> Record | None:
    lines = path.read_bytes().splitlines() if path.exists() else []
    records = []
    for line in lines:
        with suppress(ValueError, TypeError):  # the last may be cut short
            records.append(Record(**json.loads(line)))
    if lines and not records:
        raise Fatal(f"{path} is not a progress file of this tool")
    return records[-1] if records else None


def planned_bytes(options: argparse.Namespace, filter: Filter) -> int:
    return filter.size * (2 if options.verify else 1)


def advance(job: Job, size: int) -> None:
    job.position += size
    job.bar.update(size)
    if job.bar.disable and time.monotonic() > job.next_line:
        say(f"{megabytes(job.position)} of {megabytes(job.bar.total)} MB")
        job.next_line = time.monotonic() + SECONDS_BETWEEN_LINES


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


def shown(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def say(line: str) -> None:
    tqdm.write(line, file=sys.stderr)


# --- The command ----------------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Copies all Bloom filters of one server to another.",
        epilog="URLs: redis://[user:password@]host:port[/db], or rediss:// for TLS.",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE_URL")
    add("destination", metavar="DESTINATION_URL")
    add("--match", metavar="GLOB", type=os.fsencode, help="copy only keys that match this pattern")
    add("--replace", action="store_true", help="overwrite existing keys of the destination")
    add("--verify", action="store_true", help="read each copy back and compare its bits")
    add("--progress-file", metavar="FILE", type=Path, default="copy_filters.progress",
        help="file for the progress of an interrupted run (default: %(default)s)")  # fmt: skip
    add("--passes", metavar="N", type=positive, default=3,
        help="maximum attempts to copy a filter that changes (default: %(default)s)")  # fmt: skip
    return parser.parse_args()


def positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def run(options: argparse.Namespace) -> int:
    source = connect(options.source, "source", "BF.SCANDUMP")
    destination = connect(options.destination, "destination", "BF.LOADCHUNK")
    path = options.progress_file
    record = last_record(path)
    filters = find_filters(source, options.match)
    filters.sort(key=lambda filter: record is None or encoded(filter.key) != record.key)
    say(f"{len(filters)} filters, {megabytes(sum(filter.size for filter in filters))} MB")
    total = sum(planned_bytes(options, filter) for filter in filters)
    with path.open("a") as file, tqdm(total=total, unit="B", unit_scale=True, disable=None) as bar:
        job = Job(source, destination, options, file, record, bar)
        copied, skipped, failures = copy_all(job, filters)
    path.unlink()
    for failure in failures:
        say(failure)
    print(
        f"copied {copied} filters, {job.copied_bytes} bytes, skipped {skipped} that were there, "
        f"{len(failures)} not copied"
    )
    return 1 if failures else 0


def main() -> int:
    try:
        return run(parse_arguments())
    except (Fatal, RedisError, OSError) as error:
        say(f"copy_filters: {error}")
        return 2
    except KeyboardInterrupt:
        say(f"interrupted; {CONTINUE}")
        return 130


if __name__ == "__main__":
    sys.exit(main())
