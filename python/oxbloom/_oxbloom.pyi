from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Protocol, Self, TypeAlias, final, overload

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

_Items: TypeAlias = Iterable[str | bytes] | _ArrowArray | _ArrowStream
_NumPyItems: TypeAlias = npt.NDArray[np.str_] | npt.NDArray[np.bytes_]

class FilterFullError(IndexError):
    """The filter is full and does not grow, or cannot grow any further. An IndexError, as in pybloom."""

def plan(
    items: int,
    capacity: int,
    error_rate: float,
    *,
    growing: bool | int | None = None,
    counting: bool = False,
    window: timedelta | None = None,
    rolling: bool = False,
    slices: int | None = None,
    classic: bool = False,
) -> Plan:
    """Predicts a filter with `items` items, without allocating it. The other arguments are those of BloomFilter."""

@final
class BloomFilter:
    """A Bloom filter: a set of items that takes few bits for each.

    `item in filter` is never False for an item that was added. It is True for other items at most at the error rate: these are
    false positives. The bits are those of an oxbloom filter on a server, so that filters travel between both.

    An item is a str, which stands for its UTF-8 bytes, or bytes: what clients send to a server. Anything else is a TypeError.

    capacity: how many distinct items fit, at least 1.
    error_rate: the share of false positives in a full filter, above 0 and below 1.
    growing: True if the filter grows when it is full, at the same error rate; or the expansion, as BF.RESERVE takes it.
    seed: the seed of the hash. It is random by default, and anyone who knows it can craft items that collide. Only filters
    with equal seeds can be united: see empty_like.
    counting: True for a filter from which items can be removed, and that counts them.
    window: how long an item is remembered: for that time at least, and a slice longer at most.
    rolling: True for a filter that remembers the last `capacity` items. Can be combined with a window.
    refresh: True if an item that is added again is remembered anew.
    slices: into how many slices a window is divided, 2 to 64: 8 by default.
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
        window: timedelta | None = None,
        rolling: bool = False,
        refresh: bool = False,
        slices: int | None = None,
        classic: bool = False,
    ) -> BloomFilter: ...
    def add(self, item: str | bytes) -> bool:
        """Adds an item. Returns True if it was there already, or seemed to be, and False if it is new, as pybloom does.

        BF.ADD replies the other way around. Raises FilterFullError if there is no room for the item.
        """

    def __contains__(self, item: str | bytes, /) -> bool:
        """Returns False if the item is not in the filter, and True if it probably is."""

    def remove(self, item: str | bytes) -> bool:
        """Removes one occurrence of an item from a counting filter. Returns False if it was not there.

        Never remove an item that was not added: if it is a false positive, another item disappears.
        """

    def count_of(self, item: str | bytes) -> int:
        """Returns how often an item is in a counting filter: at the error rate, more often than it was added."""

    @overload
    def add_all(self, items: _NumPyItems) -> npt.NDArray[np.bool_]: ...  # type: ignore[overload-overlap]
    @overload
    def add_all(self, items: _Items) -> list[bool]:
        """Adds items in order. Returns for each whether it was there already, as add does.

        Takes any iterable of str and bytes, NumPy arrays of the dtypes S and U, and Arrow arrays of strings. These arrays are
        read without a loop in Python, and NumPy's get an array as the answer. Other threads run while items are hashed.

        If an item cannot be added, those before it are in the filter.
        """

    @overload
    def contains_all(self, items: _NumPyItems) -> npt.NDArray[np.bool_]: ...  # type: ignore[overload-overlap]
    @overload
    def contains_all(self, items: _Items) -> list[bool]:
        """Returns for each item whether it is in the filter. Takes what add_all takes."""

    @overload
    def remove_all(self, items: _NumPyItems) -> npt.NDArray[np.bool_]: ...  # type: ignore[overload-overlap]
    @overload
    def remove_all(self, items: _Items) -> list[bool]:
        """Removes one occurrence of each item from a counting filter. Returns for each whether it was there."""

    @overload
    def count_all(self, items: _NumPyItems) -> npt.NDArray[np.uint64]: ...  # type: ignore[overload-overlap]
    @overload
    def count_all(self, items: _Items) -> list[int]:
        """Returns for each item how often it is in a counting filter. Takes what add_all takes."""

    def __len__(self) -> int: ...
    def advance_to(self, time: float | datetime) -> None:
        """Tells a filter with a window what time it is, in seconds since 1970 or as a datetime.

        Without this call, the filter reads the system's clock. From the first call on, it has the time that it was told last.
        Time does not go back: an earlier time changes nothing.
        """

    def copy(self) -> BloomFilter:
        """Returns a copy that shares nothing with the filter."""

    def __copy__(self) -> BloomFilter: ...
    def __deepcopy__(self, memo: object) -> BloomFilter: ...
    def empty_like(self) -> BloomFilter:
        """Returns an empty filter with the same options and seed, so that the two can be united."""

    def union(self, other: BloomFilter) -> BloomFilter:
        """Returns a filter with all items of both. In counting filters, the counts add up.

        Raises ValueError if the filters differ in their options or seeds, or forget.
        """

    def intersection(self, other: BloomFilter) -> BloomFilter:
        """Returns a filter with the items that are in both, and more false positives than in either.

        Raises ValueError as union does, and if a filter has grown, or is a counting filter that may grow.
        """

    def __or__(self, other: BloomFilter, /) -> BloomFilter: ...
    def __and__(self, other: BloomFilter, /) -> BloomFilter: ...
    def __ior__(self, other: BloomFilter, /) -> Self: ...
    def __iand__(self, other: BloomFilter, /) -> Self: ...
    @property
    def capacity(self) -> int:
        """How many distinct items fit before the filter is full, or grows further."""

    @property
    def error_rate(self) -> float:
        """The share of false positives that the filter was created for."""

    @property
    def count(self) -> int:
        """The number of items that were new when they were added, as len(filter): an estimate after a union."""

    @property
    def seed(self) -> int | None:
        """The seed of the hash, or None for a classic filter."""

    @property
    def growing(self) -> int | None:
        """The expansion of a filter that grows, or None."""

    @property
    def kind(self) -> Kind:
        """What the filter is made of: native, counting, windowed or classic."""

    @property
    def memory(self) -> int:
        """The bytes that the filter takes."""

    def info(self) -> Info:
        """Returns all that is known of the filter, and of each of its parts."""

    def dump(self) -> bytes:
        """Returns the filter as bytes: what DUMP replies and RESTORE takes, with a checksum. They contain the seed."""

    @staticmethod
    def load(data: Buffer, *, max_memory: int | None = None) -> BloomFilter:
        """Returns the filter of a DUMP payload of oxbloom or RedisBloom, or of the bytes of the Rust library.

        Raises ValueError if the data is damaged or something else, or if the filter takes more than max_memory bytes. Set
        max_memory for data from others: a few bytes can describe a filter of any size.
        """

    def __reduce__(self) -> tuple[Any, ...]: ...
    @staticmethod
    def _restore(data: bytes, is_driven: bool) -> BloomFilter: ...
    def tofile(self, file: BinaryIO) -> None:
        """Writes the filter to a binary file: what dump returns."""

    @staticmethod
    def fromfile(file: BinaryIO, n: int = -1, *, max_memory: int | None = None) -> BloomFilter:
        """Returns the filter of a binary file, or of its next n bytes. Raises ValueError as load does."""

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Returns the filter in chunks: iterators and data, as BF.SCANDUMP replies with them and BF.LOADCHUNK takes them.

        The filter must not change meanwhile.
        """

    @staticmethod
    def from_chunks(
        chunks: Iterable[tuple[int, bytes]], *, max_memory: int | None = None
    ) -> BloomFilter:
        """Returns the filter of the chunks of BF.SCANDUMP, all of them in order. Raises ValueError as load does."""

    def save_to(
        self,
        client: Server,
        key: str | bytes,
        *,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Saves the filter in a key of a server, in chunks, so that it may be of any size.

        It is loaded into a key beside this one, and takes its name when it is whole. The key's time to live is lost.

        client: of redis-py or valkey-py; one of a cluster, too.
        replace: True to overwrite the key. Otherwise KeyError is raised if it exists.
        progress: is called with the bytes that are done and those that there are, after each chunk.
        """

    @staticmethod
    def load_from(
        client: Server,
        key: str | bytes,
        *,
        max_memory: int | None = None,
        progress: Progress | None = None,
    ) -> BloomFilter:
        """Returns the filter in a key of a server, in chunks, so that it may be of any size.

        Raises KeyError if there is no such key, and RuntimeError if the filter changes again and again while it is read.

        client: of redis-py or valkey-py; one of a cluster, too. It must not decode replies.
        max_memory: the most bytes that the filter may take. Raises ValueError if it takes more.
        progress: is called with the bytes that are done and those that there are, after each chunk.
        """

    def _header(self) -> bytes: ...
