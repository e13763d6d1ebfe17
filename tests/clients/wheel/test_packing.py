"""Items are packed as the server reads them: each is the same item as in BloomFilter, and columns are not copied."""

import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from oxbloom import BloomFilter
from oxbloom._oxbloom import Chunk, ItemChunks, unpacked

MOST, MOST_BYTES = 10_000, 1 << 18
URLS = [f"https://example.com/{number}" for number in range(25_000)]
ODD = ["", "a", "straße", "😀" * 2000, "x\0y", "", "z" * 300_000, "end"]


def read(arguments: tuple[Any, ...]) -> list[bytes]:
    """Reads the last arguments of a packed command, as docs/commands describe them."""
    match arguments:
        case ("FIXED", width, items):
            items = bytes(items)
            assert width > 0
            return [items[start : start + width] for start in range(0, len(items), width)]
        case ("OFFSETS" | "OFFSETS64" as name, offsets, items):
            kind = "<u4" if name == "OFFSETS" else "<u8"
            ends = np.frombuffer(offsets, kind).astype(int)
            ends -= ends[0]
            assert ends[-1] == len(items)
            items = bytes(items)
            return [items[start:end] for start, end in pairwise(ends)]
        case ("LINES", items):
            return bytes(items).removesuffix(b"\n").split(b"\n") if items else []
    raise AssertionError(arguments[0])


def chunked(items: Any, most: int = MOST, most_bytes: int = MOST_BYTES) -> Iterator[Chunk]:
    for chunk in ItemChunks(items, most, most_bytes):
        assert read(chunk.arguments) == list(chunk)
        assert 0 < len(chunk) == len(list(chunk)) <= most
        yield chunk


def encoded(items: list[str]) -> list[bytes]:
    return [item.encode() for item in items]


def categories(items: list[str]) -> Any:
    return pa.array(items).dictionary_encode()


def sliced(items: list[str]) -> Any:
    return pa.array(["before", *items, "after"])[1:-1]


def without_its_null(items: list[str]) -> Any:
    return pa.array([None, *items])[1:]


def in_small_parts(items: list[str]) -> Any:
    return pa.chunked_array(
        [items[start : start + 7] for start in range(0, len(items), 7)], pa.string()
    )


def large(items: list[str]) -> Any:
    return pa.array(items, pa.large_string())


SOURCES: list[Callable[[list[str]], Any]] = [
    list,
    iter,
    encoded,
    pa.array,
    sliced,
    without_its_null,
    in_small_parts,
    large,
    categories,
    pd.Series,
    pl.Series,
    lambda items: pa.array(items, pa.string_view()),
    lambda items: pd.Series(items, dtype="category"),
    lambda items: np.array(items, dtype=object),
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "items", [URLS, ODD, [], ["", "", ""]], ids=["URLs", "odd", "none", "empty"]
)
def test_the_items_of_all_sources_arrive(
    source: Callable[[list[str]], Any], items: list[str]
) -> None:
    chunks = list(chunked(source(items)))
    assert [item for chunk in chunks for item in chunk] == encoded(items)
    for chunk in chunks:
        # Only the last item of a copied chunk may cross the limit.
        assert sum(map(len, list(chunk)[:-1])) <= MOST_BYTES
    # Small parts share chunks.
    assert len(chunks) <= 3 * (1 + sum(map(len, encoded(items))) // MOST_BYTES)


@pytest.mark.parametrize(
    "column",
    [
        np.array(["a", "", "straße", "end"]),
        np.array([b"a", b"", b"a\0b", b"end"]),
        np.array([b"abc", b"a\0b"]),
        np.array([b"abc", b"abd", b"abe", b"abf"])[::2],
        np.array([b"abc", b"abd"])[::-1],
        np.array(URLS),
        np.array(URLS, dtype="S"),
        np.array([b"", b""]),
    ],
)
def test_items_of_numpy_are_those_of_a_bloom_filter(column: Any) -> None:
    sent = [item for chunk in chunked(column) for item in chunk]
    assert sent == [item.encode() if isinstance(item, str) else item for item in column.tolist()]
    local = BloomFilter(100_000, 1e-15)
    local.add_all(column)
    assert all(local.contains_all(sent))


def address(buffer: Any) -> int:
    return int(np.frombuffer(buffer, "u1").ctypes.data)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("start", [0, 5000])
def test_strings_of_arrow_are_not_copied(kind: pa.DataType, start: int) -> None:
    column = pa.array(URLS, kind)[start:]
    _, offsets, data = column.buffers()
    chunks = list(chunked(column))
    width = 8 if "large" in str(kind) else 4
    assert chunks[0].arguments[0] == ("OFFSETS64" if width == 8 else "OFFSETS")
    item = start
    for chunk in chunks:
        _, sent_offsets, sent = chunk.arguments
        assert address(sent_offsets) == offsets.address + item * width
        assert address(sent) == data.address + sum(map(len, URLS[:item]))
        item += len(chunk)
        if item > len(URLS) - 1000:
            break
    assert item > len(URLS) - MOST


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"%016d" % number for number in range(20_000)], pa.binary(16)),
        np.array([b"%016d" % number for number in range(20_000)]),
    ],
)
def test_items_of_one_width_are_not_copied(column: Any) -> None:
    start = column.buffers()[1].address if isinstance(column, pa.Array) else column.ctypes.data
    chunks = list(chunked(column))
    assert [len(chunk) for chunk in chunks] == [10_000, 10_000]
    for number, chunk in enumerate(chunks):
        assert chunk.arguments[:2] == ("FIXED", 16)
        assert address(chunk.arguments[2]) == start + number * 160_000


def test_memory_outlives_the_column() -> None:
    [chunk] = ItemChunks(pa.array(URLS[:9000]), MOST, 1 << 30)
    arguments = chunk.arguments
    assert len(arguments[2]) > 100_000
    assert isinstance(arguments[2], memoryview)
    assert arguments[2].readonly
    del chunk
    for _ in range(10):
        pa.array(URLS)
    assert read(arguments) == encoded(URLS[:9000])


def test_copied_items_of_one_length_need_no_offsets() -> None:
    [chunk] = chunked(iter([b"ab", "cd", b"ef"]))
    assert chunk.arguments == ("FIXED", 2, b"abcdef")


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n", [b""]),
        (b"a\n\nb\r\n", [b"a", b"", b"b\r"]),
        (b"a\nb", [b"a", b"b"]),
    ],
)
def test_lines_are_those_of_the_server(block: bytes, lines: list[bytes]) -> None:
    chunk = Chunk.of_lines(block)
    assert chunk.arguments == ("LINES", block)
    assert list(chunk) == lines
    assert len(chunk) == len(lines)


@pytest.mark.parametrize("source", [list, pa.array, in_small_parts, pd.Series])
@pytest.mark.parametrize("index", [0, 1, 3, 9999, 10_000, 10_001, 24_999])
def test_items_before_one_that_cannot_be_read_are_sent(
    source: Callable[[list[Any]], Any], index: int
) -> None:
    items = source([*URLS[:index], None, *URLS[index + 1 :]])
    chunks = ItemChunks(items, MOST, MOST_BYTES)
    sent: list[bytes] = []

    def send_all() -> None:
        for chunk in chunks:
            sent.extend(chunk)

    with pytest.raises(TypeError, match=rf"the item at index {index} must be"):
        send_all()
    assert sent == encoded(URLS[:index])


@pytest.mark.parametrize("shards", [1, 3, 64, 16384])
@pytest.mark.parametrize("source", [list, pa.array, large])
def test_shards_are_those_of_zlib(source: Callable[[list[str]], Any], shards: int) -> None:
    items = ["", *("x" * length for length in range(40)), *URLS[:3000]]
    [chunk] = ItemChunks(source(items), MOST, MOST_BYTES)
    sharded = chunk.by_shard(shards)
    homes = [zlib.crc32(item) % shards for item in encoded(items)]
    assert [shard for shard, _ in sharded.parts] == sorted(set(homes))
    for shard, part in sharded.parts:
        assert list(part) == [
            item for item, home in zip(encoded(items), homes, strict=True) if home == shard
        ]
    answers = [bytes(len(item) % 2 for item in part) for _, part in sharded.parts]
    assert list(sharded.merged(answers)) == [len(item) % 2 for item in items]


def test_flags_end_before_the_first_item_without_one() -> None:
    items = encoded(URLS[:100])
    [chunk] = ItemChunks(items, MOST, MOST_BYTES)
    sharded = chunk.by_shard(4)
    assert sharded.merged([b"\1" * len(part) for _, part in sharded.parts]) == b"\1" * 100
    for missing, (shard, _) in enumerate(sharded.parts):
        flags = [
            b"" if n == missing else b"\1" * len(part) for n, (_, part) in enumerate(sharded.parts)
        ]
        first = next(index for index, item in enumerate(items) if zlib.crc32(item) % 4 == shard)
        assert sharded.merged(flags) == b"\1" * first


def test_bits_are_those_of_numpy() -> None:
    for count in (0, 1, 7, 8, 9, 1000):
        bits = np.random.default_rng(count).integers(0, 256, (count + 7) // 8, "u1")
        assert list(unpacked(bits.tobytes(), count)) == np.unpackbits(bits)[:count].tolist()
        with pytest.raises(ValueError, match=f"the bits of {count} items"):
            unpacked(bits.tobytes() + b"\0", count)
