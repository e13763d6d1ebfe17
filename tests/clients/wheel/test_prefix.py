"""Tests the package with a server on which the module runs beside RedisBloom, under a prefix."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import fails, run
from oxbloom import ModuleMissingError, RemoteFilter
from oxbloom._cli.data_types import DATA_TYPES
from servers import BESIDE, Server, running
from sharded import FOUR_WAYS, Place, Way, numbered

ITEMS = numbered(12_000)


@pytest.fixture
def beside() -> Iterator[Server]:
    with running(*BESIDE) as server:
        yield server


@pytest.mark.parametrize("way", [way for way in FOUR_WAYS if not way.clustered], ids=str)
def test_a_filter_uses_the_module_with_its_prefix(beside: Server, way: Way) -> None:
    with ExitStack() as stack:
        place = Place(way, [beside], None, stack)
        filter = place.filter(shards=3, counting=True, capacity=20_000, prefix="OX")
        assert filter.reserve()
        assert not filter.reserve()
        assert filter.add_all(ITEMS) == [False] * len(ITEMS)
        assert filter.add("item 1")
        assert filter.contains_all([*ITEMS, "another"]) == [True] * len(ITEMS) + [False]
        assert filter.remove("item 1")
        assert not filter.contains("item 1")
        assert (filter.card(), filter.info().items) == (len(ITEMS) - 1, len(ITEMS) - 1)
        assert {beside.client.type(key) for key in filter.keys} == {b"oxbloom--"}
        filter.clear()


def test_a_server_without_the_prefix_is_an_error_that_names_it(server: Server) -> None:
    filter = RemoteFilter(server.client, "seen", prefix="OX")
    with pytest.raises(ModuleMissingError, match=r"no OXBF\.\* commands.* prefix OX"):
        filter.add("item")


def test_the_types_that_are_not_copied_from_a_module_with_a_prefix_are_those_of_others() -> None:
    foreign = {each.name for each in DATA_TYPES if each.is_foreign}
    assert foreign == {"MBbloom--", "MBbloomCF", "bloomfltr"}


def test_filters_are_copied_from_and_to_a_module_with_a_prefix(
    beside: Server, server: Server, tmp_path: Path
) -> None:
    def copy(source: Server, destination: Server, *prefix: str) -> str:
        return run("copy", source.url, destination.url, *prefix, cwd=tmp_path).output.decode()

    client = beside.client
    for layout in ("native", "classic"):
        client.execute_command("OXBF.RESERVE", f"b-{layout}", 0.01, 100, "LAYOUT", layout)
        client.execute_command("OXBF.MADD", f"b-{layout}", "a", "b")
        client.execute_command("OXCF.RESERVE", f"c-{layout}", 100, "LAYOUT", layout)
        client.execute_command("OXCF.INSERT", f"c-{layout}", "ITEMS", "a", "b")
    client.execute_command("BF.ADD", "theirs", "a")
    assert "copied 4 filters" in copy(beside, server, "--source-prefix", "OX")
    keys = sorted(server.client.keys())
    assert keys == [b"b-classic", b"b-native", b"c-classic", b"c-native"]
    for key in keys:
        verb = key[:1].decode().upper() + "F.MEXISTS"
        assert server.client.execute_command(verb, key, "a", "b") == [1, 1]
    client.flushall()
    assert "copied 4 filters" in copy(server, beside, "--destination-prefix", "OX")
    assert sorted(client.keys()) == keys
    assert {key: client.type(key) for key in keys} == {
        b"b-classic": b"oxclassBF",
        b"b-native": b"oxbloom--",
        b"c-classic": b"oxclassCF",
        b"c-native": b"oxcuckoo-",
    }
    again = copy(server, beside, "--verify", "--destination-prefix", "OX")
    assert "skipped 4 that were there" in again


def test_a_copy_to_a_server_without_the_prefix_is_an_error(server: Server) -> None:
    error = fails("copy", server.url, server.url, "--destination-prefix", "OX")
    assert "the destination has no OXBF.* commands" in error
