"""The commands for each operation of a filter, and the meaning of the replies. Nothing here sends them.

An operation is a *conversation*: a generator that yields commands, which are sent together, gets the replies, and
returns the result. So clients of both kinds, those that wait and those of asyncio, share all of it.

Items are sent packed, in one argument for each shard (BF.ADDPACKED, BF.EXISTSPACKED, BF.DELPACKED). The server then
takes a third of the time, and the client a twentieth. A server that does not know a packed command, or whose user may not
call it, replies with an error that names the command. Its shards get each item in an argument of its own from then on
(BF.INSERT, BF.MEXISTS, BF.MDEL).

BF.ADDPACKED does not create shards, since it has no options for a capacity and an error rate. If the key of a shard is
gone (because it was deleted, or because a master failed before it replicated the key), BF.INSERT adds the items. It
creates the key again with the same options, and not with the server's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from oxbloom._oxbloom import Chunk, unpacked

from .errors import FilterMismatchError, KeyTakenError
from .exchange import Command
from .placement import capacity_of_each, keys, shard_of
from .window import NONE, Window

ITEMS_PER_COMMAND = 10_000
"""The number of items that a command has as arguments. They take 2 to 3 ms of a server's time."""

CELLS = {False: "bits", True: "counters (COUNTING)"}

NAMES_PACKED_COMMAND = re.compile(r"BF\.\w+PACKED", re.IGNORECASE)
"""Errors that name a packed command say that the server, or a client for clusters, does not know or allow it."""

NEGATED = bytes.maketrans(b"\0\1", b"\1\0")

T = TypeVar("T")
Conversation = Generator[list[Command], list[Any], T]


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


@dataclass(frozen=True, eq=False)
class Operation:
    """A command on items, in two forms. A form is the command's name, and its options, which follow the key."""

    packed: tuple[str, ...]
    """The form for packed items."""
    separate: tuple[str | float, ...]
    """The form for items that are arguments of their own."""
    negates: bool = False
    """True for additions: the server says which items are new, and we which were there."""


Answers = tuple[bytes, Exception | None]
"""The answers to items, as flags: bytes that are 0 or 1. If an item failed, only those before it, and the error."""


@dataclass
class _Part:
    """The items of a chunk that belong to one shard, and their answers."""

    shard: int
    chunk: Chunk
    is_packed: bool
    answers: Answers = (b"", None)


QUERY = Operation(("BF.EXISTSPACKED",), ("BF.MEXISTS",))
REMOVAL = Operation(("BF.DELPACKED",), ("BF.MDEL",))


class ItemCommands:
    """The conversations on items of a filter that is spread over keys."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self.keys = keys
        self._unpacked: set[int] = set()
        """The shards that do not get packed items."""

    def command(self, operation: Operation, item: bytes) -> Command:
        """Returns the command for a single item."""
        name, *options = operation.separate
        return (name, self.keys[shard_of(item, len(self.keys))], *options, item)

    def answer(self, operation: Operation, item: bytes) -> Conversation[bool]:
        """Returns the answer to a single item."""
        [reply] = yield [self.command(operation, item)]
        flags, error = _flags(reply, 1)
        if error:
            raise error
        return bool(flags[0]) is not operation.negates

    def answers(self, operation: Operation, chunk: Chunk) -> Conversation[Answers]:
        """Returns the answers to all items of a chunk, which are sent to all shards at once."""
        sharded = chunk.by_shard(len(self.keys))
        parts = [_Part(shard, part, shard not in self._unpacked) for shard, part in sharded.parts]
        pending = parts
        while pending:
            commands = [self._commands(operation, part) for part in pending]
            replies = iter((yield [command for each in commands for command in each]))
            pending = [
                part
                for part, sent in zip(pending, commands, strict=True)
                if not self._is_answered(part, islice(replies, len(sent)))
            ]
        flags = sharded.merged([part.answers[0] for part in parts])
        error = next((part.answers[1] for part in parts if part.answers[1]), None)
        return flags.translate(NEGATED) if operation.negates else flags, error

    def _commands(self, operation: Operation, part: _Part) -> list[Command]:
        key = self.keys[part.shard]
        if part.is_packed:
            name, *words = operation.packed
            return [(name, key, *words, *part.chunk.arguments)]
        command, *options = operation.separate
        items = list(part.chunk)
        starts = range(0, len(items), ITEMS_PER_COMMAND)
        return [
            (command, key, *options, *items[start : start + ITEMS_PER_COMMAND]) for start in starts
        ]

    def _is_answered(self, part: _Part, replies: Iterator[Any]) -> bool:
        """Reads the replies to the commands of a part. Returns False if it has to be sent in its other form."""
        count = len(part.chunk)
        if not part.is_packed:
            part.answers = _joined(replies, count)
            return True
        [reply] = replies
        if isinstance(reply, Exception):
            is_unknown = NAMES_PACKED_COMMAND.search(str(reply)) is not None
            if is_unknown:
                self._unpacked.add(part.shard)
            part.is_packed = not is_unknown and "not found" not in str(reply)
        part.answers = _bits(reply, count)
        return part.is_packed


class Commands(ItemCommands):
    """The conversations of a filter with its own options."""

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
        super().__init__(keys(name, shards))
        self.capacity = capacity_of_each(capacity, shards)
        self.error_rate = error_rate
        self.counting = counting
        self.window = window
        self.kind = window.options if window else ("COUNTING",) if counting else ()
        options = ("CAPACITY", self.capacity, "ERROR", error_rate, *self.kind)
        once = ("NX",) if counting else ()
        self.addition = Operation(
            ("BF.ADDPACKED", "NOCREATE", *once),
            ("BF.INSERT", *options, *once, "ITEMS"),
            negates=True,
        )

    @property
    def removal(self) -> Operation:
        if not self.counting:
            raise ValueError("items can be removed from counting filters only")
        return REMOVAL

    def card(self) -> Conversation[int]:
        return sum(map(_checked, (yield [("BF.CARD", key) for key in self.keys])))

    def info(self) -> Conversation[ShardedInfo]:
        replies = yield [("BF.INFO", key) for key in self.keys]
        return self._summed(map(_facts, map(_checked, replies)))

    def _summed(self, figures: Iterable[tuple[int, int, int, int]]) -> ShardedInfo:
        capacity, size, layers, items = map(sum, zip(*figures, strict=True))
        return ShardedInfo(capacity, size, layers, items, len(self.keys))

    def fold(self, capacity: int | None) -> Conversation[int]:
        room = () if capacity is None else ("CAPACITY", capacity_of_each(capacity, len(self.keys)))
        replies = yield [("BF.FOLD", key, *room) for key in self.keys]
        return min(int(_checked(reply)) for reply in replies)

    def clear(self) -> Conversation[None]:
        for reply in (yield [("UNLINK", key) for key in self.keys]):
            _checked(reply)

    def reserve(self) -> Conversation[bool]:
        """Creates the shards that are missing, and checks the others. Returns True if at least one was missing."""
        replies = yield [
            ("BF.RESERVE", key, self.error_rate, self.capacity, *self.kind) for key in self.keys
        ]
        existing = []
        for key, reply in zip(self.keys, replies, strict=True):
            if "item exists" in str(reply):
                existing.append(key)
            else:
                _raise_error(reply, key)
        if existing:
            yield from self._check(existing)
        return len(existing) < len(self.keys)

    def check(self) -> Conversation[ShardedInfo]:
        """Checks the shards that exist, and creates none. Returns the sums, in which the others are empty."""
        return self._summed((yield from self._check(self.keys)))

    def _check(self, keys: Sequence[Any]) -> Conversation[list[tuple[int, int, int, int]]]:
        """Checks shards. Returns the figures of each, which are those of an empty one if it does not exist."""
        replies = yield [("BF.INFO", key, "ALL") for key in keys]
        figures = []
        for key, reply in zip(keys, replies, strict=True):
            if isinstance(reply, Exception) and str(reply).endswith("not found"):
                figures.append((self.capacity, 0, 0, 0))
                continue
            _raise_error(reply, key)
            self._compare(key, _all_facts(reply))
            figures.append(_facts(reply))
        return figures

    def _compare(self, key: str, facts: dict[str, Any]) -> None:
        """Checks that an existing shard has the error rate, the kind and the window of this filter."""
        error_rate = float(facts["Error rate"])
        if error_rate != self.error_rate:
            raise FilterMismatchError(key, f"an error rate of {error_rate}", self.error_rate)
        counting = facts["Layout"] == "counting"
        if counting != self.counting:
            raise FilterMismatchError(key, CELLS[counting], CELLS[self.counting])
        window = Window.from_facts(facts)
        if window != self.window:
            raise FilterMismatchError(key, window or NONE, self.window or NONE)


def _checked(reply: Any) -> Any:
    """Returns a reply. Raises it if it is an error."""
    if isinstance(reply, Exception):
        raise reply
    return reply


def _bits(reply: Any, count: int) -> Answers:
    """Returns the answers in the reply to packed items."""
    if isinstance(reply, Exception):
        return b"", reply
    if isinstance(reply, list):
        handled, bits, error = reply
        return unpacked(bits, handled), error
    return unpacked(reply, count), None


def _flags(reply: Any, count: int) -> Answers:
    """Returns the answers in the reply to items that are arguments. Its last element may be an error."""
    if isinstance(reply, Exception):
        return b"", reply
    error = reply[-1] if reply and isinstance(reply[-1], Exception) else None
    flags = bytes(reply[:-1] if error else reply)
    if not error and len(flags) != count:
        raise ValueError(f"expected {count} answers, not {len(flags)}")
    return flags, error


def _joined(replies: Iterator[Any], count: int) -> Answers:
    """Returns the answers in the replies to the commands for `count` items."""
    joined = b""
    for reply in replies:
        flags, error = _flags(reply, min(count - len(joined), ITEMS_PER_COMMAND))
        joined += flags
        if error:
            return joined, error
    return joined, None


def _facts(reply: Any) -> tuple[int, int, int, int]:
    """Returns capacity, size, layers and items from a reply of BF.INFO, in RESP2 or RESP3."""
    values = list(reply.values()) if isinstance(reply, dict) else reply[1::2]
    capacity, size, layers, items = map(int, values[:4])
    return capacity, size, layers, items


def _all_facts(reply: Any) -> dict[str, Any]:
    """Returns the fields of a reply of `BF.INFO key ALL`, in RESP2 or RESP3."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _raise_error(reply: Any, key: str) -> None:
    """Raises the reply if it is an error."""
    if isinstance(reply, Exception) and re.search("WRONGTYPE|wrong kind of value", str(reply)):
        raise KeyTakenError(key)
    _checked(reply)
