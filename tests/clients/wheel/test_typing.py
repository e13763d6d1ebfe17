"""The types of the package are right, and programs that use it can be checked with mypy."""

import subprocess
import sys
from pathlib import Path

from servers import ROOT

SAMPLE = """
from datetime import timedelta
from pathlib import Path
import numpy as np
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
new: list[bool] = sharded.add_all(["a", b"b"])
facts: ShardedInfo = sharded.info()
there = RemoteFilter(valkey.Valkey(), "key", error_rate=0.01).add("a")
async def seen_before(item: str) -> bool:
    return await AsyncRemoteFilter(redis.asyncio.Redis(), "key", counting=True).add(item)
dupefilter = RFPDupeFilter(sharded)
try:
    seen.add("c")
except FilterFullError as error:
    print(error)
"""

WRONG = """
from oxbloom import BloomFilter
seen = BloomFilter("100")
seen.add(1)
seen.add_all([1])
seen.count = 3
answer: str = seen.add("a")
"""


def test_a_program_passes_mypy_and_mistakes_are_found(tmp_path: Path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "sample.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line.split(":")[:2] for line in done.stdout.splitlines() if "error:" in line]
    assert errors == [["wrong.py", str(number)] for number in range(3, 8)], done.stdout


def test_the_stub_says_what_is_there(tmp_path: Path):
    command = [sys.executable, "-m", "mypy.stubtest", "oxbloom._oxbloom", "--ignore-missing-stub"]
    command += ["--mypy-config-file", str(ROOT / "python/pyproject.toml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
