"""Saves filters in keys of servers, with BF.LOADCHUNK, and loads them from there, with BF.SCANDUMP."""

import secrets
from collections.abc import Iterator
from contextlib import suppress

from oxbloom._clients import require_client
from oxbloom._oxbloom import BloomFilter
from oxbloom._slots import beside
from oxbloom._types import Progress, Server
from oxbloom._watching import Watch

HEADER = 0  # the cursor with which BF.SCANDUMP starts
PASSES = 3  # attempts to read a filter that changes while it is read
TEMPORARY_SECONDS = 3600  # the TTL of a temporary key, for the case that the save is killed


def save(
    filter: BloomFilter,
    client: Server,
    key: str | bytes,
    *,
    replace: bool = False,
    progress: Progress | None = None,
) -> None:
    """Saves a filter in a key. See BloomFilter.save_to."""
    require_client(client, "save_to")
    name = _encoded(key)
    if not replace and client.execute_command("EXISTS", name):
        raise KeyError(f"the key exists: {key!r}")
    temporary = beside(name, b":oxbloom-%s" % secrets.token_hex(8).encode())
    try:
        total, done = filter.memory, 0
        for cursor, data in filter.chunks():
            client.execute_command("BF.LOADCHUNK", temporary, cursor, data)
            client.execute_command("EXPIRE", temporary, TEMPORARY_SECONDS)
            done += len(data)
            if progress:
                progress(done, max(done, total))
        if not _header(client, temporary) == filter._header():
            raise RuntimeError("the filter was changed while it was saved")
        client.execute_command("PERSIST", temporary)
        if replace:
            client.execute_command("RENAME", temporary, name)
        elif not client.execute_command("RENAMENX", temporary, name):
            raise KeyError(f"the key exists: {key!r}")
    except BaseException:
        with suppress(Exception):
            client.execute_command("UNLINK", temporary)
        raise


def load(
    client: Server,
    key: str | bytes,
    *,
    max_memory: int | None = None,
    progress: Progress | None = None,
) -> BloomFilter:
    """Returns the filter in a key. See BloomFilter.load_from."""
    require_client(client, "load_from")
    name = _encoded(key)
    for _ in range(PASSES):
        with Watch(client, name) as watch:
            header = _header(client, name)
            if header is None:
                raise KeyError(f"no such key: {key!r}")
            failure = None
            try:
                chunks = _chunks(client, name, header, progress)
                filter = BloomFilter.from_chunks(chunks, max_memory=max_memory)
            except ValueError as error:
                failure = error
            if watch.ends_unchanged():
                if failure:
                    raise failure
                return filter
    raise RuntimeError("the filter changes again and again while it is loaded")


def _chunks(
    client: Server, key: bytes, header: bytes, progress: Progress | None
) -> Iterator[tuple[int, bytes]]:
    total = _size(client, key) if progress else 0
    cursor, data, done = 1, header, 0
    while cursor:
        yield cursor, data
        done += len(data)
        if progress:
            progress(done, max(done, total))
        cursor, data = _scandump(client, key, cursor)


def _header(client: Server, key: bytes) -> bytes | None:
    try:
        return _scandump(client, key, HEADER)[1]
    except Exception as error:  # the client's library has its own class of errors
        if "not found" in str(error):
            return None
        raise


def _scandump(client: Server, key: bytes, cursor: int) -> tuple[int, bytes]:
    # Without this option, clients with decode_responses would decode the data.
    reply = client.execute_command("BF.SCANDUMP", key, cursor, NEVER_DECODE=True)
    return int(reply[0]), reply[1]


def _size(client: Server, key: bytes) -> int:
    # The space keeps redis-py from parsing the reply: see _sharded.exchange.
    reply = client.execute_command("BF.INFO ", key, "SIZE")
    return int(next(iter(reply.values())) if isinstance(reply, dict) else reply[0])


def _encoded(key: str | bytes) -> bytes:
    if not isinstance(key, str | bytes):
        raise TypeError(f"the key must be str or bytes, not {type(key).__name__}")
    return key.encode() if isinstance(key, str) else key
