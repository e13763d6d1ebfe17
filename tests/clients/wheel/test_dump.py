"""DUMP payloads: the package and servers write the same ones, and invalid ones are rejected."""

import io
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kinds import KINDS, filled
from oxbloom import BloomFilter
from servers import REDISBLOOM, Server, running

ABSENT = [f"absent {number}" for number in range(5000)]


# --- Servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_server_restores_what_is_dumped_and_the_other_way_around(server: Server, name: str):
    filter, members = filled(name)
    server.client.restore("key", 0, filter.dump())
    assert server.client.execute_command("BF.MEXISTS", "key", *members) == [1] * len(members)
    replies = server.client.execute_command("BF.MEXISTS", "key", *ABSENT)
    assert [bool(reply) for reply in replies] == filter.contains_all(ABSENT)
    assert server.client.execute_command("BF.CARD", "key") == len(filter)
    server.client.execute_command("BF.MADD", "key", *members[:3])
    payload = server.client.dump("key")
    loaded = BloomFilter.load(payload)
    assert all(loaded.contains_all(members))
    if "counting" in name:
        assert loaded.count_of(members[0]) == 2
    # The server dumps it again, since servers compress values, and may write a later version of RDB.
    server.client.restore("again", 0, loaded.dump())
    assert server.client.dump("again") == payload


OPTIONS = {
    "native": ["NONSCALING", "SEED", "7"],
    "growing": ["EXPANSION", "4"],
    "counting": ["COUNTING", "NONSCALING"],
    "growing counting": ["COUNTING"],
    "window": ["WINDOW", "3600"],
    "rolling": ["ROLLING"],
    "classic": ["LAYOUT", "classic"],
    "valkey": ["LAYOUT", "valkey"],
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("added", [0, 1, 90, 3000])
def test_filters_that_a_server_created_are_loaded(server: Server, name: str, added: int):
    fits = added if "NONSCALING" not in OPTIONS[name] else min(added, 80)
    server.client.execute_command("BF.RESERVE", "key", 0.01, 100, *OPTIONS[name])
    members = [f"item {number}" for number in range(fits)]
    for start in range(0, fits, 1000):
        server.client.execute_command("BF.MADD", "key", *members[start : start + 1000])
    loaded = BloomFilter.load(server.client.dump("key"))
    assert len(loaded) == server.client.execute_command("BF.CARD", "key")
    assert loaded.capacity == server.client.execute_command("BF.INFO", "key", "CAPACITY")[0]
    replies = server.client.execute_command("BF.MEXISTS", "key", *members, *ABSENT)
    assert [bool(reply) for reply in replies] == loaded.contains_all(members + ABSENT)
    seed = server.client.execute_command("BF.INFO", "key", "SEED")[0]
    assert str(loaded.seed) == (seed.decode() if seed else "None")


@pytest.fixture(scope="module")
def redisbloom() -> Iterator[Server]:
    with running(REDISBLOOM) as server:
        yield server


def test_classic_filters_go_to_redisbloom_and_back(redisbloom: Server):
    for name in ("classic", "grown classic"):
        filter, members = filled(name)
        redisbloom.client.restore(name, 0, filter.dump())
        assert redisbloom.client.execute_command("BF.MEXISTS", name, *members) == [1] * len(members)
        loaded = BloomFilter.load(redisbloom.client.dump(name))
        assert loaded.contains_all(members + ABSENT) == filter.contains_all(members + ABSENT)
        assert len(loaded) == len(filter)


def test_other_values_are_no_filters(server: Server):
    server.client.set("string", "x" * 100)
    server.client.rpush("list", *range(100))
    for key in ("string", "list"):
        with pytest.raises(ValueError, match="no filter"):
            BloomFilter.load(server.client.dump(key))


# --- Files ----------------------------------------------------------------------------------------


def test_files_hold_payloads(server: Server, tmp_path):
    filter, members = filled("grown")
    path = tmp_path / "filter"
    for buffering in (-1, 0):
        with path.open("wb", buffering=buffering) as file:
            filter.tofile(file)
        assert path.read_bytes() == filter.dump()
        with path.open("rb", buffering=buffering) as file:
            assert all(BloomFilter.fromfile(file).contains_all(members))


def test_a_path_may_be_a_link_or_a_device_or_long(tmp_path):
    filter, _ = filled("native")
    (tmp_path / "real").touch(0o600)
    (tmp_path / "link").symlink_to("real")
    filter.tofile(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == filter.dump()
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600
    filter.tofile("/dev/null")
    assert Path("/dev/null").is_char_device()
    long = tmp_path / ("n" * 255)
    filter.tofile(long)
    assert long.read_bytes() == filter.dump()


def test_several_filters_share_a_file():
    one, other = filled("native")[0], filled("counting")[0]
    file = io.BytesIO()
    one.tofile(file)
    length = file.tell()
    other.tofile(file)
    file.seek(0)
    assert BloomFilter.fromfile(file, length).kind == "native"
    assert BloomFilter.fromfile(file).kind == "counting"
    with pytest.raises(ValueError, match="no filter"):
        BloomFilter.fromfile(file)


class Reluctant(io.RawIOBase):
    """A file that accepts a few bytes at a time."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, data) -> int:
        self.content += data[:1000]
        return min(len(data), 1000)


def test_a_file_may_write_less_than_it_is_given():
    filter, _ = filled("grown")
    file = Reluctant()
    filter.tofile(file)
    assert file.content == filter.dump()


@pytest.mark.parametrize(("written", "error"), [(None, BlockingIOError), (0, OSError)])
def test_a_file_that_takes_no_bytes_is_an_error(written: int | None, error: type[OSError]):
    class Full(io.RawIOBase):
        def write(self, data: object) -> int | None:
            return written

    with pytest.raises(error):
        filled("native")[0].tofile(Full())


def test_an_object_that_resembles_a_file_need_not_return_lengths():
    parts: list[bytes] = []

    class Duck:
        def write(self, data: bytes) -> None:
            parts.append(data)

    filter, _ = filled("large")
    filter.tofile(Duck())
    assert len(parts) > 1
    assert b"".join(parts) == filter.dump()


def test_payloads_may_be_any_objects_with_bytes():
    payload = filled("native")[0].dump()
    for data in (
        payload,
        bytearray(payload),
        memoryview(payload),
        memoryview(payload * 2)[: len(payload)],
    ):
        assert BloomFilter.load(data).dump() == payload
    with pytest.raises(TypeError):
        BloomFilter.load("text")


# --- Hostile bytes --------------------------------------------------------------------------------

# Damaged bytes, and chunks, are tested in `filter/tests/promises`. Here, payloads have valid checksums.

POLYNOMIAL = 0x95AC9329AC4BC9B5


def shifted(checksum: int) -> int:
    for _ in range(8):
        checksum = checksum >> 1 ^ (POLYNOMIAL if checksum & 1 else 0)
    return checksum


TABLE = [shifted(byte) for byte in range(256)]


def crc64(data: bytes) -> int:
    """Returns the checksum that servers use, computed byte by byte."""
    checksum = 0
    for byte in data:
        checksum = checksum >> 8 ^ TABLE[(checksum ^ byte) & 0xFF]
    return checksum


def sealed(data: bytes) -> bytes:
    return data + struct.pack("<Q", crc64(data))


def test_the_checksum_is_that_of_servers():
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA
    payload = filled("small")[0].dump()
    assert sealed(payload[:-8]) == payload


# These filters are small, since the tests change every byte of their payloads.
SMALL = {
    "native": lambda: BloomFilter(5, 0.01, seed=1),
    "grown": lambda: BloomFilter(5, 0.01, seed=1, growing=True),
    "counting": lambda: BloomFilter(20, 0.01, seed=1, counting=True),
    "rolling": lambda: BloomFilter(20, 0.01, seed=1, rolling=True),
    "classic": lambda: BloomFilter(20, 0.01, classic=True),
    "grown classic": lambda: BloomFilter(2, 0.01, classic=True, growing=2),
}
LIMIT = 1 << 24


def small(name: str) -> bytes:
    filter = SMALL[name]()
    for item in "abcde" * (1 if "native" in name else 4):
        filter.add(item)
    return filter.dump()


@pytest.mark.parametrize("name", SMALL)
def test_forged_payloads_are_rejected_or_sound(name: str):
    """Those that are not rejected load as filters that can be used."""
    payload, rng, loaded = small(name)[:-8], random.Random(name), 0
    for number in range(3000):
        forged = bytearray(payload)
        if number < 2 * len(payload):
            forged[number // 2] = rng.choice([0, 0xFF, 0x80, 0x81, 0xC3, rng.randrange(256)])
        else:
            for _ in range(rng.randrange(1, 5)):
                start = rng.randrange(len(forged))
                change = rng.randrange(4)
                if change == 0:
                    forged[start] = rng.randrange(256)
                elif change == 1:
                    del forged[start : start + rng.randrange(1, 20)]
                elif change == 2:
                    forged[start:start] = rng.randbytes(rng.randrange(1, 20))
                else:
                    other = rng.randrange(len(forged))
                    forged[start:start] = forged[other : other + 20]
                if not forged:
                    break
        try:
            filter = BloomFilter.load(sealed(bytes(forged)), max_memory=LIMIT)
        except ValueError:
            continue
        loaded += 1
        use(filter)
    assert loaded > 0


def use(filter: BloomFilter) -> None:
    filter.info()
    filter.contains_all(["a", "b", "absent"])
    assert BloomFilter.load(filter.dump()).count == filter.count
    if filter.kind == "counting":
        filter.remove("a")
    with suppress(IndexError, MemoryError):
        filter.add_all(f"new {number}" for number in range(20))


def length(number: int) -> bytes:
    return b"\x81" + struct.pack(">Q", number)


def data_type(name: str, version: int) -> bytes:
    """Returns the start of a payload: the name and version of its data type."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    kind = 0
    for letter in name:
        kind = kind << 6 | letters.index(letter)
    return b"\x07" + length(kind << 10 | version)


def classic_payload(*, bits: int, array: bytes, version: int = 4) -> bytes:
    """Returns a payload of RedisBloom's type. `array` is the bit array as a string of RDB, in any form."""
    numbers = [length(2) + length(number) for number in (1, 1, 0, 2)]
    layer = [length(2) + length(10), length(4) + struct.pack("<d", 0.01), length(2) + length(7)]
    layer += [length(4) + struct.pack("<d", 9.585), length(2) + length(bits), length(2) + length(0)]
    layer += [length(5) + array, length(2) + length(1)]
    content = [data_type("MBbloom--", version), *numbers, *layer, length(0), b"\x09\x00"]
    return sealed(b"".join(content))


@pytest.mark.parametrize("blob_is_first", [False, True])
def test_values_of_valkey_bloom_are_read_in_both_orders(server: Server, *, blob_is_first: bool):
    bits = bytes.fromhex("000020202000000100200000")
    blob = struct.pack("<BQI", 1, len(bits), 7) + bytes(range(32)) + bits
    head = [length(2) + length(number) for number in (1, 2)]
    head += [length(4) + struct.pack("<d", rate) for rate in (0.01, 0.5)]
    head.append(length(2) + length(1))
    numbers = [length(2) + length(10), length(2) + length(1)]  # the capacity and the items
    string = [length(5) + length(len(blob)) + blob]
    layer = string + numbers if blob_is_first else numbers + string
    content = [data_type("bloomfltr", 1), *head, *layer, length(0), b"\x09\x00"]
    filter = BloomFilter.load(sealed(b"".join(content)))
    assert (filter.kind, filter.capacity, filter.error_rate, len(filter)) == ("valkey", 10, 0.01, 1)
    assert filter.contains_all(["hello", *ABSENT]) == [True] + [False] * len(ABSENT)
    server.client.restore("key", 0, filter.dump())
    assert server.client.type("key") == b"bloomfltr"
    assert server.client.execute_command("BF.EXISTS", "key", "hello") == 1


def compressed(packed: bytes, unpacked: int) -> bytes:
    return b"\xc3" + length(len(packed)) + length(unpacked) + packed


@pytest.mark.parametrize(
    ("array", "content"),
    [
        (b"\x0c" + b"abcdefghijkl", b"abcdefghijkl"),
        (b"\x40\x0c" + b"abcdefghijkl", b"abcdefghijkl"),
        (b"\x80\x00\x00\x00\x0c" + b"abcdefghijkl", b"abcdefghijkl"),
        (length(12) + b"abcdefghijkl", b"abcdefghijkl"),
        (compressed(b"\x0babcdefghijkl", 12), b"abcdefghijkl"),
        (compressed(b"\x00a\xe0\x02\x00", 12), b"a" * 12),
        (compressed(b"\x01ab\xe0\x01\x01", 12), b"ab" * 6),
        (compressed(b"\x03abcd\xa0\x03\x00d", 12), b"abcdabcdabcd"),
        # In this form, servers write short strings that are numbers.
        (b"\xc0\x85", b"-123"),
        (b"\xc1\x39\x30", b"12345"),
        (b"\xc2\x15\xcd\x5b\x07", b"123456789"),
    ],
)
def test_strings_of_all_forms_are_read(array: bytes, content: bytes):
    payload = classic_payload(bits=8 * len(content), array=array)
    chunks = list(BloomFilter.load(payload).chunks())
    assert b"".join(data for _, data in chunks[1:]) == content


@pytest.mark.parametrize(
    "array",
    [
        b"",
        b"\x0cshort",
        length((1 << 64) - 1),
        length(1 << 40) + b"abcdefghijkl",
        b"\x82",
        b"\xc4",
        compressed(b"\x0babcdefghijkl", 11),
        compressed(b"\x0babcdefghijkl", 13),
        compressed(b"\x0babcdefghijk", 12),
        compressed(b"\xe0\x02\x00", 12),
        compressed(b"\x00a\xe0\x02\x01", 12),
        compressed(b"\x00a\xe0\xff\x00", 12),
        compressed(b"\x00a\xe0", 12),
        compressed(b"", 12),
        compressed(b"\x00a", 1 << 50),
        b"\xc3" + length(1 << 63) + length(12) + b"\x0babcdefghijkl",
        b"\xc3\xc0\x01\x0c",
    ],
)
def test_malformed_strings_are_rejected(array: bytes):
    with pytest.raises(ValueError, match="no filter"):
        BloomFilter.load(classic_payload(bits=96, array=array))


def test_later_versions_are_named():
    with pytest.raises(ValueError, match="later version"):
        BloomFilter.load(classic_payload(bits=96, array=b"\x0cabcdefghijkl", version=5))


def test_memory_is_bounded():
    payload = BloomFilter(10_000_000_000, 0.01).dump()
    assert len(payload) < 200
    with pytest.raises(ValueError, match="more than max_memory=1000000"):
        BloomFilter.load(payload, max_memory=1_000_000)
    payload = filled("classic")[0].dump()
    with pytest.raises(ValueError, match="more than max_memory=100"):
        BloomFilter.load(payload, max_memory=100)
    assert BloomFilter.load(payload, max_memory=10_000)


# --- Chunks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_chunks_are_put_together_again(name: str):
    filter, _ = filled(name)
    chunks = list(filter.chunks())
    assert BloomFilter.from_chunks(chunks).dump() == filter.dump()
    assert BloomFilter.from_chunks(iter(chunks)).info() == filter.info()
    # BF.SCANDUMP's replies are lists, and the last one ends the dump.
    assert BloomFilter.from_chunks([*map(list, chunks), [0, b""]]).dump() == filter.dump()
    with pytest.raises(ValueError, match="missing"):
        BloomFilter.from_chunks(chunks[:-1])
    with pytest.raises(ValueError, match="not the header"):
        BloomFilter.from_chunks(chunks[1:])


@pytest.mark.parametrize(
    "chunks", [[], None, [1], [(1,)], [(-1, b"")], [(1, "text")], [(1, b"")], [(1, b"", b"")]]
)
def test_chunks_of_other_types_are_rejected(chunks):
    with pytest.raises((ValueError, TypeError, OverflowError)):
        BloomFilter.from_chunks(chunks)
