"""DUMP payloads: the package and servers write the same ones, and values that are no filters are rejected.

Damaged and forged payloads are tested in `filter/tests/promises/streams.rs`.
"""

import io
from collections.abc import Iterator
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
    server.client.restore("again", 0, loaded.dump())
    assert server.client.dump("again") == server.client.dump("key")


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


def test_later_versions_are_named():
    later = bytearray(filled("native")[0].dump()[1:-10])
    later[8] += 1  # the last byte of the data type, which has its version
    with pytest.raises(ValueError, match="later version"):
        BloomFilter._of_value(bytes(later))


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
