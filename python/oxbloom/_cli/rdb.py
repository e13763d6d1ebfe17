"""Finds the filters in an RDB file: a snapshot of a server, with keys of all types.

The values of other types are not parsed. A filter begins with the ID of its data type, which hardly occurs by chance,
and its key comes before it:

    7 (a module's value), the key (a string), 129 and the ID (eight bytes), the values, 0 (the end)

`filter/src/codec/payload.rs` describes lengths, strings and values.

The work is linear in the size of the file, also if somebody has crafted it. A place that only looks like a filter can
make us read to the end of the file, so the values that are read in vain are counted, and the search gives up after
MOST_IN_VAIN.
"""

import mmap
from collections.abc import Iterator
from typing import NamedTuple

from oxbloom._cli.data_types import DATA_TYPES
from oxbloom._oxbloom import BloomFilter

MAGIC = (b"REDIS", b"VALKEY")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
VERSION_BITS = 10
MODULE_VALUE = b"\x07"
MAX_KEY = 1024  # the bytes before an ID in which its key is looked for
LENGTHS = {0x80: 4, 0x81: 8}  # the bytes of a length after its first byte
INTEGERS = {0xC0: 1, 0xC1: 2, 0xC2: 4}  # the bytes of an integer, which stands for its digits
COMPRESSED = 0xC3
SIZES = {1: 0, 2: 0, 3: 4, 4: 8}  # the bytes of a number after its kind; 0: a length
END, STRING = 0, 5
MOST_IN_VAIN = 1_000_000  # values: about a second. In a file of a server, hardly any are


class Found(NamedTuple):
    """A filter in a file, or the reason why it cannot be loaded."""

    key: bytes | None  # None if it is compressed
    filter: BloomFilter | ValueError | MemoryError


class NotThisError(Exception):
    """The bytes are not those of a filter: the ID occurred by chance."""


class MisleadingError(Exception):
    """Too much of the file only looks like a filter."""


def is_rdb(start: bytes) -> bool:
    return start.startswith(MAGIC)


def filters(data: mmap.mmap) -> Iterator[Found]:
    """Yields the filters in a file, in order. Raises MisleadingError if it gives up."""
    ids = {type_id(each.name) for each in DATA_TYPES}
    # The last bytes of an ID also have the version.
    places = {b"\x81" + id.to_bytes(8, "big")[:6]: 0 for id in ids}
    at = in_vain = 0
    while places:
        for start in [start for start, place in places.items() if place <= at]:
            places[start] = data.find(start, at)
            if places[start] < 0:
                del places[start]
        if not places:
            break
        at = min(places.values())
        id, value = length(data, at)
        reader = Reader(data)
        try:
            if id >> VERSION_BITS << VERSION_BITS not in ids:
                raise NotThisError
            key, end = reader.key_before(at), reader.end_of(value)
        except (NotThisError, IndexError):
            at += 1
            in_vain += reader.values
            if in_vain > MOST_IN_VAIN:
                raise MisleadingError(
                    f"the file was crafted: after byte {at}, too much only looks like a filter"
                ) from None
            continue
        yield Found(key, loaded(data[at:end]))
        at = end


def loaded(value: bytes) -> BloomFilter | ValueError | MemoryError:
    try:
        return BloomFilter._of_value(value)
    except (ValueError, MemoryError) as error:
        return error


def type_id(name: str) -> int:
    """Returns the ID of a data type, without its version."""
    number = 0
    for letter in name:
        number = number << 6 | LETTERS.index(letter)
    return number << VERSION_BITS


class Reader:
    """Reads the values around an ID, and counts them."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.values = 0

    def key_before(self, end: int) -> bytes | None:
        """Returns the key that ends here, or None if it is compressed."""
        first, start = max(end - 1 - MAX_KEY, 0), end - 1
        while (start := self.data.rfind(MODULE_VALUE, first, start)) >= 0:
            self.values += 1
            try:
                key, key_end = string(self.data, start + 1)
            except NotThisError:
                continue
            if key_end == end:
                return key
        raise NotThisError

    def end_of(self, at: int) -> int:
        """Returns the end of a filter's values."""
        while True:
            self.values += 1
            kind, at = length(self.data, at)
            if kind == END:
                return at
            if kind == STRING:
                _, at = string(self.data, at)
            elif kind not in SIZES:
                raise NotThisError
            elif SIZES[kind]:
                at += SIZES[kind]
            else:
                _, at = length(self.data, at)
            if at >= len(self.data):
                raise NotThisError


def length(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Reads a length. Returns it, and where it ends."""
    first = data[at]
    if first in LENGTHS:
        end = at + 1 + LENGTHS[first]
        return int.from_bytes(data[at + 1 : end], "big"), end
    if first >> 6 == 0:
        return first, at + 1
    if first >> 6 == 1:
        return (first & 0x3F) << 8 | data[at + 1], at + 2
    raise NotThisError


def string(data: mmap.mmap, at: int) -> tuple[bytes | None, int]:
    """Reads a string. Returns its first bytes, or None if it is compressed, and where it ends."""
    first = data[at]
    if first in INTEGERS:
        end = at + 1 + INTEGERS[first]
        return b"%d" % int.from_bytes(data[at + 1 : end], "little", signed=True), end
    if first == COMPRESSED:
        packed, start = length(data, at + 1)
        _, start = length(data, start)
        return None, start + packed
    size, start = length(data, at)
    return data[start : start + min(size, MAX_KEY)], start + size
