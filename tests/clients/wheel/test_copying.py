"""`oxbloom copy` copies every filter between real servers, and loses nothing if it is interrupted.

The file is long because all its tests run the same tool between the same two servers.
"""

import json
import re
import signal
import socket
import subprocess
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import running_node
from command_line import ends, fails, start
from gates import Gate
from kinds import ODD_KEYS
from oxbloom._cli.copy import Job, Side, chunks, copy_all, find_filters, header_of
from oxbloom._cli.data_types import DATA_TYPES
from redis import Redis, ResponseError
from servers import HOST, OXBLOOM, REDISBLOOM, Server, running
from tqdm import tqdm

DESTINATION = OXBLOOM  # the module that loads the copies

MIB = 1 << 20
CHUNK = 16 * MIB  # the size of RedisBloom's chunks
LARGE = b"large"
# A Bloom filter of 83 MB, and a cuckoo filter of 67 MB.
RESERVE_LARGE = {
    "BF.": ("BF.RESERVE", LARGE, 0.01, 60_000_000),
    "CF.": ("CF.RESERVE", LARGE, 60_000_000),
}
LARGE_CHUNKS = 5  # of the Bloom filter
LARGE_ITEMS = [b"item %d" % number for number in range(3000)]


@pytest.fixture
def source() -> Iterator[Server]:
    with running(REDISBLOOM) as server:
        yield server


@pytest.fixture
def destination() -> Iterator[Server]:
    with running(DESTINATION) as server:
        yield server


@pytest.fixture
def gate(destination: Server) -> Iterator[Gate]:
    gate = Gate(destination)
    yield gate
    gate.close()


class Tool:
    """Runs the command in processes that share a progress file."""

    def __init__(self, folder: Path) -> None:
        self.progress = folder / "progress"
        self.processes: list[subprocess.Popen] = []

    def start(self, source: str, destination: str, *options: str) -> subprocess.Popen:
        words = (source, destination, *options, "--progress-file", self.progress)
        process = start("copy", *words)
        self.processes.append(process)
        return process

    def run(self, source: Server, destination: Server, *options: str, status: int = 0) -> str:
        return ends(self.start(source.url, destination.url, *options), status)

    def records(self) -> list[dict]:
        text = self.progress.read_text() if self.progress.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    tool = Tool(tmp_path)
    yield tool
    for process in tool.processes:
        process.kill()
        process.communicate()


# --- Filters --------------------------------------------------------------------------------------


def add(server: Server, key: bytes, items: list[bytes], commands: str = "BF.") -> None:
    for first in range(0, len(items), 1000):
        batch = items[first : first + 1000]
        server.client.execute_command(commands + "INSERT", key, "ITEMS", *batch)


def reserve_large(server: Server, commands: str = "BF.") -> None:
    server.client.execute_command(*RESERVE_LARGE[commands])
    add(server, LARGE, LARGE_ITEMS, commands)


def assert_copied(
    source: Server, destination: Server, key: bytes, items: list[bytes], commands: str = "BF."
) -> None:
    assert source.client.dump(key) == destination.client.dump(key) is not None
    assert all(destination.client.execute_command(commands + "MEXISTS", key, *items))


# --- What is copied -------------------------------------------------------------------------------


def test_filters_of_all_kinds_are_copied_bit_by_bit(tool, source, destination):
    items = [b"%d" % number for number in range(1500)]
    filters: dict[bytes, list[bytes]] = {key: [key, b"", b"item"] for key in ODD_KEYS}
    filters |= {b"many layers": items, b"default": items[:50], b"full": items[:100]}
    create = source.client.execute_command
    create("BF.RESERVE", "many layers", 0.001, 10, "EXPANSION", 1)
    create("BF.RESERVE", "full", 0.01, 100, "NONSCALING")
    create("BF.RESERVE", "empty", 0.01, 1000)
    for number in range(600):  # more than a pipeline takes, and more than SCAN returns at once
        filters[b"small:%d" % number] = [b"%d" % number]
    for key, members in filters.items():
        add(source, key, members)
    source.client.set("no filter", "at all")

    output = tool.run(source, destination, "--verify")

    assert set(destination.client.scan_iter()) == {*filters, b"empty"}
    assert re.search(rf"copied {len(filters) + 1} filters, \d+ bytes, skipped 0 .*, 0 not", output)
    for key, members in filters.items():
        assert_copied(source, destination, key, members)
    assert source.client.dump("empty") == destination.client.dump("empty")
    assert not tool.progress.exists()


@pytest.mark.parametrize("command_known", [True, False])
def test_expiry_is_carried_over_as_a_point_in_time(tool, destination, command_known):
    options = [] if command_known else ["--rename-command", "PEXPIRETIME", ""]
    with running(REDISBLOOM, *options) as source:
        add(source, b"expires", [b"item"])
        add(source, b"stays", [b"item"])
        begin = time.monotonic()
        at = int(time.time() * 1000) + 3_600_000
        source.client.pexpireat("expires", at)
        tool.run(source, destination)
        took = (time.monotonic() - begin) * 1000
    # Without this command, the tool sends two others, and the expiry may be late by the time between them.
    assert 0 <= destination.client.pexpiretime("expires") - at <= (0 if command_known else took)
    assert destination.client.ttl("stays") == -1


def test_a_second_run_copies_nothing(tool, source, destination):
    for number in range(20):
        add(source, b"filter:%d" % number, [b"item"])
    tool.run(source, destination)
    loaded = destination.chunks_loaded()
    assert "copied 0 filters, 0 bytes, skipped 20 that" in tool.run(source, destination, "--verify")
    assert destination.chunks_loaded() == loaded


# --- Existing keys --------------------------------------------------------------------------------


def test_another_key_at_the_destination_is_reported_and_kept(tool, source, destination):
    for key in (b"filter", b"string", b"free"):
        add(source, key, [b"item"])
    add(destination, b"filter", [b"another", b"and another"])
    destination.client.set("string", "kept")
    before = destination.client.dump("filter")

    output = tool.run(source, destination, status=1)

    assert "'filter': the destination has another key of this name" in output
    assert "'string': the destination has another key of this name" in output
    assert "copied 1 filters" in output
    assert "2 not copied" in output
    assert destination.client.dump("filter") == before
    assert destination.client.get("string") == b"kept"
    assert destination.client.dbsize() == 3


def test_replace_overwrites_what_is_there_and_its_expiry(tool, source, destination):
    for key in (b"filter", b"string"):
        add(source, key, [b"item"])
    add(destination, b"filter", [b"another", b"and another"])
    destination.client.set("string", "replaced", ex=1000)

    assert "copied 2 filters" in tool.run(source, destination, "--replace")

    for key in (b"filter", b"string"):
        assert_copied(source, destination, key, [b"item"])
        assert destination.client.ttl(key) == -1


def test_verify_finds_other_bits_under_the_same_header(tool, source, destination):
    add(source, b"filter", [b"item"])
    with running(REDISBLOOM) as elsewhere:
        add(elsewhere, b"filter", [b"another"])
        tool.run(elsewhere, destination)
    assert "skipped 1" in tool.run(source, destination)
    assert "another key" in tool.run(source, destination, "--verify", status=1)
    assert "copied 1" in tool.run(source, destination, "--verify", "--replace")
    assert_copied(source, destination, b"filter", [b"item"])


# --- Interruptions --------------------------------------------------------------------------------


def stop_after_two_chunks(
    tool: Tool, source: Server, gate: Gate, commands: str = "BF."
) -> subprocess.Popen:
    """Starts the tool, which then waits in the middle of the third chunk."""
    reserve_large(source, commands)
    process = tool.start(source.url, gate.url)
    gate.open_and_wait(2 * CHUNK + CHUNK // 2)
    assert len(tool.records()) == 2
    return process


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_copy_is_continued(tool, source, destination, gate, how):
    process = stop_after_two_chunks(tool, source, gate)
    assert not destination.client.exists(LARGE)
    process.send_signal(how)
    output = ends(process, -9 if how == signal.SIGKILL else 130)
    assert how == signal.SIGKILL or "interrupted; the same command continues" in output
    gate.drop_connections()
    before = destination.chunks_loaded()
    assert before == 3
    add(source, b"an early key", [b"item"])  # the half copied filter goes first
    output = tool.run(source, destination, "--verify")
    assert "'large': continuing after 33.6 MB" in output
    assert "copied 2 filters" in output
    # The last two chunks are those of the other key.
    assert destination.chunks_loaded() - before == (LARGE_CHUNKS - 2) + 2
    assert_copied(source, destination, LARGE, LARGE_ITEMS)
    assert set(destination.client.scan_iter()) == {LARGE, b"an early key"}
    assert not tool.progress.exists()


@pytest.mark.parametrize("changed", [True, False], ids=["filter changed", "temporary key lost"])
def test_a_copy_starts_over_if_it_cannot_be_continued(tool, source, destination, gate, changed):
    ends_killed(stop_after_two_chunks(tool, source, gate))
    gate.drop_connections()
    if changed:
        add(source, LARGE, [b"one more"])
    else:
        destination.client.flushall()
    output = tool.run(source, destination)
    assert "continuing" not in output
    assert "copied 1 filters" in output
    assert_copied(source, destination, LARGE, [*LARGE_ITEMS, *([b"one more"] * changed)])


def ends_killed(process: subprocess.Popen) -> None:
    process.kill()
    ends(process, -signal.SIGKILL)


def test_a_lost_connection_is_opened_again(tool, source, destination, gate):
    process = stop_after_two_chunks(tool, source, gate)
    gate.drop_connections()
    output = ends(process)
    assert "connection lost" in output
    assert "copied 1 filters" in output
    assert destination.chunks_loaded() == 1 + LARGE_CHUNKS
    assert_copied(source, destination, LARGE, LARGE_ITEMS)


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("moment", ["in the middle", "at the end"])
def test_nothing_is_missing_if_the_destination_crashes(
    tool, source, destination, gate, moment, saved
):
    """The snapshot has the header of the filter, but lacks its later chunks."""
    process = stop_after_two_chunks(tool, source, gate)
    if saved:
        destination.client.save()
    if moment == "in the middle":
        gate.open_and_wait(4 * CHUNK + CHUNK // 2)
    else:
        gate.open_and_wait(word=b"PERSIST")
    destination.kill()
    destination.start()
    gate.open()
    assert "copied 1 filters" in ends(process)
    assert_copied(source, destination, LARGE, LARGE_ITEMS)


def test_nothing_is_missing_if_the_source_crashes(tool, source, destination, gate):
    process = stop_after_two_chunks(tool, source, gate)
    source.client.save()
    source.kill()
    source.start()
    gate.open()
    assert "copied 1 filters" in ends(process)
    assert_copied(source, destination, LARGE, LARGE_ITEMS)


# --- Filters that change --------------------------------------------------------------------------


@pytest.mark.parametrize("commands", RESERVE_LARGE)
def test_a_filter_that_changes_during_its_copy_is_copied_again(
    tool, source, destination, gate, commands
):
    process = stop_after_two_chunks(tool, source, gate, commands)
    new = [b"new %d" % number for number in range(100)]
    add(source, LARGE, new, commands)
    gate.open()
    assert "copied 1 filters" in ends(process)
    assert commands == "CF." or destination.chunks_loaded() == 2 * (1 + LARGE_CHUNKS)
    assert_copied(source, destination, LARGE, new, commands)


@pytest.mark.parametrize(
    "killed", [False, True], ids=["while it is copied", "after an interruption"]
)
@pytest.mark.parametrize("commands", RESERVE_LARGE)
def test_a_filter_whose_header_comes_back_is_copied_again(
    tool, source, destination, gate, commands, killed
):
    process = stop_after_two_chunks(tool, source, gate, commands)
    others = [b"other %d" % number for number in range(10_000)]
    header = source.client.execute_command(commands + "SCANDUMP", LARGE, 0)
    source.client.delete(LARGE)
    source.client.execute_command(*RESERVE_LARGE[commands])
    count = 0
    while source.client.execute_command(commands + "SCANDUMP", LARGE, 0) != header:
        source.client.execute_command(commands + "ADD", LARGE, others[count])
        count += 1
    if killed:
        ends_killed(process)
        gate.drop_connections()
        tool.run(source, destination)
    else:
        gate.open()
        ends(process)
    assert_copied(source, destination, LARGE, others[:count], commands)


def test_a_filter_that_keeps_changing_is_reported_and_leaves_no_key(
    tool, source, destination, gate
):
    reserve_large(source)
    add(source, b"quiet", [b"item"])
    process = tool.start(source.url, gate.url, "--passes", "2")
    for number in range(2):  # in the middle of each pass
        gate.open_and_wait((2 + number * LARGE_CHUNKS) * CHUNK + CHUNK // 2)
        add(source, LARGE, [b"new %d %d" % (number, each) for each in range(100)])
    gate.open()
    output = ends(process, 1)
    assert "'large': changed while it was copied" in output
    assert "copied 1 filters" in output
    assert "1 not copied" in output
    assert list(destination.client.scan_iter()) == [b"quiet"]


def test_a_filter_that_is_deleted_during_its_copy_is_left_out(tool, source, destination, gate):
    process = stop_after_two_chunks(tool, source, gate)
    source.client.delete(LARGE)
    gate.open()
    output = ends(process)
    assert "'large': the source no longer has it" in output
    assert "0 not copied" in output
    assert destination.client.dbsize() == 0


# --- Clusters and the native layout ---------------------------------------------------------------


def test_the_source_and_the_destination_may_be_clusters(tool, source):
    for key in ODD_KEYS:
        add(source, key, [key])
    source.client.expire("plain", 1000)
    with running_node() as there, running_node() as further:
        for output in (
            tool.run(source, there, "--verify"),
            tool.run(there, further, "--verify"),
            tool.run(source, further, "--replace", "--verify"),
        ):
            assert f"{len(ODD_KEYS)} filters" in output
            assert " 0 not copied" in output
        for key in ODD_KEYS:
            assert_copied(source, further, key, [key])
        assert 0 < further.client.ttl("plain") <= 1000
        assert further.client.dbsize() == len(ODD_KEYS)


def test_the_native_layout_is_copied_to_oxbloom_only(tool, source, destination):
    with running(OXBLOOM) as native, running(OXBLOOM) as other:
        native.client.execute_command("BF.RESERVE", "large", 0.01, 10_000_000)
        for key in (b"large", b"small"):
            add(native, key, LARGE_ITEMS)
        native.client.execute_command("BF.RESERVE", "empty", 0.01, 1000)
        assert "copied 3 filters" in tool.run(native, other, "--verify")
        for key in (b"large", b"small"):
            assert_copied(native, other, key, LARGE_ITEMS)
        with running(REDISBLOOM) as redisbloom:
            output = tool.run(native, redisbloom, status=1)
            assert "'small': native layout: cannot be copied to RedisBloom" in output
            assert "copied 0 filters, 0 bytes, skipped 0 that were there, 3 not copied" in output
            assert redisbloom.client.dbsize() == 0


CUCKOO_ITEMS = [b"item %d" % (number % 900) for number in range(1000)]  # some of them twice


def add_cuckoo(server: Server, key: bytes, *options: str | int) -> None:
    send = server.client.execute_command
    send("CF.RESERVE", key, *options)
    send("CF.INSERT", key, "ITEMS", *CUCKOO_ITEMS)
    for item in CUCKOO_ITEMS[:30]:
        send("CF.DEL", key, item)


def cuckoo_counts(server: Server, key: bytes) -> list[int]:
    return [server.client.execute_command("CF.COUNT", key, item) for item in CUCKOO_ITEMS]


class WithoutDumps(Redis):
    """A client of a server that has no BF.SCANDUMP, as one with valkey-bloom, and of which one payload is damaged."""

    def execute_command(self, *words: Any, **options: Any) -> Any:
        if words[0] == "BF.SCANDUMP":
            raise ResponseError("unknown command 'BF.SCANDUMP'")
        reply = super().execute_command(*words, **options)
        return reply[:-1] if words == ("DUMP", b"damaged") else reply


def test_filters_of_valkey_bloom_are_copied_from_payloads(tool, destination):
    kind = next(kind for kind in DATA_TYPES if kind.name == "bloomfltr")
    with running(DESTINATION) as source:
        source.client.execute_command("BF.RESERVE", "key", 0.01, 100, "LAYOUT", "valkey")
        add(source, b"key", [b"%d" % number for number in range(3000)])
        client = Side(WithoutDumps(HOST, source.port, protocol=2), "")
        expected = list(chunks(Side(source.client, ""), b"key", kind, 0))
        assert list(chunks(client, b"key", kind, 0)) == expected
        assert header_of(client, b"key", kind) == expected[0][1]
        assert header_of(client, b"absent", kind) is None
        tool.run(source, destination, "--verify")
        assert destination.client.dump("key") == source.client.dump("key")
        destination.client.flushall()
        # A filter that cannot be read is reported, and the others are copied.
        source.client.copy("key", "damaged")
        options = Namespace(match=None, passes=3, replace=False, native=False, verify=False)
        to = Side(destination.client, "")
        with tool.progress.open("w") as file, tqdm(total=0, disable=True) as bar:
            job = Job(client, to, options, file, None, bar)
            copied, skipped, failures = copy_all(job, find_filters(client, None))
        assert (copied, skipped, len(failures)) == (1, 0, 1)
        assert failures[0].startswith("'damaged': cannot be read: ")
        assert destination.client.keys() == [b"key"]
        client.client.close()


def test_cuckoo_filters_are_copied_and_converted(tool, source, destination):
    add_cuckoo(source, b"one layer", 2000)
    add_cuckoo(source, b"many layers", 64, "BUCKETSIZE", 4, "EXPANSION", 2)
    source.client.pexpireat("one layer", at := int(time.time() * 1000) + 3_600_000)
    keys = (b"one layer", b"many layers")
    assert "copied 2 filters" in tool.run(source, destination, "--verify")
    for key in keys:
        assert source.client.dump(key) == destination.client.dump(key)
    assert "copied 0 filters, 0 bytes, skipped 2" in tool.run(source, destination)
    with running(OXBLOOM) as native:
        assert "copied 2 filters" in tool.run(source, native, "--native", "--verify")
        assert "copied 0 filters, 0 bytes, skipped 2" in tool.run(source, native, "--native")
        for key in keys:
            assert native.client.type(key) == b"oxcuckoo-"
            counts, theirs = cuckoo_counts(native, key), cuckoo_counts(source, key)
            # In a small layer, RedisBloom counts an item twice if both of its buckets are the same.
            assert all(ours <= their for ours, their in zip(counts, theirs, strict=True))
            kept = CUCKOO_ITEMS[30:]
            assert all(
                ours >= kept.count(item) for ours, item in zip(counts[30:], kept, strict=True)
            )
            assert key == b"many layers" or counts == theirs
        assert native.client.pexpiretime("one layer") == at
        with running(REDISBLOOM) as redisbloom:
            output = tool.run(native, redisbloom, status=1)
            assert "'one layer': native layout: cannot be copied to RedisBloom" in output


def test_an_interrupted_copy_of_the_native_layout_is_continued(tool):
    with running(OXBLOOM) as native, running(OXBLOOM) as other:
        reserve_large(native)
        gate = Gate(other)
        process = tool.start(native.url, gate.url)
        gate.open_and_wait(CHUNK)
        ends_killed(process)
        gate.close()
        before = other.chunks_loaded()
        assert "'large': continuing after" in tool.run(native, other, "--verify")
        assert other.chunks_loaded() > before
        assert_copied(native, other, LARGE, LARGE_ITEMS)


# --- Errors ---------------------------------------------------------------------------------------


def test_errors_take_one_line(source, destination):
    with socket.socket() as unused, running() as bare:
        unused.bind((HOST, 0))
        nobody = f"redis://{HOST}:{unused.getsockname()[1]}"
        for first, second, expected in [
            (nobody, destination.url, "cannot connect to the source: "),
            (source.url, nobody, "cannot connect to the destination: "),
            ("server", destination.url, "cannot connect to the source: Redis URL must "),
            (source.url, destination.url + "/99", "cannot connect to the destination: "),
            (bare.url, source.url, "the source has no BF.* commands"),
            (source.url, bare.url, "the destination has no BF.* commands"),
        ]:
            assert fails("copy", first, second).startswith(expected)


def test_wrong_arguments_are_rejected(tool, source, destination):
    assert "usage:" in ends(tool.start(source.url, destination.url, "--passes", "0"), 2)
    tool.progress.write_text("somebody's notes\n")
    assert "not a progress file of this command" in tool.run(source, destination, status=2)
    assert tool.progress.read_text() == "somebody's notes\n"
