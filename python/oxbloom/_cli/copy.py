"""`oxbloom copy`: copies all filters of a server or a cluster to another. `copy_arguments` describes its guarantees.

Filters count as equal if their headers are equal. After a restart of a server, an incomplete copy starts from the
beginning, since the server may have lost unsaved data.
"""

import argparse
import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from oxbloom._extras import require

require("redis", "redis")
# isort: split
from redis import Redis, RedisError, ResponseError, exceptions
from redis.backoff import ExponentialBackoff
from redis.retry import Retry
from tqdm import tqdm

from oxbloom import BloomFilter
from oxbloom._cli.data_types import DATA_TYPES, DataType
from oxbloom._cli.errors import CommandError, reason, say
from oxbloom._cli.servers import Client, connect
from oxbloom._cli.text import shown
from oxbloom._sharded.exchange import prefixed
from oxbloom._slots import beside
from oxbloom._watching import Watch

NO_EXPIRY, NO_KEY = -1, -2  # replies of PEXPIRETIME and PTTL
START = b'{"key": "'  # of each line of the progress file
HEADER = 1  # the cursor of a filter's header
SUFFIX = b":oxbloom-copy"
SCAN_COUNT = 1000
INFO_BATCH = 500  # commands in a pipeline
SECONDS_BETWEEN_LINES = 10  # lines of progress, without a terminal
PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterDownError,
    exceptions.RedisClusterException,
    exceptions.TryAgainError,
)
WAIT = ExponentialBackoff(cap=10, base=0.5)
ATTEMPTS = 20  # these take about three minutes
TAKEN = "the destination has another key of this name"
CONTINUE = "the same command continues"

T = TypeVar("T")


class NotCopiedError(Exception):
    """The reason why a filter was not copied."""


class GoneError(Exception):
    """The source no longer has the filter."""


class Filter(NamedTuple):
    key: bytes
    size: int
    kind: DataType


class Record(NamedTuple):
    """A line of the progress file: how much of a filter is in its temporary key."""

    key: str  # base64
    header: str  # a digest
    runs: list[str]  # the run IDs of both servers
    cursor: int
    size: int


@dataclass(frozen=True)
class Side:
    """A server or cluster, and the prefix with which it loaded the module."""

    client: Client
    prefix: str

    def send(self, *command: bytes | str | int) -> Any:
        return self.client.execute_command(*prefixed(self.prefix, command))


@dataclass
class Job:
    source: Side
    destination: Side
    options: argparse.Namespace
    file: TextIO
    record: Record | None  # the last one of the previous run
    bar: Any  # a tqdm, which has no type annotations
    position: int = 0
    copied_bytes: int = 0
    next_line: float = time.monotonic() + SECONDS_BETWEEN_LINES


# --- Servers --------------------------------------------------------------------------------------


def insist(do: Callable[[], T]) -> T:
    """Calls `do`, and repeats it while the connection is lost."""

    said = False

    def tell(error: Exception) -> None:
        nonlocal said
        if not said:
            said = True
            say(f"connection lost ({error}), trying again")

    try:
        return Retry(WAIT, ATTEMPTS, PASSING).call_with_retry(do, tell)
    except PASSING as error:
        raise CommandError(f"connection lost: {error}; {CONTINUE}") from None


def ask(side: Side, *command: bytes | str | int) -> Any:
    return insist(lambda: side.send(*command))


def ask_node(side: Side, key: bytes, *command: str) -> Any:
    """Sends a command that has no key to the node that has `key`."""
    client = side.client
    if isinstance(client, Redis):
        return ask(side, *command)
    return insist(
        lambda: client.execute_command(*command, target_nodes=client.get_node_from_key(key))
    )


def runs(job: Job, key: bytes) -> list[str]:
    """Returns the run IDs of both servers. A restarted server has a new one."""
    sides = (job.source, job.destination)
    return [str(ask_node(side, key, "INFO", "server").get("run_id")) for side in sides]


# --- Filters --------------------------------------------------------------------------------------


def find_filters(source: Side, match: bytes | None) -> list[Filter]:
    found = []
    for kind in DATA_TYPES:
        # With a prefix, these types belong to another module of the server.
        if source.prefix and kind.is_foreign:
            continue
        keys = sorted(scan(source.client, match, kind.name))
        for start in range(0, len(keys), INFO_BATCH):
            batch = keys[start : start + INFO_BATCH]
            for key, size in zip(batch, sizes(source, batch, kind), strict=True):
                found.append(Filter(key, size, kind))
    return found


def scan(source: Client, match: bytes | None, kind: str) -> set[bytes]:
    try:
        return insist(lambda: set(source.scan_iter(match=match, count=SCAN_COUNT, _type=kind)))
    except ResponseError as error:  # some servers reject a type that none of their modules has
        if "unknown type" in str(error).lower():
            return set()
        raise


def sizes(source: Side, keys: list[bytes], kind: DataType) -> list[int]:
    def replies() -> list[Any]:
        with source.client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.execute_command(*prefixed(source.prefix, (kind.commands + "INFO", key)))
            replies: list[Any] = pipeline.execute(raise_on_error=False)
            return replies

    return [figures(reply).get(b"Size", 0) for reply in insist(replies)]


def figures(reply: Any) -> dict[bytes, int]:
    """Returns the reply to BF.INFO or CF.INFO as a dictionary, which is empty for an error."""
    return dict(zip(reply[::2], reply[1::2], strict=True)) if isinstance(reply, list) else {}


def scan_dump(side: Side, key: bytes, kind: DataType, cursor: int) -> tuple[int, bytes | None]:
    """Returns the chunk after a cursor, and its cursor.

    valkey-bloom has no such command: the chunks of its filters are made from a DUMP payload.
    """
    try:
        cursor, data = ask(side, kind.commands + "SCANDUMP", key, cursor)
        return cursor, data
    except ResponseError as error:
        if kind.layout != "valkey" or "unknown command" not in str(error).lower():
            raise
    payload = ask(side, "DUMP", key)
    if payload is None:
        raise ResponseError("not found")
    try:
        filter = BloomFilter.load(payload)
    except (ValueError, MemoryError) as error:
        raise NotCopiedError(f"cannot be read: {error}") from None
    later = (chunk for chunk in filter.chunks() if chunk[0] > cursor)
    return next(later, (0, b""))


def header_of(side: Side, key: bytes, kind: DataType) -> bytes | None:
    """Returns the header of a filter, None if there is no key, or b"" if it has another type."""
    try:
        _, header = scan_dump(side, key, kind, 0)
        if header is None:
            raise NotCopiedError("empty, so RedisBloom does not dump it: create it with CF.RESERVE")
        return header
    except ResponseError as error:
        if "not found" in str(error):
            return None
        if str(error).startswith("WRONGTYPE"):
            return b""
        raise


def chunks(
    side: Side, key: bytes, kind: DataType, cursor: int = HEADER
) -> Iterator[tuple[int, bytes]]:
    """Yields the chunks after a cursor, each with its own cursor."""
    while True:
        cursor, data = scan_dump(side, key, kind, cursor)
        if cursor == 0 or data is None:
            return
        yield cursor, data


def expiry_of(source: Side, key: bytes) -> int:
    """Returns the expiry of a key in Unix milliseconds, NO_EXPIRY or NO_KEY."""
    try:
        return int(ask(source, "PEXPIRETIME", key))
    except ResponseError:  # before Redis 7.0
        left = int(ask(source, "PTTL", key))
        seconds, microseconds = ask_node(source, key, "TIME")
        return left if left < 0 else left + int(seconds) * 1000 + int(microseconds) // 1000


# --- Copying --------------------------------------------------------------------------------------


def copy_filter(job: Job, filter: Filter) -> bool:
    """Copies a filter. Returns False if the destination already has it."""
    for _ in range(job.options.passes):
        header = header_of(job.source, filter.key, filter.kind)
        if not header:
            raise GoneError
        present = header_of(job.destination, filter.key, filter.kind)
        if converts(job, filter) and present and same_figures(job, filter):
            return False
        if present == header and (not job.options.verify or same_bits(job, filter, filter.key)):
            return False
        if present is not None and not job.options.replace:
            raise NotCopiedError(TAKEN)
        if copy_once(job, filter):
            return True
    raise NotCopiedError("changed while it was copied")


def copy_once(job: Job, filter: Filter) -> bool:
    """Tries to copy a filter. Returns False if it changed, or if a server was restarted."""
    key, temporary = filter.key, beside(filter.key, SUFFIX)
    failure: Exception | None = None
    with insist(lambda: Watch(job.source.client, key)) as watch:
        before, header = runs(job, key), header_of(job.source, key, filter.kind)
        if not header:
            return False
        try:
            if not load_and_compare(job, filter, temporary, header, before):
                return False
        except (NotCopiedError, ResponseError) as error:
            failure = error
        expiry = expiry_of(job.source, key)
        if not watch.ends_unchanged() or runs(job, key) != before:
            return False
    if failure and filter.kind.layout != "classic" and is_bad_header(failure):
        raise NotCopiedError(f"{filter.kind.layout} layout: cannot be copied to RedisBloom")
    if failure:
        raise failure
    return publish(job, key, temporary, expiry)


def load_and_compare(
    job: Job, filter: Filter, temporary: bytes, header: bytes, run_ids: list[str]
) -> bool:
    """Loads a filter into its temporary key. Returns False if it changed since an earlier run."""
    continued = load(job, filter, temporary, header, run_ids)
    if header_of(job.destination, temporary, filter.kind) != header:
        raise NotCopiedError("the copy is incomplete")
    # The filter was not watched before the copy was continued.
    if (continued or job.options.verify) and not same_bits(job, filter, temporary):
        if continued:
            return False
        raise NotCopiedError("the copy differs from the filter")
    if converts(job, filter):
        ask(job.destination, "CF.CONVERT", temporary)
    return True


def is_bad_header(error: Exception) -> bool:
    return any(text in str(error) for text in ("bad data", "Invalid header"))


def converts(job: Job, filter: Filter) -> bool:
    is_theirs = filter.kind.commands == "CF." and filter.kind.layout == "classic"
    return is_theirs and job.options.native


def load(job: Job, filter: Filter, temporary: bytes, header: bytes, run_ids: list[str]) -> bool:
    """Loads a filter into its temporary key. Returns True if only its missing chunks were loaded."""
    loadchunk = filter.kind.commands + "LOADCHUNK"

    def start_over() -> None:  # an existing key rejects a header
        job.destination.send("UNLINK", temporary)
        job.destination.send(loadchunk, temporary, HEADER, header)

    record = Record(encoded(filter.key), hashlib.sha256(header).hexdigest(), run_ids, HEADER, 0)
    earlier, job.record = job.record, None
    if earlier and earlier[:3] == record[:3] and header_of(job.destination, temporary, filter.kind):
        record = earlier
        say(f"{shown(filter.key)}: continuing after {megabytes(record.size)} MB")
    else:
        earlier = None
        insist(start_over)
    for cursor, data in chunks(job.source, filter.key, filter.kind, record.cursor):
        ask(job.destination, loadchunk, temporary, cursor, data)
        record = record._replace(cursor=cursor, size=record.size + len(data))
        print(json.dumps(record._asdict()), file=job.file, flush=True)
        job.copied_bytes += len(data)
        advance(job, len(data))
    return earlier is not None


def same_bits(job: Job, filter: Filter, copy: bytes) -> bool:
    ours, theirs = hashlib.sha256(), hashlib.sha256()
    for _, data in chunks(job.source, filter.key, filter.kind):
        ours.update(data)
        advance(job, len(data))
    for _, data in chunks(job.destination, copy, filter.kind):
        theirs.update(data)
    return ours.digest() == theirs.digest()


def same_figures(job: Job, filter: Filter) -> bool:
    """Tells whether a converted copy has the figures of its filter, except its size and growth."""
    ours, theirs = (
        figures(ask(side, "CF.INFO", filter.key)) for side in (job.source, job.destination)
    )
    names = ours.keys() - {b"Size", b"Number of filters", b"Expansion rate"}
    return all(ours[name] == theirs.get(name) for name in names)


def publish(job: Job, key: bytes, temporary: bytes, expiry: int) -> bool:
    """Sets the expiry of a copy, and renames it. Returns False if the connection is lost.

    Does not retry, since a restarted destination may have lost a part of the copy.
    """
    expire = ("PERSIST",) if expiry == NO_EXPIRY else ("PEXPIREAT", expiry)
    rename = "RENAME" if job.options.replace else "RENAMENX"
    try:
        job.destination.send(expire[0], temporary, *expire[1:])
        renamed = job.destination.send(rename, temporary, key)
    except PASSING:
        return False
    except ResponseError as error:
        if expiry != NO_EXPIRY and "no such key" in str(error):
            raise GoneError from None
        raise
    if not renamed:
        raise NotCopiedError(TAKEN)
    return True


def copy_all(job: Job, filters: list[Filter]) -> tuple[int, int, list[str]]:
    """Copies filters. Returns how many were copied and skipped, and why the others were not."""
    copied, skipped, failures, end = 0, 0, [], 0
    for filter in filters:
        try:
            if copy_filter(job, filter):
                copied += 1
            else:
                skipped += 1
        except (GoneError, NotCopiedError, ResponseError) as error:
            with suppress(ResponseError):
                ask(job.destination, "UNLINK", beside(filter.key, SUFFIX))
            if isinstance(error, GoneError):
                say(f"{shown(filter.key)}: the source no longer has it")
            else:
                failures.append(f"{shown(filter.key)}: {error}")
        job.file.truncate(0)  # the next run recognizes the finished copy by its header
        end += planned_bytes(job.options, filter)
        advance(job, end - job.position)
    return copied, skipped, failures


# --- Progress, for the user and for the next run --------------------------------------------------


def last_record(path: Path) -> Record | None:
    data = path.read_bytes() if path.exists() else b""
    records = []
    for line in data.splitlines():
        with suppress(ValueError, TypeError):  # the last line may be incomplete
            records.append(Record(**json.loads(line)))
    if not (records or data.startswith(START) or START.startswith(data)):
        raise CommandError(f"{path} is not a progress file of this command")
    return records[-1] if records else None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tells errors of the progress file, the only one that is written, from those of the output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"cannot write {path}: {reason(error)}; {CONTINUE}") from None


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


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"


# --- The command ----------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> int:
    """Runs the command, and returns its exit status."""
    try:
        return copy(options)
    except RedisError as error:
        raise CommandError(str(error)) from None
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:
            interrupt.args = (f"; {CONTINUE}",)
        raise


def connected(url: str, prefix: str, command: str, name: str) -> Side:
    """Returns a side that has `command`. `name` is its name in messages."""
    return Side(connect(url, prefix + command, name=name), prefix)


def copy(options: argparse.Namespace) -> int:
    source = connected(options.source, options.source_prefix, "BF.INFO", "source")
    destination = connected(
        options.destination, options.destination_prefix, "BF.LOADCHUNK", "destination"
    )
    path = options.progress_file
    record = last_record(path)
    filters = find_filters(source, options.match)
    filters.sort(key=lambda filter: record is None or encoded(filter.key) != record.key)
    say(f"{len(filters)} filters, {megabytes(sum(filter.size for filter in filters))} MB")
    total = sum(planned_bytes(options, filter) for filter in filters)
    with (
        writing(path),
        path.open("a") as file,
        tqdm(total=total, unit="B", unit_scale=True, disable=None) as bar,
    ):
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
