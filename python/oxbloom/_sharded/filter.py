"""One logical Bloom filter over several keys, on one server or all over a cluster.

`ShardedFilter` is for `redis.Redis` and `redis.cluster.RedisCluster`, `AsyncShardedFilter` for their namesakes in
`redis.asyncio`. Both send the same commands, which `_Commands` makes: what is sent together is one pipeline, which goes to all
servers that have a part in it at once. So a batch takes one round trip, however many shards it touches, up to 10,000 items.

Every addition names the capacity, the error rate and the window. A shard whose key is gone (it was deleted, or a primary failed
before its replica had heard of it) is created again as it was, not with the server's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, Generic, TypeVar

import redis
from redis.utils import str_if_bytes

from .errors import FilterMismatchError, KeyTakenError, ModuleMissingError
from .exchange import AsyncClient, Client, Command, exchange, exchange_async
from .placement import capacity_of_each, keys, shard_of
from .window import NONE, Window

Item = str | bytes

BATCH = 10_000
"""Items that are sent at once: two or three thousandths of a second of one server's time, or of several servers' together."""

CAPACITY = 1_000_000
"""The number of items that filters are created for by default."""

ERROR_RATE = 1e-6
"""The share of new items that are taken for seen, by default.

Of a million new pages, one is lost. That takes 29.9 bits an item, where 0.001 takes 15.3 and loses a
thousand.
"""

CELLS = {False: "bits", True: "counters (COUNTING)"}

T = TypeVar("T")
AnyClient = TypeVar("AnyClient")


@dataclass(frozen=True)
class ShardedInfo:
    """All shards' facts together, as BF.INFO tells them of one filter."""

    capacity: int
    """Items that fit before a shard grows, if they fall to the shards evenly."""
    size: int
    """Bytes of memory."""
    layers: int
    """Layers of all shards: as many as there are shards, until one grows that does not count."""
    items: int
    """Items that were new, and are not forgotten."""
    shards: int


@dataclass(frozen=True)
class _Call(Generic[T]):
    """Commands that are sent together, and what their replies mean."""

    commands: list[Command]
    meaning: Callable[[list[Any]], T]
    errors_are_replies: bool = False


_Operation = Callable[[Sequence[Item]], _Call[list[bool]]]


class _Commands:
    """What to send for each operation of a filter, and how to read the replies: neither knows how they travel."""

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

    def add(self, items: Sequence[Item]) -> _Call[list[bool]]:
        options = ("CAPACITY", self.capacity, "ERROR", self.error_rate, *self.kind)
        once = ("NX",) if self.counting else ()
        return self._by_shard("BF.INSERT", items, *options, *once, "ITEMS")

    def contains(self, items: Sequence[Item]) -> _Call[list[bool]]:
        return self._by_shard("BF.MEXISTS", items)

    def remove(self, items: Sequence[Item]) -> _Call[list[bool]]:
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
        """Creates the shards; the keys of those that were there."""

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
        """Whether filters that are there are such as these are."""

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
        self, command: str, items: Sequence[Item], *options: str | float
    ) -> _Call[list[bool]]:
        """A command for each shard that has a part in the batch; the answers in the order of the items."""
        parts: dict[int, list[bytes]] = {}
        homes = []
        for item in items:
            encoded = item.encode() if isinstance(item, str) else item
            home = shard_of(encoded, len(self.keys))
            homes.append(home)
            parts.setdefault(home, []).append(encoded)

        def meaning(replies: list[Any]) -> list[bool]:
            answers = {
                home: _booleans(reply, len(parts[home]))
                for home, reply in zip(parts, replies, strict=True)
            }
            return [next(answers[home]) for home in homes]

        commands = [(command, self.keys[home], *options, *part) for home, part in parts.items()]
        return _Call(commands, meaning)


class _Filter(Generic[AnyClient]):
    """What filters know before they talk to anybody."""

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
        """Talks to nobody yet.

        `capacity` is the number of items that fit before anything grows (from 1); `error_rate` the share of items that are
        said to be there though they are not (above 0, below 1); `shards` 1 to 16384.

        `window` is for how long an item is remembered, in whole seconds (up to 100 years); `refresh` whether that is counted
        from when it was added last, not first; `slices` (2 to 64, by default 8) how precisely: an item is forgotten one slice of
        the window late, at most.
        """
        self.client = client
        self.counting = counting
        self.window = Window.of(window, refresh=refresh, slices=slices, counting=counting)
        self._commands = _Commands(name, shards, capacity, error_rate, counting, self.window)

    @property
    def keys(self) -> list[str]:
        """The keys of the shards, in their order."""
        return list(self._commands.keys)

    def addition(self, item: Item) -> Command:
        """The command that `add` sends, for scripts that do more in the same step."""
        return self._commands.add([item]).commands[0]


class ShardedFilter(_Filter[Client]):
    """A Bloom filter over `shards` keys, for `redis.Redis` and `redis.cluster.RedisCluster`.

    >>> seen = ShardedFilter(client, "seen", shards=16, capacity=1_000_000_000, error_rate=0.001)
    >>> seen.add("https://example.com/")
    True
    >>> seen.add_many(["https://example.com/", "https://example.com/about"])
    [False, True]

    Capacity and error rate are those of the whole. All who use a filter must name the same number of shards. It cannot be changed
    later: choose it so that each of as many servers as you may ever have gets a few.

    With `counting`, items can be removed. They are counted once, however often they are added.

    With a `window`, items are forgotten when it is over, and the capacity is that of a window:

    >>> week = ShardedFilter(client, "week", shards=16, window=7 * 24 * 3600)

    The client's own retries apply. If an answer was lost and the command sent again, an item that was new is said to have been there:
    where that matters, use a client with `retry=Retry(NoBackoff(), 0)`, and see to lost answers yourself. (Before redis-py 6, clients
    for clusters need `cluster_error_retry_attempts=0`, too.) Only `add_many` to a cluster
    sends to a shard again nevertheless, as redis-py's pipelines to clusters do; those of `redis.asyncio` do not.
    """

    def reserve(self) -> bool:
        """Creates the shards that are missing; whether there was one.

        Raises `ModuleMissingError`, `KeyTakenError` or, if a shard has another error rate or window, or is counting and should not
        be (or the other way round), `FilterMismatchError`.
        """
        there = self._send(self._commands.reserve())
        if there:
            self._send(self._commands.check(there))
        return len(there) < len(self._commands.keys)

    def add(self, item: Item) -> bool:
        """Adds an item; whether it was new."""
        return self._send(self._commands.add([item]))[0]

    def add_many(self, items: Iterable[Item]) -> list[bool]:
        """Adds items; of each, whether it was new. If this raises, some were added; all may be added again."""
        return self._send_batches(self._commands.add, items)

    def contains(self, item: Item) -> bool:
        """Whether an item was added. `False` is certain, `True` is wrong at the error rate."""
        return self._send(self._commands.contains([item]))[0]

    def contains_many(self, items: Iterable[Item]) -> list[bool]:
        """Of each item, whether it was added."""
        return self._send_batches(self._commands.contains, items)

    def remove(self, item: Item) -> bool:
        """Removes an item from a counting filter; whether it was there.

        Only remove what was added, and once only: otherwise another item may disappear.
        """
        return self._send(self._commands.remove([item]))[0]

    def card(self) -> int:
        """How many items were new, and are not forgotten."""
        return self._send(self._commands.card())

    def info(self) -> ShardedInfo:
        """The facts of all shards together. Raises `redis.ResponseError` if one is missing."""
        return self._send(self._commands.info())

    def clear(self) -> None:
        """Deletes all shards, and what else may be at their keys."""
        self._send(self._commands.clear())

    def _send_batches(self, operation: _Operation, items: Iterable[Item]) -> list[bool]:
        answers: list[bool] = []
        for batch in _batches(items):
            found = self._send(operation(batch))
            answers += found
        return answers

    def _send(self, call: _Call[T]) -> T:
        with _explaining():
            replies = exchange(self.client, call.commands, not call.errors_are_replies)
            return call.meaning(replies)


class AsyncShardedFilter(_Filter[AsyncClient]):
    """`ShardedFilter` for `redis.asyncio.Redis` and `redis.asyncio.cluster.RedisCluster`: see there."""

    async def reserve(self) -> bool:
        there = await self._send(self._commands.reserve())
        if there:
            await self._send(self._commands.check(there))
        return len(there) < len(self._commands.keys)

    async def add(self, item: Item) -> bool:
        return (await self._send(self._commands.add([item])))[0]

    async def add_many(self, items: Iterable[Item]) -> list[bool]:
        return await self._send_batches(self._commands.add, items)

    async def contains(self, item: Item) -> bool:
        return (await self._send(self._commands.contains([item])))[0]

    async def contains_many(self, items: Iterable[Item]) -> list[bool]:
        return await self._send_batches(self._commands.contains, items)

    async def remove(self, item: Item) -> bool:
        return (await self._send(self._commands.remove([item])))[0]

    async def card(self) -> int:
        return await self._send(self._commands.card())

    async def info(self) -> ShardedInfo:
        return await self._send(self._commands.info())

    async def clear(self) -> None:
        await self._send(self._commands.clear())

    async def _send_batches(self, operation: _Operation, items: Iterable[Item]) -> list[bool]:
        answers: list[bool] = []
        for batch in _batches(items):
            found = await self._send(operation(batch))
            answers += found
        return answers

    async def _send(self, call: _Call[T]) -> T:
        with _explaining():
            replies = await exchange_async(self.client, call.commands, not call.errors_are_replies)
            return call.meaning(replies)


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    if isinstance(items, str | bytes):
        raise TypeError("items must be several, not one string")
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _booleans(reply: list[Any], expected: int) -> Iterator[bool]:
    """The answers in a reply, which ends with an error if the filter could not grow."""
    for answer in reply:
        if isinstance(answer, Exception):
            raise answer
    if len(reply) != expected:
        raise redis.ResponseError(f"{expected} answers expected, not {len(reply)}")
    return map(bool, reply)


def _facts(reply: Any) -> tuple[int, int, int, int]:
    """Capacity, size, layers and items, from what BF.INFO replies in either version of the protocol."""
    values = list(reply.values()) if isinstance(reply, dict) else reply[1::2]
    capacity, size, layers, items = map(int, values[:4])
    return capacity, size, layers, items


def _all_facts(reply: Any) -> dict[str, Any]:
    """What `BF.INFO key ALL` replies in either version of the protocol, to clients that decode replies or do not."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {str_if_bytes(name): str_if_bytes(value) for name, value in pairs}


def _raise_error(reply: Any, key: str) -> None:
    """Raises a reply that is an error."""
    if not isinstance(reply, Exception):
        return
    if re.search("WRONGTYPE|wrong kind of value", str(reply)):
        raise KeyTakenError(key)
    raise reply


@contextmanager
def _explaining() -> Iterator[None]:
    """Tells a missing module from other errors, by the server's words or those of clients for clusters, which look commands up first."""
    try:
        yield
    except redis.RedisError as error:
        if re.search(r"unknown command .BF\.|BF\.\w+ command doesn't exist", str(error)):
            raise ModuleMissingError from error
        raise
