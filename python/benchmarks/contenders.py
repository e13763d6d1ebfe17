"""The Bloom filters that `filters.py` compares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fastbloom_rs import BloomFilter as FastBloomFilter
from oxbloom import BloomFilter
from pybloom_live import BloomFilter as PyBloomFilter
from rbloom import Bloom

ERROR_RATE = 0.01
CHUNK = 1_000_000
"""The number of items that are created at a time, to fill a filter."""


def items(start: int, end: int) -> list[str]:
    return [f"https://example.com/{number:x}" for number in range(start, end)]


def chunks(start: int, end: int) -> Iterator[list[str]]:
    return (items(at, min(at + CHUNK, end)) for at in range(start, end, CHUNK))


class Contender:
    """A filter of one of the libraries."""

    name: str
    filter: Any

    def fill(self, start: int, end: int) -> None:
        for chunk in chunks(start, end):
            self.add_all(chunk)

    def add(self, wanted: Sequence[str]) -> object:
        add = self.filter.add
        for item in wanted:
            add(item)
        return None

    def look_up(self, wanted: Sequence[str]) -> list[bool]:
        seen = self.filter
        return [item in seen for item in wanted]

    def add_all(self, wanted: Sequence[str]) -> object:
        return self.add(wanted)

    def look_up_all(self, wanted: Sequence[str]) -> Sequence[bool]:
        return self.look_up(wanted)


class Oxbloom(Contender):
    name = "oxbloom"

    def __init__(self, capacity: int) -> None:
        self.filter = BloomFilter(capacity, ERROR_RATE)

    def add_all(self, wanted: Sequence[str]) -> object:
        return self.filter.add_all(wanted)

    def look_up_all(self, wanted: Sequence[str]) -> Sequence[bool]:
        return self.filter.contains_all(wanted)

    def memory(self) -> int:
        return self.filter.memory


class PyBloom(Contender):
    name = "pybloom-live"

    def __init__(self, capacity: int) -> None:
        self.filter = PyBloomFilter(capacity, ERROR_RATE)

    def memory(self) -> int:
        return len(self.filter.bitarray) // 8


class RBloom(Contender):
    name = "rbloom"

    def __init__(self, capacity: int) -> None:
        self.filter = Bloom(capacity, ERROR_RATE)

    def add_all(self, wanted: Sequence[str]) -> object:
        return self.filter.update(wanted)

    def memory(self) -> int:
        return self.filter.size_in_bits // 8


class FastBloom(Contender):
    name = "fastbloom-rs"

    def __init__(self, capacity: int) -> None:
        self.filter = FastBloomFilter(capacity, ERROR_RATE)

    def add(self, wanted: Sequence[str]) -> object:
        add = self.filter.add_str
        for item in wanted:
            add(item)
        return None

    def look_up(self, wanted: Sequence[str]) -> list[bool]:
        contains = self.filter.contains_str
        return [contains(item) for item in wanted]

    def add_all(self, wanted: Sequence[str]) -> object:
        return self.filter.add_str_batch(wanted)

    def look_up_all(self, wanted: Sequence[str]) -> Sequence[bool]:
        return self.filter.contains_str_batch(wanted)

    def memory(self) -> int:
        return self.filter.config().size() // 8


CONTENDERS = (Oxbloom, PyBloom, RBloom, FastBloom)
