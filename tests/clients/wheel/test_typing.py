"""The types of the package are right, and programs that use it, such as the code on all pages, can be checked with
mypy."""

import subprocess
import sys
from pathlib import Path

import pages
from servers import ROOT

SAMPLE = """
from collections.abc import Container
from datetime import timedelta
from pathlib import Path
from typing import assert_type
import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import redis
import redis.asyncio
import valkey
from oxbloom import AsyncRemoteFilter, BloomFilter, FilterFullError, Info, RemoteFilter, ShardedFilter, ShardedInfo
from oxbloom import module_path
from oxbloom.scrapy import RFPDupeFilter

seen: BloomFilter = BloomFilter(100, 0.01, growing=True, seed=3)
old: bool = seen.add("a")
flags: list[bool] = seen.add_all(["a", b"b"])
flags = seen.contains_all(each for each in ("a", "b"))
flags = seen.contains_all(pa.array(["a"]))
array = seen.contains_all(np.array(["a"]))
there: bool = array.all().item() or "a" in seen
known: Container[str] = seen
there = seen.add(bytearray(b"a")) or seen.add_all([memoryview(b"a"), "b"])[0]
counts: list[int] = BloomFilter(10, counting=True).count_all(["a"])
both: BloomFilter = seen | seen.empty_like()
both |= seen
BloomFilter(10, window=timedelta(1)).advance_to(1.5)
info: Info = seen.info()
length: int = info["parts"][0]["bytes"] + len(seen) + seen.count
with open("file", "wb") as out:
    seen.tofile(out)
with open("file", "rb") as file:
    seen = BloomFilter.fromfile(file, max_memory=1 << 20)
seen = BloomFilter.load(seen.dump())
seen.save_to(redis.Redis(), "key", progress=lambda done, total: print(done, total))
seen = BloomFilter.load_from(redis.Redis(), "key")
path: Path = module_path()
sharded = ShardedFilter(redis.Redis(), "key", shards=16, window=timedelta(1))
assert_type(sharded.add_all(["a", b"b"]), list[bool])
mask: npt.NDArray[np.bool_] = sharded.contains_all(np.array(["a"]))
facts: ShardedInfo = sharded.info()
there = RemoteFilter(valkey.Valkey(), "key", error_rate=0.01).add("a")
async def seen_before(item: str) -> bool:
    remote = AsyncRemoteFilter(redis.asyncio.Redis(), "key", counting=True)
    assert_type(await remote.remove_all([item]), list[bool])
    mask: npt.NDArray[np.bool_] = await remote.add_all(np.array([item]))
    return await remote.add(item)
dupefilter = RFPDupeFilter(sharded)
try:
    seen.add("c")
except FilterFullError as error:
    print(error, len(error.answers))
"""

WRONG = """
import redis
from oxbloom import BloomFilter, RemoteFilter
seen = BloomFilter("100")
seen.add(1)
seen.add_all([1])
seen.count = 3
answer: str = seen.add("a")
flags: str = RemoteFilter(redis.Redis(), "key").add_all(["a"])
"""


def mistakes(folder: Path, programs: dict[str, str], *options: str) -> list[str]:
    """Returns the lines of programs that mypy complains about, and why."""
    for name, program in programs.items():
        (folder / name).write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", *options, *programs]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if "error:" in line]


def test_a_program_passes_mypy_and_mistakes_are_found(tmp_path: Path):
    found = mistakes(tmp_path, {"sample.py": SAMPLE, "wrong.py": WRONG})
    assert [line.split(":")[:2] for line in found] == [
        ["wrong.py", str(number)] for number in range(4, 10)
    ], found


# In redis-py, `execute_command` has no types, and `info` of filters has those of old and new replies at once.
OF_REDIS_PY = ("--untyped-calls-exclude=redis", "--disable-error-code=union-attr")
# These have no types at all.
UNTYPED = """
[mypy]
[mypy-pandas.*,pyarrow.*]
ignore_missing_imports = true
"""


def test_the_code_of_all_pages_passes_mypy(tmp_path: Path):
    programs = {}
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "python/README.md"]:
        blocks = pages.blocks(page.read_text(), "python")
        if page.parent.name == "python":  # its blocks build on each other
            blocks = ["".join(blocks)]
        name = "_".join(page.relative_to(ROOT).with_suffix("").parts)
        for number, block in enumerate(blocks):
            programs[f"{name.replace('.', '_').replace('-', '_')}_{number}.py"] = block
    assert len(programs) > 50
    (tmp_path / "mypy.ini").write_text(UNTYPED)
    assert mistakes(tmp_path, programs, *OF_REDIS_PY) == []


def test_the_stub_says_what_is_there(tmp_path: Path):
    command = [sys.executable, "-m", "mypy.stubtest", "oxbloom._oxbloom", "--ignore-missing-stub"]
    command += ["--mypy-config-file", str(ROOT / "python/pyproject.toml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
