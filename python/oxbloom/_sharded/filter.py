"""One logical Bloom filter over several keys, on one server or on all servers of a cluster.

`ShardedFilter` is for `redis.Redis` and `redis.cluster.RedisCluster`, `AsyncShardedFilter` for the classes of the same
names in `redis.asyncio`. Both send the commands that `_Commands` creates. Commands that belong together form one
pipeline, which is sent to all servers at once. So a batch of up to 10,000 items takes one round trip, however many
shards it touches.

Every addition includes the capacity, the error rate and the window. If a shard's key is gone (because it was deleted,
or because a master failed before it replicated the key), the next addition creates it again with the same options,
and not with the server's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import redis
from redis.utils import str_if_bytes

from oxbloom._oxbloom import ItemChunks, encoded

from .errors import FilterMismatchError, KeyTakenError, ModuleMissingError
from .exchange import AsyncClient, Client, Command, exchange, exchange_async
from .placement import capacity_of_each, keys, shard_of
from .window import NONE, Window

if TYPE_CHECKING:
    from oxbloom._oxbloom import _Column, _Items

    Items = _Column | _Items

Item = str | bytes

BATCH = 10_000
"""The number of items that are sent at once. They take 2 to 3 ms of a server's time in total."""

BATCH_BYTES = 1 << 24
"""The bytes of items that are sent at once, if that many come together."""

CAPACITY = 1_000_000
"""The default capacity."""

ERROR_RATE = 1e-6
"""The default error rate.

Of a million new pages, one is a false positive and is lost. This takes 29.9 bits an item. An error rate of 0.001 takes
15.3 bits, and loses a thousand pages.
"""

CELLS = {False: "bits", True: "counters (COUNTING)"}

T = TypeVar("T")
AnyClient = TypeVar("AnyClient")


@dataclass(frozen=True)
class ShardedInfo:
    """The fields of BF.INFO, summed over all shards."""

    capacity: int
    """The number of items that fit before a shard grows, if they are spread evenly."""
    size: int
    """Bytes of memory."""
    layers: int
    """The layers of all shards: one for each, and more for those that have grown. Counting shards always have one."""
    items: int
    """The number of items that were new when they were added, and are not forgotten."""
    shards: int


@dataclass(frozen=True)
class _Call(Generic[T]):
    """Commands that are sent together, and a function that converts their replies to a result."""

    commands: list[Command]
    meaning: Callable[[list[Any]], T]
    errors_are_replies: bool = False


_Operation = Callable[[Sequence[bytes]], _Call[list[bool]]]


class _Commands:
    """The commands for each operation of a filter, and the meaning of the replies. It does not send them."""

    def __init__(
        self,
        name: str,
        shards: int,
        capacity: int,
        error_rate: float,
        counting: bool,
        window: Window | None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be 1 or more, not {capacity}")
        if not 0 < error_rate < 1:
            raise ValueError(f"error_rate must lie between 0 and 1, not {error_rate}")
        self.keys = keys(name, shards)
        self.capacity = capacity_of_each(capacity, shards)
        self.error_rate = error_rate
        self.counting = counting
        self.window = window
        self.kind = window.options if window else ("COUNTING",) if counting else ()

    def add(self, items: Sequence[bytes]) -> _Call[list[bool]]:
        options = ("CAPACITY", self.capacity, "ERROR", self.error_rate, *self.kind)
        once = ("NX",) if self.counting else ()
        call = self._by_shard("BF.INSERT", items, *options, *once, "ITEMS")
        # The server says which items are new, and `add` which were there.
        return _Call(call.commands, lambda replies: [not new for new in call.meaning(replies)])

    def contains(self, items: Sequence[bytes]) -> _Call[list[bool]]:
        return self._by_shard("BF.MEXISTS", items)

    def remove(self, items: Sequence[bytes]) -> _Call[list[bool]]:
        if not self.counting:
            raise ValueError("items can be removed from counting filters only")
        return self._by_shard("BF.MDEL", items)

    def card(self) -> _Call[int]:
        return _Call([("BF.CARD", key) for key in self.keys], sum)

    def info(self) -> _Call[ShardedInfo]:
        def meaning(replies: list[Any]) -> ShardedInfo:
            capacity, size, layers, items = map(sum, zip(*map(_facts, replies), strict=True))
            return ShardedInfo(capacity, size, layers, items, len(self.keys))

        return _Call([("BF.INFO", key) for key in self.keys], meaning)

    def clear(self) -> _Call[None]:
        return _Call([("UNLINK", key) for key in self.keys], lambda _: None)

    def reserve(self) -> _Call[list[str]]:
        """Creates the shards. The result is the keys of shards that already existed."""

        def meaning(replies: list[Any]) -> list[str]:
            there = []
            for key, reply in zip(self.keys, replies, strict=True):
                if "item exists" in str(reply):
                    there.append(key)
                else:
                    _raise_error(reply, key)
            return there

        return _Call(
            [("BF.RESERVE", key, self.error_rate, self.capacity, *self.kind) for key in self.keys],
            meaning,
            errors_are_replies=True,
        )

    def check(self, keys: list[str]) -> _Call[None]:
        """Checks that existing shards have the error rate, the kind and the window of this filter."""

        def meaning(replies: list[Any]) -> None:
            for key, reply in zip(keys, replies, strict=True):
                _raise_error(reply, key)
                facts = _all_facts(reply)
                error_rate = float(facts["Error rate"])
                if error_rate != self.error_rate:
                    raise FilterMismatchError(
                        key, f"an error rate of {error_rate}", self.error_rate
                    )
                counting = facts["Layout"] == "counting"
                if counting != self.counting:
                    raise FilterMismatchError(key, CELLS[counting], CELLS[self.counting])
                window = Window.from_facts(facts)
                if window != self.window:
                    raise FilterMismatchError(key, window or NONE, self.window or NONE)

        return _Call(
            [("BF.INFO", key, "ALL") for key in keys],
            meaning,
            errors_are_replies=True,
        )

    def _by_shard(
        self, command: str, items: Sequence[bytes], *options: str | float
    ) -> _Call[list[bool]]:
        """Creates a command for each shard that has items of the batch. The result is in the order of the items."""
        parts: dict[int, list[bytes]] = {}
        homes = []
        for item in items:
            home = shard_of(item, len(self.keys))
            homes.append(home)
            parts.setdefault(home, []).append(item)

        def meaning(replies: list[Any]) -> list[bool]:
            answers = {
                home: _booleans(reply, len(parts[home]))
                for home, reply in zip(parts, replies, strict=True)
            }
            return [next(answers[home]) for home in homes]

        commands = [(command, self.keys[home], *options, *part) for home, part in parts.items()]
        return _Call(commands, meaning)


class _Filter(Generic[AnyClient]):
    """The common part of both classes, which sends nothing."""

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
    ) -> None:
        """Sends nothing yet.

        capacity: the number of items that fit before a shard grows, at least 1.
        error_rate: the false-positive rate, above 0 and below 1.
        shards: the number of keys, from 1 to 16384.
        counting: True for a filter that supports `remove`.
        window: the time for which items are remembered, a timedelta or whole seconds, up to 100 years.
        refresh: True if an item's window starts again when the item is added again.
        slices: the number of slices of a window, from 2 to 64, by default 15. Items are forgotten up to one slice late.
        """
        self.client = client
        self.counting = counting
        self.window = Window.of(window, refresh=refresh, slices=slices, counting=counting)
        self._commands = _Commands(name, shards, capacity, error_rate, counting, self.window)

    @property
    def keys(self) -> list[str]:
        """The keys of the shards, in order."""
        return list(self._commands.keys)

    def addition(self, item: Item) -> Command:
        """Returns the command that `add` sends, for scripts that do more in the same step."""
        return self._commands.add([encoded(item)]).commands[0]


class ShardedFilter(_Filter[Client]):
    """A Bloom filter over `shards` keys, for `redis.Redis` and `redis.cluster.RedisCluster`.

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
    `cluster_error_retry_attempts=0`.) Even then, `add_all` to a cluster can send commands again, because redis-py's
    pipelines to clusters do so. Those of `redis.asyncio` do not.
    """

    def reserve(self) -> bool:
        """Creates the shards that are missing. Returns True if at least one was missing.

        Raises `ModuleMissingError` or `KeyTakenError`. Raises `FilterMismatchError` if a shard has another error rate
        or window, or if it is counting and this filter is not, or the other way round.
        """
        there = self._send(self._commands.reserve())
        if there:
            self._send(self._commands.check(there))
        return len(there) < len(self._commands.keys)

    def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it was already there (or is a false positive), and False if it is new."""
        return self._send(self._commands.add([encoded(item)]))[0]

    def add_all(self, items: Items) -> Any:
        """Adds items. For each, returns whether it was already there, like `add`.

        Takes and returns the same types as `BloomFilter.add_all`. If this raises, the attribute `answers` of the
        exception has the answers to the batches before it. Of the next batch, some items may have been added: add
        them again.
        """
        return self._send_batches(self._commands.add, items)

    def contains(self, item: Item) -> bool:
        """Returns False if an item is not in the filter, and True if it probably is."""
        return self._send(self._commands.contains([encoded(item)]))[0]

    def contains_all(self, items: Items) -> Any:
        """For each item, returns whether it is in the filter."""
        return self._send_batches(self._commands.contains, items)

    def remove(self, item: Item) -> bool:
        """Removes an item from a counting filter. Returns True if it was there.

        Only remove an item that was added, and only once: otherwise another item may disappear.
        """
        return self._send(self._commands.remove([encoded(item)]))[0]

    def card(self) -> int:
        """Returns the number of items that were new when they were added, and are not forgotten."""
        return self._send(self._commands.card())

    def info(self) -> ShardedInfo:
        """Returns the fields of BF.INFO, summed over all shards. Raises `redis.ResponseError` if a shard is missing."""
        return self._send(self._commands.info())

    def clear(self) -> None:
        """Deletes the keys of all shards, whatever they hold."""
        self._send(self._commands.clear())

    def _send_batches(self, operation: _Operation, items: Items) -> Any:
        chunks = ItemChunks(items, BATCH, BATCH_BYTES)
        answers = bytearray()
        with _keeping(chunks, answers):
            for chunk in chunks:
                found = self._send(operation(chunk.items()))
                answers += bytes(found)
        return chunks.converted(bytes(answers))

    def _send(self, call: _Call[T]) -> T:
        with _explaining():
            replies = exchange(self.client, call.commands, not call.errors_are_replies)
            return call.meaning(replies)


class AsyncShardedFilter(_Filter[AsyncClient]):
    """`ShardedFilter` for `redis.asyncio.Redis` and `redis.asyncio.cluster.RedisCluster`: see there."""

    async def reserve(self) -> bool:
        """Creates the shards that are missing. Returns True if at least one was missing.

        Raises `ModuleMissingError` or `KeyTakenError`. Raises `FilterMismatchError` if a shard has another error rate
        or window, or if it is counting and this filter is not, or the other way round.
        """
        there = await self._send(self._commands.reserve())
        if there:
            await self._send(self._commands.check(there))
        return len(there) < len(self._commands.keys)

    async def add(self, item: Item) -> bool:
        """Adds an item. Returns True if it was already there (or is a false positive), and False if it is new."""
        return (await self._send(self._commands.add([encoded(item)])))[0]

    async def add_all(self, items: Items) -> Any:
        """Adds items. For each, returns whether it was already there, as `ShardedFilter.add_all` does."""
        return await self._send_batches(self._commands.add, items)

    async def contains(self, item: Item) -> bool:
        """Returns False if an item is not in the filter, and True if it probably is."""
        return (await self._send(self._commands.contains([encoded(item)])))[0]

    async def contains_all(self, items: Items) -> Any:
        """For each item, returns whether it is in the filter."""
        return await self._send_batches(self._commands.contains, items)

    async def remove(self, item: Item) -> bool:
        """Removes an item from a counting filter. Returns True if it was there.

        Only remove an item that was added, and only once: otherwise another item may disappear.
        """
        return (await self._send(self._commands.remove([encoded(item)])))[0]

    async def card(self) -> int:
        """Returns the number of items that were new when they were added, and are not forgotten."""
        return await self._send(self._commands.card())

    async def info(self) -> ShardedInfo:
        """Returns the fields of BF.INFO, summed over all shards. Raises `redis.ResponseError` if a shard is missing."""
        return await self._send(self._commands.info())

    async def clear(self) -> None:
        """Deletes the keys of all shards, whatever they hold."""
        await self._send(self._commands.clear())

    async def _send_batches(self, operation: _Operation, items: Items) -> Any:
        chunks = ItemChunks(items, BATCH, BATCH_BYTES)
        answers = bytearray()
        with _keeping(chunks, answers):
            for chunk in chunks:
                found = await self._send(operation(chunk.items()))
                answers += bytes(found)
        return chunks.converted(bytes(answers))

    async def _send(self, call: _Call[T]) -> T:
        with _explaining():
            replies = await exchange_async(self.client, call.commands, not call.errors_are_replies)
            return call.meaning(replies)


@contextmanager
def _keeping(chunks: ItemChunks, answers: bytearray) -> Iterator[None]:
    """Gives an exception the answers that there are."""
    try:
        yield
    except BaseException as error:
        error.answers = chunks.converted(bytes(answers))  # type: ignore[attr-defined]
        raise


def _booleans(reply: list[Any], expected: int) -> Iterator[bool]:
    """Returns the answers in a reply. Raises its last element if that is an error: the filter could not grow."""
    for answer in reply:
        if isinstance(answer, Exception):
            raise answer
    if len(reply) != expected:
        raise redis.ResponseError(f"expected {expected} answers, not {len(reply)}")
    return map(bool, reply)


def _facts(reply: Any) -> tuple[int, int, int, int]:
    """Returns capacity, size, layers and items from a reply of BF.INFO, in RESP2 or RESP3."""
    values = list(reply.values()) if isinstance(reply, dict) else reply[1::2]
    capacity, size, layers, items = map(int, values[:4])
    return capacity, size, layers, items


def _all_facts(reply: Any) -> dict[str, Any]:
    """Returns the fields of a reply of `BF.INFO key ALL`, in RESP2 or RESP3, decoded or not."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {str_if_bytes(name): str_if_bytes(value) for name, value in pairs}


def _raise_error(reply: Any, key: str) -> None:
    """Raises the reply if it is an error."""
    if not isinstance(reply, Exception):
        return
    if re.search("WRONGTYPE|wrong kind of value", str(reply)):
        raise KeyTakenError(key)
    raise reply


@contextmanager
def _explaining() -> Iterator[None]:
    """Raises `ModuleMissingError` if an error says that the command does not exist.

    The error comes from the server, or from a client for clusters, which looks commands up first.
    """
    try:
        yield
    except redis.RedisError as error:
        if re.search(r"unknown command .BF\.|BF\.\w+ command doesn't exist", str(error)):
            raise ModuleMissingError from error
        raise
