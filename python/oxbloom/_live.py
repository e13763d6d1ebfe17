"""Copies of filters on servers, in this process, that stay current: `LiveFilter`, and `AsyncLiveFilter` for asyncio.

A copy begins with the header of the filter and a cursor (BF.CHANGES), and its chunks (BF.SCANDUMP). Then, BF.CHANGES
returns what became new since the cursor. If the server no longer has all of that, it says so, and the filter is copied
again: until the new copy is complete, the old one answers.

As in `_sharded`, what is sent is a conversation: a generator that yields commands, and gets the replies.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from oxbloom._clients import require_client
from oxbloom._oxbloom import BloomFilter
from oxbloom._sharded.commands import Conversation
from oxbloom._sharded.errors import FilterError, KeyTakenError, ModuleMissingError
from oxbloom._sharded.exchange import Command
from oxbloom._sharded.filter import run, run_async

if TYPE_CHECKING:
    from oxbloom._oxbloom import _Items
    from oxbloom._sharded.exchange import AsyncClient, Client

C = TypeVar("C", "Client", "AsyncClient")
Item = str | bytes | bytearray | memoryview

INTERVAL = 0.1  # seconds between two questions
LONGEST_WAIT = 5.0  # seconds until a question that failed is repeated
MOST_CHANGES = 4096  # in a reply; if there are as many, there may be more
CHANGE_BYTES = 16
PASSES = 5  # attempts to copy a filter that changes while it is copied


class StaleCopyError(FilterError):
    """Raised by a look-up if the copy is older than `max_lag`."""


class _ChangedError(Exception):
    """The filter on the server is another one now: copy it again."""


class Follower:
    """A copy, and the conversations that keep it current."""

    def __init__(self, client: Any, key: str | bytes, prefix: str = "") -> None:
        self.client = client
        self.key = key
        self.prefix = prefix
        self.copy = self._empty()
        self.synced_at = 0.0
        self.synced = time.monotonic()
        self.copies = 0
        self.changes = 0
        """Grows whenever the copy changes."""
        self.failures = 0
        self.error: Exception | None = None
        self._cursor: bytes | None = None

    @staticmethod
    def _empty() -> BloomFilter:
        return BloomFilter(1, 0.5)

    def round(self) -> Conversation[None]:
        """Asks for all changes. Copies the filter first if need be."""
        for _ in range(PASSES):
            now = time.time(), time.monotonic()
            try:
                if self._cursor is None:
                    yield from self._copy()
                    now = (time.time(), time.monotonic()) if self._cursor else now
                while self._cursor is not None:
                    [reply] = yield [self._changes(self._cursor)]
                    if self._insert(reply) < MOST_CHANGES:
                        break
                    now = time.time(), time.monotonic()
            except _ChangedError:
                self._cursor = None
            else:
                self.synced_at, self.synced = now
                return
        raise RuntimeError("the filter changes again and again while it is copied")

    def _copy(self) -> Conversation[None]:
        [reply] = yield [("BF.CHANGES", self.key)]
        if _says(reply, "not found"):
            self.changes += len(self.copy)
            self.copy = self._empty()
            return
        cursor, header = self._checked(reply)
        copy = BloomFilter._from_header(header)
        # What is read before the last chunk is inserted after it: the chunk may have some of it already.
        iterator, changes = 1, []
        while iterator:
            chunk, reply = yield [("BF.SCANDUMP", self.key, iterator), self._changes(cursor)]
            cursor, hashes = self._checked(reply)
            changes.append(hashes)
            iterator, data = self._checked(chunk)
            if iterator:
                try:
                    copy._load_chunk(iterator, data)
                except ValueError:  # it got another layer
                    raise _ChangedError from None
        for hashes in changes:
            copy._insert_changes(hashes)
        # The copy is used only when the server has confirmed that it is one of a single filter.
        while True:
            [reply] = yield [self._changes(cursor)]
            cursor, hashes = self._checked(reply)
            copy._insert_changes(hashes)
            if len(hashes) < MOST_CHANGES * CHANGE_BYTES:
                break
        self._cursor, self.copy = cursor, copy
        self.copies += 1
        self.changes += 1

    def _changes(self, cursor: bytes) -> Command:
        return ("BF.CHANGES", self.key, "SINCE", cursor)

    def _insert(self, reply: Any) -> int:
        """Inserts the changes of a reply. Returns their number."""
        cursor, hashes = self._checked(reply)
        self._cursor = None  # should the insertion fail
        self.copy._insert_changes(hashes)
        self._cursor = cursor
        count = len(hashes) // CHANGE_BYTES
        self.changes += count
        return count

    def _checked(self, reply: Any) -> Any:
        if _says(reply, "changes are gone") or _says(reply, "not found"):
            raise _ChangedError
        if _says(reply, "unknown command"):
            raise ModuleMissingError(self.prefix) from reply
        if _says(reply, "WRONGTYPE"):
            key = self.key if isinstance(self.key, str) else self.key.decode(errors="replace")
            raise KeyTakenError(key) from reply
        if isinstance(reply, Exception):
            raise reply
        return reply

    def ended(self, error: Exception | None) -> None:
        """Records how a round ended."""
        self.error = error
        self.failures = self.failures + 1 if error else 0

    def wait(self, interval: float) -> float:
        """Returns the time until the next round, in seconds."""
        # Without a limit, a thousand doublings would overflow.
        doubled = interval * 2.0 ** min(self.failures, 60)
        return max(interval, min(doubled, LONGEST_WAIT))

    def ask(self) -> None:
        run(self.client, self.round(), self.prefix)

    async def ask_async(self) -> None:
        await run_async(self.client, self.round(), self.prefix)


def _says(reply: object, words: str) -> bool:
    return isinstance(reply, Exception) and words in str(reply)


class _Live(Generic[C]):
    """The common part of both classes, which sends nothing."""

    _asynchronous = False

    def __init__(
        self,
        client: C,
        key: str | bytes,
        *,
        interval: float = INTERVAL,
        max_lag: float | None = None,
        prefix: str = "",
    ) -> None:
        """client: a client of redis-py or valkey-py, for a server or a cluster.
        interval: the seconds between two questions for changes, above 0.
        max_lag: a look-up raises StaleCopyError if the copy is older than so many seconds. By default, it never does.
        prefix: the prefix with which the server loaded the module, such as `OX`.
        """
        own = type(self).__name__
        require_client(client, own, asynchronous=self._asynchronous)
        if not interval > 0:
            raise ValueError("the interval must be above 0")
        self.interval = interval
        self.max_lag = max_lag
        self._follower = Follower(client, key, prefix)
        self._begin()

    def _begin(self) -> None:
        raise NotImplementedError

    @property
    def synced_at(self) -> float:
        """The moment that the copy shows, in seconds since 1970: it was taken before the last question was sent. What
        was added before is in the copy."""
        return self._follower.synced_at

    @property
    def lag(self) -> float:
        """How old the copy can be, in seconds: the time since `synced_at`, by a clock that is never set."""
        return time.monotonic() - self._follower.synced

    @property
    def resyncs(self) -> int:
        """How often the filter was copied again."""
        return max(self._follower.copies - 1, 0)

    @property
    def error(self) -> Exception | None:
        """The error of the last question, or None if it was answered."""
        return self._follower.error

    def __contains__(self, item: Item) -> bool:
        """Returns False if the item is not in the copy, and True if it probably is. Sends nothing."""
        return item in self._current()

    def contains_all(self, items: _Items) -> Any:
        """For each item, returns whether it is in the copy, as `BloomFilter.contains_all` does. Sends nothing."""
        return self._current().contains_all(items)

    def copy(self) -> BloomFilter:
        """Returns a copy that does not follow the server, for example to save it in a file."""
        return self._current().copy()

    def _current(self) -> BloomFilter:
        if self.max_lag is not None and self.lag > self.max_lag:
            raise StaleCopyError(
                f"the copy is {self.lag:.1f} seconds old, more than max_lag = {self.max_lag}. The last error was: "
                f"{self._follower.error}"
            )
        return self._follower.copy


class LiveFilter(_Live["Client"]):
    """A copy of a filter on a server, in this process, which follows it in the background.

    >>> seen = LiveFilter(client, "seen")
    >>> "https://example.com/" in seen
    True

    The constructor copies the filter, and raises an error if it cannot. A thread then asks every `interval` seconds
    what became new. If the connection is lost, the copy answers on, and `lag` says how old it is. A key that does not
    exist is an empty filter. A forked process follows the filter with a thread of its own.
    """

    def _begin(self) -> None:
        self._follower.ask()
        self._stopped = threading.Event()
        self._end = weakref.finalize(self, self._stopped.set)
        self._start()
        _running.add(self)

    def _start(self) -> None:
        """Starts the thread, which does not keep this object alive."""
        self._turn = threading.Lock()
        arguments = (self._follower, self.interval, self._stopped, self._turn)
        name = f"oxbloom follows {self._follower.key!r}"
        self._thread = threading.Thread(target=_follow, args=arguments, name=name, daemon=True)
        self._thread.start()

    def sync(self) -> None:
        """Asks for changes now. What was added before the call is in the copy afterwards.

        Raises the client's error if the server cannot be reached.
        """
        with self._turn:
            self._follower.ask()

    def close(self) -> None:
        """Stops following. The copy answers on."""
        self._end()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _follow(
    follower: Follower, interval: float, stopped: threading.Event, turn: threading.Lock
) -> None:
    while not stopped.wait(follower.wait(interval)):
        with turn:
            try:
                follower.ask()
                follower.ended(None)
            except Exception as error:  # noqa: BLE001 - whatever it is, the thread asks again
                follower.ended(error)


_running: weakref.WeakSet[LiveFilter] = weakref.WeakSet()


def _restart() -> None:
    """Starts the threads again in a forked process, which has none of them."""
    for live in list(_running):
        if live._end.alive:
            live._stopped = threading.Event()
            live._end.detach()
            live._end = weakref.finalize(live, live._stopped.set)
            # A round may have been under way.
            live._follower._cursor = None
            live._start()


os.register_at_fork(after_in_child=_restart)


class AsyncLiveFilter(_Live["AsyncClient"]):
    """`LiveFilter` for clients of `redis.asyncio` and `valkey.asyncio`. The constructor sends nothing. `start`, or
    `async with`, copies the filter and starts a task that follows it.

    >>> async with AsyncLiveFilter(client, "seen") as seen:
    ...     "https://example.com/" in seen
    True
    """

    _asynchronous = True

    def _begin(self) -> None:
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Self:
        """Copies the filter, and starts the task."""
        await self.sync()
        self._task = asyncio.create_task(self._follow())
        return self

    async def sync(self) -> None:
        """Asks for changes now, as `LiveFilter.sync` does."""
        async with self._turn:
            await self._follower.ask_async()

    async def close(self) -> None:
        """Stops following. The copy answers on."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._follower.wait(self.interval))
            try:
                await self.sync()
                self._follower.ended(None)
            except Exception as error:  # noqa: BLE001 - as above
                self._follower.ended(error)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
