from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, BinaryIO, ClassVar, Protocol, Self, TypeAlias, final, overload

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from oxbloom._types import Info, Kind, Plan, Progress, Server

class _ArrowArray(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _Series(Protocol):
    @property
    def dtype(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...

_Column: TypeAlias = _Series | _ArrowArray | _ArrowStream
_Item: TypeAlias = str | bytes | bytearray | memoryview
_Items: TypeAlias = Iterable[_Item]
_File: TypeAlias = BinaryIO | str | bytes | PathLike[str] | PathLike[bytes]

class FilterFullError(IndexError):
    """Raised if a filter is full and cannot grow (any further). It is an IndexError, as in pybloom."""

    answers: Sequence[bool] | npt.NDArray[np.bool_]
    """The answers to the items of add_all before the first one that was not added. Otherwise, there are none."""

# What other modules of the package use. python/src documents it.

def plan(
    items: int,
    capacity: int,
    error_rate: float,
    *,
    growing: bool | int | None = None,
    counting: bool = False,
    window: float | timedelta | None = None,
    rolling: bool = False,
    slices: int | None = None,
    classic: bool = False,
) -> Plan: ...
def data_types() -> list[tuple[str, str, str, bool]]: ...
def encoded(item: _Item) -> bytes: ...

@final
class Chunk(Iterable[bytes]):
    @staticmethod
    def of_lines(block: bytes) -> Chunk: ...
    def __len__(self) -> int: ...
    @property
    def arguments(self) -> tuple[str | int | bytes | memoryview, ...]: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def by_shard(self, shards: int) -> ShardedChunk: ...

@final
class ShardedChunk:
    @property
    def parts(self) -> list[tuple[int, Chunk]]: ...
    def merged(self, flags: Sequence[bytes]) -> bytes: ...

@final
class ItemChunks(Iterator[Chunk]):
    def __new__(cls, items: _Column | _Items, most: int, most_bytes: int) -> ItemChunks: ...
    def __next__(self) -> Chunk: ...
    def converted(self, answers: bytes) -> Any: ...

def unpacked(bits: bytes, count: int) -> bytes: ...

@final
class BloomFilter:
    """A Bloom filter: a set that stores each item in a few bits.

    `item in filter` is always True for an item that was added. For other items, it is False, except for false
    positives: at most a share of error_rate. The bits are the same as in an oxbloom filter on a server, so filters can
    be copied between both.

    An item is a str, bytes, a bytearray, or a memoryview of bytes. A str stands for its UTF-8 bytes, as in clients of
    servers. Other types raise TypeError.

    capacity: the number of distinct items that fit, at least 1.
    error_rate: the false-positive rate of a full filter, above 0 and below 1.
    growing: True if the filter grows when it is full, at the same error rate; or the expansion, as for BF.RESERVE.
    seed: the seed of the hash, random by default. Anyone who knows it can craft items that collide. Only filters with
    equal seeds can be merged: see empty_like.
    counting: True for a filter that counts its items, so that they can be removed.
    window: the time for which an item is remembered, in seconds or as a timedelta. It is forgotten at most one slice of
    the window later.
    rolling: True for a filter that remembers the last `capacity` items. Can be combined with a window.
    refresh: True if an item's time starts again when the item is added again.
    slices: the number of slices of a window, from 2 to 64, by default 15. The filter forgets one slice at a time.
    classic: True for RedisBloom's layout.
    """

    def __new__(
        cls,
        capacity: int,
        error_rate: float = 0.001,
        *,
        growing: bool | int | None = None,
        seed: int | None = None,
        counting: bool = False,
        window: float | timedelta | None = None,
        rolling: bool = False,
        refresh: bool = False,
        slices: int | None = None,
        classic: bool = False,
    ) -> BloomFilter: ...
    def add(self, item: _Item) -> bool:
        """Adds an item. As in pybloom, returns True if it was already there (or is a false positive), and False if it
        is new.

        BF.ADD returns the opposite. Raises FilterFullError if there is no room for the item.
        """

    def __contains__(self, item: object, /) -> bool:
        """Returns False if the item is not in the filter, and True if it probably is."""

    def remove(self, item: _Item) -> bool:
        """Removes one occurrence of an item from a counting filter. Returns False if it was not there.

        Never remove an item that was not added: if it is a false positive, another item disappears.
        """

    def count_of(self, item: _Item) -> int:
        """Returns the count of an item in a counting filter. A share of the counts, up to error_rate, is too high."""

    @overload
    def add_all(self, items: _Column) -> npt.NDArray[np.bool_]: ...
    @overload
    def add_all(self, items: _Items) -> list[bool]:
        """Adds items in order. For each item, returns whether it was already there, like add.

        Takes any iterable of str and bytes, and columns of NumPy, pandas, Polars, pyarrow and other Arrow libraries.
        NumPy arrays of the dtypes S and U and Arrow arrays of strings, also with categories, are read without a loop in
        Python. Other threads run while items are hashed.

        For a column, the result is a NumPy array, so that df[~seen.add_all(df.url)] is the new rows. (Without NumPy, it
        is a list.) For other iterables, it is a list.

        Ctrl-C and other signals interrupt the call after a few milliseconds. Whatever ends the call early (a signal, a
        full filter, an item of another type, a missing value, the iterable itself), the items before it are in the
        filter, and the attribute answers of the exception has their answers. Only a full filter leaves items behind
        that were taken from an iterator and not added: up to 4096 are read ahead.
        """

    def update(self, items: _Column | _Items) -> None:
        """Adds items like add_all, without returning answers."""

    @overload
    def contains_all(self, items: _Column) -> npt.NDArray[np.bool_]: ...
    @overload
    def contains_all(self, items: _Items) -> list[bool]:
        """For each item, returns whether it is in the filter. Takes the same types as add_all."""

    @overload
    def remove_all(self, items: _Column) -> npt.NDArray[np.bool_]: ...
    @overload
    def remove_all(self, items: _Items) -> list[bool]:
        """Removes one occurrence of each item from a counting filter. For each, returns whether it was there."""

    @overload
    def count_all(self, items: _Column) -> npt.NDArray[np.uint64]: ...
    @overload
    def count_all(self, items: _Items) -> list[int]:
        """For each item, returns its count in a counting filter. Takes the same types as add_all."""

    def __len__(self) -> int: ...
    def advance_to(self, time: float | datetime) -> None:
        """Sets the time of a filter with a window, in seconds since 1970 or as a datetime.

        Until the first call, the filter uses the system's clock. After that, its time is the latest that was set. An
        earlier time changes nothing.
        """

    def copy(self) -> BloomFilter:
        """Returns an independent copy."""

    def __copy__(self) -> BloomFilter: ...
    def __deepcopy__(self, memo: object) -> BloomFilter: ...
    def empty_like(self) -> BloomFilter:
        """Returns an empty filter with the same options and seed, so that the two can be merged."""

    def clear(self) -> None:
        """Removes all items. The options, the seed and the time stay the same."""

    def fold(self, capacity: int = 0) -> int:
        """Shrinks a filter that was created too large, to room for `capacity` items, or for those that it has. Returns
        the factor by which it is smaller.

        Raises ValueError if the filter counts, forgets, or has another layout than "native".
        """

    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def union(self, other: BloomFilter) -> BloomFilter:
        """Returns a filter with the items of both filters. In counting filters, the counts are added.

        The capacities may differ if the larger filter can be folded to the other's. Raises ValueError if other options
        or the seeds differ, or if the filters forget.
        """

    def intersection(self, other: BloomFilter) -> BloomFilter:
        """Returns a filter with the items that are in both filters.

        It has more false positives than a filter to which only these items were added. Raises ValueError like union,
        and also if a filter has grown, or is a counting filter that can grow.
        """

    def __or__(self, other: BloomFilter, /) -> BloomFilter: ...
    def __and__(self, other: BloomFilter, /) -> BloomFilter: ...
    def __ior__(self, other: BloomFilter, /) -> Self: ...
    def __iand__(self, other: BloomFilter, /) -> Self: ...
    @property
    def capacity(self) -> int:
        """The number of distinct items that fit before the filter is full or grows again."""

    @property
    def error_rate(self) -> float:
        """The error rate that the filter was created with."""

    @property
    def count(self) -> int:
        """The number of items that were new when they were added, like len(filter). Unions make it an estimate."""

    @property
    def seed(self) -> int | None:
        """The seed of the hash, or None for a filter with the layout of RedisBloom or valkey-bloom."""

    @property
    def growing(self) -> int | None:
        """The expansion, or None if the filter does not grow."""

    @property
    def kind(self) -> Kind:
        """The kind of filter. Filters from servers also have kinds that cannot be created here."""

    @property
    def memory(self) -> int:
        """The memory of the filter, in bytes."""

    def info(self) -> Info:
        """Returns information about the filter and each of its parts."""

    def dump(self) -> bytes:
        """Returns the filter as a DUMP payload, which RESTORE accepts. It has a checksum, and contains the seed."""

    @staticmethod
    def load(data: Buffer, *, max_memory: int | None = None) -> BloomFilter:
        """Loads a filter from a DUMP payload of oxbloom or RedisBloom, or from bytes that the Rust library wrote.

        Raises ValueError if the data is damaged or is not a filter, or if the filter takes more than max_memory bytes.
        Set max_memory for data from others: a few bytes can describe a filter of any size.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...
    @staticmethod
    def _restore(data: bytes, is_driven: bool) -> BloomFilter: ...
    @staticmethod
    def _of_value(value: bytes) -> BloomFilter: ...
    def tofile(self, file: _File) -> None:
        """Writes the filter to a binary file, in the format of dump.

        Raises BlockingIOError if an unbuffered file does not block and cannot take all bytes.

        file: a file that is open for writing bytes, or a path. A path then has the complete filter, or, after an error,
        what was there before.
        """

    @staticmethod
    def fromfile(file: _File, n: int = -1, *, max_memory: int | None = None) -> BloomFilter:
        """Loads a filter from a binary file, or from its next n bytes. Raises ValueError like load.

        file: a file that is open for reading bytes, or a path.
        """

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Returns the chunks of the filter: a cursor and data each, as BF.SCANDUMP returns and BF.LOADCHUNK accepts.

        The filter must not change until the last chunk has been read.
        """

    @staticmethod
    def from_chunks(
        chunks: Iterable[Sequence[int | bytes]], *, max_memory: int | None = None
    ) -> BloomFilter:
        """Loads a filter from all chunks of BF.SCANDUMP, in order: a cursor and data each.

        Ignores the last reply, whose cursor is 0. Raises ValueError like load, and also if chunks are missing, or the
        filter was changed while they were read.
        """

    def save_to(
        self,
        client: Server,
        key: str | bytes,
        *,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Saves the filter in a key of a server. It is sent in chunks, so it may have any size.

        The chunks are loaded into a temporary key, which is renamed when the filter is complete. An overwritten key
        loses its TTL.

        Raises RuntimeError if the filter is changed, or the temporary key is deleted, before all is saved.

        client: a client of redis-py or valkey-py, for a server or a cluster.
        replace: True to overwrite the key. Otherwise, raises KeyError if it exists.
        progress: a function that is called after each chunk, with the bytes that are done and the total.
        """

    @staticmethod
    def load_from(
        client: Server,
        key: str | bytes,
        *,
        max_memory: int | None = None,
        progress: Progress | None = None,
    ) -> BloomFilter:
        """Loads the filter in a key of a server. It is read in chunks, so it may have any size.

        Raises KeyError if there is no such key, and RuntimeError if the filter changed during each of three attempts.

        client: a client of redis-py or valkey-py, for a server or a cluster.
        max_memory: the maximum memory of the filter, in bytes. Raises ValueError if it takes more.
        progress: a function that is called after each chunk, with the bytes that are done and the total.
        """

    def _header(self) -> bytes: ...
    @staticmethod
    def _from_header(header: bytes) -> BloomFilter: ...
    def _load_chunk(self, cursor: int, chunk: bytes) -> None: ...
    def _insert_changes(self, changes: bytes) -> None: ...
