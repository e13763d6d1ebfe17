"""Tests the package with a server on which the module runs beside RedisBloom, under a prefix."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio
from oxbloom import AsyncShardedFilter, ModuleMissingError, RemoteFilter, ShardedFilter
from oxbloom._cli.data_types import DATA_TYPES
from servers import OXBLOOM, REDISBLOOM, Server, running

TIGHT = 1e-18  # so low that the tests have no false positives
ITEMS = [f"item {number}" for number in range(12_000)]


@pytest.fixture
def beside() -> Iterator[Server]:
    with running(REDISBLOOM, "--loadmodule", OXBLOOM, "prefix", "OX") as server:
        yield server


def test_a_filter_uses_the_module_with_its_prefix(beside: Server) -> None:
    filter = ShardedFilter(
        beside.client,
        "seen",
        shards=3,
        error_rate=TIGHT,
        counting=True,
        capacity=20_000,
        prefix="OX",
    )
    assert filter.reserve()
    assert not filter.reserve()
    assert filter.add_all(ITEMS) == [False] * len(ITEMS)
    assert filter.add("item 1")
    assert filter.contains_all([*ITEMS, "another"]) == [True] * len(ITEMS) + [False]
    assert filter.remove("item 1")
    assert not filter.contains("item 1")
    assert (filter.card(), filter.info().items) == (len(ITEMS) - 1, len(ITEMS) - 1)
    name, key, *arguments = filter.addition("item 1")
    assert name == "OXBF.INSERT"
    assert beside.client.execute_command(name, key, *arguments) == [1]
    assert {beside.client.type(key) for key in filter.keys} == {b"oxbloom--"}
    filter.clear()


def test_a_filter_of_asyncio_uses_the_module_with_its_prefix(beside: Server) -> None:
    async def check() -> None:
        async with redis.asyncio.Redis(port=beside.port) as client:
            filter = AsyncShardedFilter(client, "seen", shards=2, error_rate=TIGHT, prefix="OX")
            assert await filter.add_all(ITEMS) == [False] * len(ITEMS)
            assert await asyncio.gather(*map(filter.contains, ITEMS[:10])) == [True] * 10
            assert await filter.card() == len(ITEMS)

    asyncio.run(check())


def test_a_server_without_the_prefix_is_an_error_that_names_it(server: Server) -> None:
    filter = RemoteFilter(server.client, "seen", prefix="OX")
    with pytest.raises(ModuleMissingError, match=r"no OXBF\.\* commands.* prefix OX"):
        filter.add("item")


def copy(folder: Path, source: Server, destination: Server, *options: str) -> str:
    """Copies filters. Returns the summary."""
    program = [sys.executable, "-m", "oxbloom", "copy", source.url, destination.url, *options]
    command = [*program, "--verify", "--progress-file", str(folder / "progress")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_types_that_are_not_copied_from_a_module_with_a_prefix_are_those_of_others() -> None:
    foreign = {each.name for each in DATA_TYPES if each.is_foreign}
    assert foreign == {"MBbloom--", "MBbloomCF", "bloomfltr"}


def test_filters_are_copied_from_and_to_a_module_with_a_prefix(
    beside: Server, server: Server, tmp_path: Path
) -> None:
    client = beside.client
    for layout in ("native", "classic"):
        client.execute_command("OXBF.RESERVE", f"b-{layout}", 0.01, 100, "LAYOUT", layout)
        client.execute_command("OXBF.MADD", f"b-{layout}", "a", "b")
        client.execute_command("OXCF.RESERVE", f"c-{layout}", 100, "LAYOUT", layout)
        client.execute_command("OXCF.INSERT", f"c-{layout}", "ITEMS", "a", "b")
    client.execute_command("BF.ADD", "theirs", "a")
    assert "copied 4 filters" in copy(tmp_path, beside, server, "--source-prefix", "OX")
    keys = sorted(server.client.keys())
    assert keys == [b"b-classic", b"b-native", b"c-classic", b"c-native"]
    for key in keys:
        verb = key[:1].decode().upper() + "F.MEXISTS"
        assert server.client.execute_command(verb, key, "a", "b") == [1, 1]
    client.flushall()
    assert "copied 4 filters" in copy(tmp_path, server, beside, "--destination-prefix", "OX")
    assert sorted(client.keys()) == keys
    assert {key: client.type(key) for key in keys} == {
        b"b-classic": b"oxclassBF",
        b"b-native": b"oxbloom--",
        b"c-classic": b"oxclassCF",
        b"c-native": b"oxcuckoo-",
    }
    assert "skipped 4 that were there" in copy(
        tmp_path, server, beside, "--destination-prefix", "OX"
    )


def test_a_copy_to_a_server_without_the_prefix_is_an_error(server: Server, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        copy(tmp_path, server, server, "--destination-prefix", "OX")
    assert "the destination has no OXBF.* commands" in failure.value.stderr
