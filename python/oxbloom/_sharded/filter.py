"""Bloom filters on servers: `ShardedFilter` over several keys, `RemoteFilter` in one key, and the same for asyncio.

They work with `redis.Redis` and `redis.cluster.RedisCluster`, with the classes of the same names in `redis.asyncio`,
and with those of valkey-py. They send the conversations of `Commands`. Commands that belong together form one pipeline,
which is sent to all servers at once. So a chunk of items takes one round trip, however many shards it touches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from oxbloom._clients import require_client
from oxbloom._oxbloom import ItemChunks, encoded

from .commands import QUERY, Commands, Conversation, Operation, ShardedInfo
from .errors import ModuleMissingError
from .exchange import Command, exchange, exchange_async, prefixed
from .turn import Turns
from .window import Window

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from oxbloom._oxbloom import _Column, _Items

    from .exchange import AsyncClient, Client

    Flags = npt.NDArray[np.bool_]

Item = str | bytes | bytearray | memoryview

BATCH = 10_000
"""The number of items that are sent at once.

A server takes 98 ns for each URL of a command with 500, 58 ns with 5000, and 55 ns with 10,000 or more. It takes half a
millisecond for 10,000, and its other clients wait that long.
"""

BATCH_BYTES = 1 << 18
"""The bytes of items that are sent at once: those of 10,000 short URLs."""

CAPACITY = 1_000_000
"""The default capacity."""

ERROR_RATE = 1e-6
"""The default error rate.

Of a million new pages, one is a false positive and is lost. This takes 29.9 bits an item. An error rate of 0.001 takes
15.3 bits, and loses a thousand pages.
"""

ASYNC = "Async"
"""The beginning of the names of classes for asyncio."""

T = TypeVar("T")
AnyClient = TypeVar("AnyClient")


class _Filter(Generic[AnyClient]):
    """The common part of all classes, which sends nothing."""

    _asynchronous = False

    def __init__(
        self,
        client: AnyClient,
        name: str,
        *,
        shards: int,
        capacity: int = CAPACITY,
        error_rate: float = ERROR_RATE,
        counting: bool = False,
        window: int | timedelta | None = None,
        refresh: bool = False,
        slices: int | None = None,
        prefix: str = "",
    ) -> None:
        """Sends nothing yet.

        client: a client of redis-py or valkey-py, for a server or a cluster. The classes whose names begin with Async
        need one for asyncio, and the others one that is not. A pipeline is no client: to add an item in a pipeline or a
        script, send what `addition` returns.
        capacity: the number of items that fit before a shard grows, at least 1. The default is 1,000,000.
        error_rate: the false-positive rate, above 0 and below 1. The default is 0.000001.
        shards: the number of keys, from 1 to 16384.
        counting: True for a filter that supports `remove`.
        window: the time for which items are remembered, a timedelta or whole seconds, up to 100 years.
        refresh: True if an item's window starts again when the item is added again.
        slices: the number of slices of a window, from 2 to 64, by default 15. Items are forgotten up to one slice late.
        prefix: the prefix with which the server loaded the module, such as `OX`.
        """
        own = next(each.__name__ for each in type(self).__mro__ if each.__module__ == __name__)
        other = own.removeprefix(ASYNC) if self._asynchronous else ASYNC + own
        require_client(client, own, asynchronous=self._asynchronous, instead=other)
        self.client = client
        self.prefix = prefix
        self.counting = counting
        self.window = Window.of(window, refresh=refresh, slices=slices, counting=counting)
        self._commands = Commands(name, shards, capacity, error_rate, counting, self.window)

    @property
    def keys(self) -> list[str]:
        """The keys of the shards, in order."""
        return list(self._commands.keys)

    def addition(self, item: Item) -> Command:
        """Returns the command that adds an item, for scripts that do more in the same step."""
        command = self._commands.command(self._commands.addition, encoded(item))
        return prefixed(self.prefix, command)


class Options(TypedDict, total=False):
    """The options of a filter, as those of `_Filter`."""

    capacity: int
    error_rate: float
    counting: bool
    window: int | timedelta | None
    refresh: bool
    slices: int | None
    prefix: str


class ShardedFilter(_Filter["Client"]):
    """A Bloom filter over `shards` keys, for clients of servers and of clusters.

    >>> seen = ShardedFilter(client, "seen", shards=16, capacity=1_000_000_000, error_rate=0.001)
    >>> seen.add("https://example.com/")
    False
    >>> seen.add_all(["https://example.com/", "https://example.com/about"])
    [True, False]

    As in `BloomFilter`, `add` returns True if the item was already there. BF.ADD replies the other way around.

    Capacity and error rate are those of all shards together. All programs that use a filter must name the same number
    of shards. You cannot change it later: choose a few shards for each server that you may ever have.

    With `counting`, items can be removed. An item is counted once, however often it is added.

    With a `window`, items are forgotten when it is over. The capacity is the number of items in a window:

    >>> week = ShardedFilter(client, "week", shards=16, window=7 * 24 * 3600)

    The client repeats commands as it is configured to. If a reply is lost and the client sends the command again, `add`
    and `add_all` return True for an item that was new. To prevent this, use a client with
    `retry=Retry(NoBackoff(), 0)`, and handle lost replies yourself. (Before redis-py 6, clients for clusters also need
    `cluster_error_retry_attempts=0`.) Even then, `add_all` to several shards of a cluster can send commands again,
    because redis-py's pipelines to clusters do so. Those of `redis.asyncio` do not.
    """

    def reserve(self) -> bool:
        """Creates the shards that are missing. Returns True if at least one was missing.

        Raises `ModuleMissingError` or `KeyTakenError`. Raises `FilterMismatchError` if a shard has another error rate
        or window, or if it is counting and this filter is not, or the other way round.
        """
        return self._run(self._commands.reserve())

    def check(self) -> ShardedInfo:
        """Raises the same errors as `reserve`, but creates nothing. Returns sums in which missing shards are empty."""
        return self._run(self._commands.check())

    def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it was already there (or is a false positive), and False if it is new."""
        return self._run(self._commands.answer(self._commands.addition, encoded(item)))

    @overload
    def add_all(self, items: _Column) -> Flags: ...
    @overload
    def add_all(self, items: _Items) -> list[bool]: ...
    def add_all(self, items: _Column | _Items) -> Any:
        """Adds items. For each, returns whether it was already there, like `add`.

        Takes and returns the same types as `BloomFilter.add_all`. If this raises, the attribute `answers` of the
        exception has the answers to the items before the first one that was not added. Of the up to 10,000 items from
        this one on, some may have been added, if there is more than one shard or a reply was lost: add them again.
        """
        return self._send_all(self._commands.addition, items)

    def contains(self, item: Item) -> bool:
        """Returns False if an item is not in the filter, and True if it probably is."""
        return self._run(self._commands.answer(QUERY, encoded(item)))

    @overload
    def contains_all(self, items: _Column) -> Flags: ...
    @overload
    def contains_all(self, items: _Items) -> list[bool]: ...
    def contains_all(self, items: _Column | _Items) -> Any:
        """For each item, returns whether it is in the filter."""
        return self._send_all(QUERY, items)

    def remove(self, item: Item) -> bool:
        """Removes an item from a counting filter. Returns True if it was there.

        Only remove an item that was added, and only once: otherwise another item may disappear.
        """
        return self._run(self._commands.answer(self._commands.removal, encoded(item)))

    @overload
    def remove_all(self, items: _Column) -> Flags: ...
    @overload
    def remove_all(self, items: _Items) -> list[bool]: ...
    def remove_all(self, items: _Column | _Items) -> Any:
        """Removes items from a counting filter. For each, returns whether it was there, like `remove`."""
        return self._send_all(self._commands.removal, items)

    def card(self) -> int:
        """Returns the number of items that were new when they were added, and are not forgotten."""
        return self._run(self._commands.card())

    def info(self) -> ShardedInfo:
        """Returns the fields of BF.INFO, summed over all shards. Raises an error if a shard is missing."""
        return self._run(self._commands.info())

    def fold(self, capacity: int | None = None) -> int:
        """Shrinks a filter that was created too large, to room for `capacity` items, or for those that it has. Returns
        the factor by which its shards are smaller, the lowest if they differ.

        Raises an error if a shard is missing, or if the filter counts or forgets.
        """
        return self._run(self._commands.fold(capacity))

    def clear(self) -> None:
        """Deletes the keys of all shards, whatever they hold."""
        self._run(self._commands.clear())

    def _send_all(self, operation: Operation, items: _Column | _Items) -> Any:
        chunks = ItemChunks(items, BATCH, BATCH_BYTES)
        answers = bytearray()
        with _keeping(chunks, answers), _explaining(self.prefix):
            for chunk in chunks:
                flags, error = run(
                    self.client, self._commands.answers(operation, chunk), self.prefix
                )
                answers += flags
                if error:
                    raise error
        return chunks.converted(bytes(answers))

    def _run(self, conversation: Conversation[T]) -> T:
        with _explaining(self.prefix):
            return run(self.client, conversation, self.prefix)


class AsyncShardedFilter(_Filter["AsyncClient"]):
    """`ShardedFilter` for clients of `redis.asyncio` and `valkey.asyncio`: see there.

    Calls for single items (`add`, `contains`, `remove`) that tasks make in one turn of the event loop are sent
    together. Each task gets its own answer. If an item fails, the items before it have their answers, and the others of
    the batch get the error. If a task is cancelled after its item was sent, the item may be added nevertheless.
    """

    _asynchronous = True

    @cached_property
    def _turns(self) -> Turns:
        return Turns(self._send_some)

    async def reserve(self) -> bool:
        """Creates the shards that are missing. Returns True if at least one was missing.

        Raises `ModuleMissingError` or `KeyTakenError`. Raises `FilterMismatchError` if a shard has another error rate
        or window, or if it is counting and this filter is not, or the other way round.
        """
        return await self._run(self._commands.reserve())

    async def check(self) -> ShardedInfo:
        """Raises the same errors as `reserve`, but creates nothing. Returns sums in which missing shards are empty."""
        return await self._run(self._commands.check())

    async def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it was already there (or is a false positive), and False if it is new."""
        return await self._turns.answer(self._commands.addition, encoded(item))

    @overload
    async def add_all(self, items: _Column) -> Flags: ...
    @overload
    async def add_all(self, items: _Items) -> list[bool]: ...
    async def add_all(self, items: _Column | _Items) -> Any:
        """Adds items. For each, returns whether it was already there, as `ShardedFilter.add_all` does."""
        return await self._send_all(self._commands.addition, items)

    async def contains(self, item: Item) -> bool:
        """Returns False if an item is not in the filter, and True if it probably is."""
        return await self._turns.answer(QUERY, encoded(item))

    @overload
    async def contains_all(self, items: _Column) -> Flags: ...
    @overload
    async def contains_all(self, items: _Items) -> list[bool]: ...
    async def contains_all(self, items: _Column | _Items) -> Any:
        """For each item, returns whether it is in the filter."""
        return await self._send_all(QUERY, items)

    async def remove(self, item: Item) -> bool:
        """Removes an item from a counting filter. Returns True if it was there.

        Only remove an item that was added, and only once: otherwise another item may disappear.
        """
        return await self._turns.answer(self._commands.removal, encoded(item))

    @overload
    async def remove_all(self, items: _Column) -> Flags: ...
    @overload
    async def remove_all(self, items: _Items) -> list[bool]: ...
    async def remove_all(self, items: _Column | _Items) -> Any:
        """Removes items from a counting filter. For each, returns whether it was there, like `remove`."""
        return await self._send_all(self._commands.removal, items)

    async def card(self) -> int:
        """Returns the number of items that were new when they were added, and are not forgotten."""
        return await self._run(self._commands.card())

    async def info(self) -> ShardedInfo:
        """Returns the fields of BF.INFO, summed over all shards. Raises an error if a shard is missing."""
        return await self._run(self._commands.info())

    async def fold(self, capacity: int | None = None) -> int:
        """Shrinks a filter that was created too large, to room for `capacity` items, or for those that it has. Returns
        the factor by which its shards are smaller, the lowest if they differ.

        Raises an error if a shard is missing, or if the filter counts or forgets.
        """
        return await self._run(self._commands.fold(capacity))

    async def clear(self) -> None:
        """Deletes the keys of all shards, whatever they hold."""
        await self._run(self._commands.clear())

    async def _send_all(self, operation: Operation, items: _Column | _Items) -> Any:
        chunks = ItemChunks(items, BATCH, BATCH_BYTES)
        answers = bytearray()
        with _keeping(chunks, answers), _explaining(self.prefix):
            for chunk in chunks:
                flags, error = await run_async(
                    self.client, self._commands.answers(operation, chunk), self.prefix
                )
                answers += flags
                if error:
                    raise error
        return chunks.converted(bytes(answers))

    async def _send_some(self, operation: Operation, items: list[bytes]) -> list[bool]:
        if len(items) == 1:
            return [await self._run(self._commands.answer(operation, items[0]))]
        answers: list[bool] = await self._send_all(operation, items)
        return answers

    async def _run(self, conversation: Conversation[T]) -> T:
        with _explaining(self.prefix):
            return await run_async(self.client, conversation, self.prefix)


class RemoteFilter(ShardedFilter):
    """A Bloom filter in one key of a server: a `ShardedFilter` with one shard.

    >>> seen = RemoteFilter(client, "seen", capacity=1_000_000, error_rate=0.001)
    >>> seen.add("https://example.com/")
    False

    The options are those of `ShardedFilter`, except for `shards`. If the key exists, `add` leaves its capacity and error
    rate as they are, and `reserve` compares them.
    """

    def __init__(self, client: Client, key: str, **options: Unpack[Options]) -> None:
        super().__init__(client, key, shards=1, **options)


class AsyncRemoteFilter(AsyncShardedFilter):
    """`RemoteFilter` for clients of `redis.asyncio` and `valkey.asyncio`: an `AsyncShardedFilter` with one shard."""

    def __init__(self, client: AsyncClient, key: str, **options: Unpack[Options]) -> None:
        super().__init__(client, key, shards=1, **options)


def run(client: Client, conversation: Conversation[T], prefix: str = "") -> T:
    """Sends the commands of a conversation to a module with a prefix, and returns its result."""
    try:
        commands = next(conversation)
        while True:
            named = [prefixed(prefix, command) for command in commands]
            commands = conversation.send(exchange(client, named))
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(client: AsyncClient, conversation: Conversation[T], prefix: str = "") -> T:
    """`run` for clients of asyncio."""
    try:
        commands = next(conversation)
        while True:
            named = [prefixed(prefix, command) for command in commands]
            commands = conversation.send(await exchange_async(client, named))
    except StopIteration as end:
        result: T = end.value
        return result


@contextmanager
def _keeping(chunks: ItemChunks, answers: bytearray) -> Iterator[None]:
    """Gives an exception the answers that there are."""
    try:
        yield
    except BaseException as error:
        error.answers = chunks.converted(bytes(answers))  # type: ignore[attr-defined]
        raise


@contextmanager
def _explaining(prefix: str) -> Iterator[None]:
    """Raises `ModuleMissingError` if an error says that the command does not exist.

    The error comes from the server, or from a client for clusters, which looks commands up first.
    """
    try:
        yield
    except Exception as error:
        name = re.escape(f"{prefix}BF.")
        if re.search(rf"unknown command .{name}|{name}\w+ command doesn't exist", str(error)):
            raise ModuleMissingError(prefix) from error
        raise
