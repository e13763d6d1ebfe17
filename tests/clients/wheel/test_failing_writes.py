"""Each system call that writes a file fails, for every command that writes files: nothing is lost, and half a file is
never taken for a whole one.

A library that is preloaded into the process lets the calls fail. ``tests/testkit/src/failing_writes.rs`` describes it
and the page of memory by which it is controlled.
"""

import errno
import mmap
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kinds import filled
from oxbloom import BloomFilter
from servers import OXBLOOM, ROOT, WITHIN, Server, running

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the library that lets writes fail is only for x86-64"
)

LIBRARY = os.environ.get(
    "FAILING_WRITES_LIBRARY", str(ROOT / "target/debug/examples/libfailing_writes.so")
)
OLD, NEW = b"old", b"new"
SEED = 1


class Fault(NamedTuple):
    """A failure: the number of calls that fail, their error, and whether the first call only writes half."""

    calls: int
    error: int
    is_short: bool


EVER = (1 << 64) - 1

each_fault = pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(1, errno.ENOSPC, is_short=False), id="once"),
        pytest.param(Fault(EVER, errno.ENOSPC, is_short=True), id="full disk"),
        pytest.param(
            Fault(EVER, errno.EIO, is_short=False), id="forever", marks=pytest.mark.thorough
        ),
    ],
)


class Writes:
    """The calls with which processes write to a folder."""

    PAGE = struct.Struct("6Q")

    def __init__(self, page: mmap.mmap, environment: dict[str, str]) -> None:
        self.page, self.environment = page, environment
        self.failed = False

    def each(self, fault: Fault) -> Iterator[int]:
        """Lets one call after the other fail in the next process, until there is no further call."""
        for number in range(1, 1000):
            self.failed = False
            self.PAGE.pack_into(self.page, 0, 0, 0, number, *fault)
            yield number
            if not self.failed:
                assert number > 1, "no call was counted"
                return

    def run(self, *arguments: object, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """Runs Python. In later processes, no call fails."""
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, **self.environment},
            stderr=subprocess.PIPE,
            timeout=WITHIN,
            check=False,
            **more,
        )
        _, failures, *_ = self.PAGE.unpack_from(self.page)
        self.failed = self.failed or failures > 0
        self.PAGE.pack_into(self.page, 0, *[0] * 6)
        return done


@pytest.fixture
def writes(tmp_path: Path, folder: Path) -> Iterator[Writes]:
    path = tmp_path / "page"
    path.write_bytes(bytes(Writes.PAGE.size))
    environment = {
        "LD_PRELOAD": LIBRARY,
        "FAILING_WRITES_PAGE": str(path),
        "FAILING_WRITES_PLACE": str(folder.resolve()),
    }
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as page:
        yield Writes(page, environment)


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """Returns the error that a command reports in one line."""
    errors = done.stderr.decode()
    assert "Traceback" not in errors
    assert errors.startswith("oxbloom: cannot "), errors
    assert errors.count("\n") == 1
    return errors


# --- Files ----------------------------------------------------------------------------------------

TOFILE = """
import sys
from oxbloom import BloomFilter
path, item, seed = sys.argv[1:]
filter = BloomFilter(1_000_000, seed=int(seed))
filter.add(item)
try:
    filter.tofile(path)
except OSError as error:
    sys.exit(f"oxbloom: cannot write {error.strerror}")
"""
COMMAND = ("-m", "oxbloom")
LARGE = ("-c", 1_000_000, "--seed", SEED)


def large_filter(item: bytes) -> BloomFilter:
    filter = BloomFilter(1_000_000, seed=SEED)
    filter.add(item)
    return filter


@each_fault
@pytest.mark.parametrize(
    "how",
    [
        "tofile",
        "add",
        "build a new one",
        pytest.param("build", marks=pytest.mark.thorough),
        pytest.param("merge", marks=pytest.mark.thorough),
    ],
)
def test_a_file_is_written_completely_or_not_at_all(writes, folder, how, fault):
    path, other = folder / "filter", folder.parent / "other"
    large_filter(OLD).tofile(other)
    old = b"" if how == "build a new one" else other.read_bytes()
    large_filter(NEW).tofile(other)
    arguments = {
        "tofile": ("-c", TOFILE, path, NEW.decode(), SEED),
        "build a new one": (*COMMAND, "build", path, *LARGE),
        "build": (*COMMAND, "build", path, *LARGE, "--replace"),
        "add": (*COMMAND, "add", path),
        "merge": (*COMMAND, "merge", path, other, "--replace"),
    }
    for number in writes.each(fault):
        path.unlink(missing_ok=True)
        if old:
            path.write_bytes(old)
            path.chmod(0o666)
        done = writes.run(*arguments[how], input=NEW + b"\n", stdout=subprocess.DEVNULL)
        assert (done.returncode == 0) == (not writes.failed), (number, done.stderr)
        now = path.read_bytes() if path.exists() else b""
        assert os.listdir(folder) == (["filter"] if now else [])
        if done.returncode:
            said(done)
        else:
            assert now != old
        if now != old:
            # The file is complete, but its name may not be permanent.
            assert NEW in BloomFilter.fromfile(path)
        assert not old or path.stat().st_mode & 0o777 == 0o666


@each_fault
def test_half_an_output_is_no_filter(writes, folder, fault):
    path = folder / "output"
    for _ in writes.each(fault):
        with path.open("wb") as output:
            done = writes.run(*COMMAND, "build", "-", *LARGE, input=NEW + b"\n", stdout=output)
        if done.returncode:
            assert writes.failed
            said(done)
            with pytest.raises(ValueError, match="no filter"):
                BloomFilter.fromfile(path)
        else:
            assert NEW in BloomFilter.fromfile(path)


# --- Copies ---------------------------------------------------------------------------------------

KEYS = [b"chunks", b"counting"]


@pytest.fixture(scope="module")
def source() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        # Its dump has a header and four chunks.
        server.client.execute_command("BF.RESERVE", "chunks", 1e-18, 20)
        for start in range(0, 150_000, 5000):
            items = [b"item %d" % number for number in range(start, start + 5000)]
            server.client.execute_command("BF.MADD", "chunks", *items)
        filled("counting")[0].save_to(server.client, "counting")
        yield server


@each_fault
def test_a_copy_that_cannot_note_its_progress_is_continued(writes, folder, source, server, fault):
    arguments = ("copy", source.url, server.url, "--progress-file", folder / "progress")
    for number in writes.each(fault):
        server.client.flushall()
        done = writes.run(*COMMAND, *arguments, stdout=subprocess.DEVNULL)
        if done.returncode:
            assert writes.failed
            assert f"cannot write {folder / 'progress'}: " in done.stderr.decode()
        for key in KEYS:
            assert server.client.dump(key) in (None, source.client.dump(key)), number
        done = writes.run(*COMMAND, *arguments, stdout=subprocess.DEVNULL)
        assert done.returncode == 0, (number, done.stderr)
        assert sorted(server.client.keys()) == KEYS
        for key in KEYS:
            assert server.client.dump(key) == source.client.dump(key), number
        assert os.listdir(folder) == []
