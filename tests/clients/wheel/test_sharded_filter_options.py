"""Tests windows and counting of sharded filters, and what they report about servers: lacking the module, or full."""

import math
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis
from oxbloom import (
    AsyncShardedFilter,
    FilterMismatchError,
    KeyTakenError,
    ModuleMissingError,
    ShardedFilter,
)
from oxbloom._sharded import placement
from servers import REDISBLOOM, Server, running
from sharded import FOUR_WAYS, OPERATIONS, SEPARATE, TIGHT, Place, Way, four_ways, numbered

# With a window


def windows(place: Place, filter: Any) -> list[list[Any]]:
    """Returns what the servers of the shards report about their windows."""
    return [
        [
            place.one(key).execute_command("BF.INFO", key, field)[-1]
            for field in ("WINDOW", "SLICES", "REFRESH")
        ]
        for key in filter.keys
    ]


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"window": 604_800}, [604_800, 15, 0]),
        ({"window": timedelta(days=7), "slices": 2, "refresh": True}, [604_800, 2, 1]),
    ],
)
def test_each_shard_has_the_window_however_it_was_created(
    place: Place, shards: int, options: Any, expected: list[Any]
) -> None:
    filter, other = (place.filter(shards=shards, **options) for _ in range(2))
    empty = filter.check()
    assert (empty.size, empty.layers, empty.items) == (0, 0, 0)
    assert filter.reserve() is True
    assert filter.reserve() is other.reserve() is False
    assert filter.check() == filter.info()
    assert (empty.capacity, empty.shards) == (filter.info().capacity, shards)
    assert windows(place, filter) == [expected] * shards
    assert filter.add_all(numbered(500)) == [False] * 500
    assert other.add_all(numbered(500)) == [True] * 500
    assert filter.card() == filter.info().items == 500
    filter.clear()
    other.add_all(numbered(500))
    assert windows(place, filter) == [expected] * shards


@four_ways
def test_a_filter_that_was_created_too_large_is_folded_with_all_its_items(place: Place) -> None:
    filter = place.filter(shards=3, capacity=1_000_000)
    with pytest.raises(redis.ResponseError, match="not found"):
        filter.fold()
    filter.reserve()
    filter.add_all(numbered(500))
    before = filter.info()
    factor = filter.fold(10_000)
    assert factor > 20
    after = filter.info()
    assert (after.items, after.shards) == (500, 3)
    assert after.capacity >= 10_000
    assert after.size < before.size / 20
    assert filter.add_all(numbered(500)) == [True] * 500
    assert filter.fold() > 1
    assert filter.add_all(numbered(500)) == [True] * 500


@four_ways
def test_another_window_at_the_keys_is_reported_before_anything_is_added(place: Place) -> None:
    place.filter("never").reserve()
    place.filter("week", window=604_800).reserve()
    for name, options, says in [
        ("never", {"window": 60}, r"no window, but a window of 60 s \(SLICES 15\) was"),
        ("week", {}, r"a window of 604800 s \(SLICES 15\), but no window was"),
        ("week", {"window": 60}, r"604800 s \(SLICES 15\), but a window of 60 s"),
        ("week", {"window": 604_800, "slices": 4}, r"but a window of 604800 s \(SLICES 4\) was"),
        ("week", {"window": 604_800, "refresh": True}, r"but .*\(SLICES 15, REFRESH\) was"),
    ]:
        for check in (place.filter(name, **options).reserve, place.filter(name, **options).check):
            with pytest.raises(FilterMismatchError, match=says):
                check()
    # One shard is enough for the error.
    filter = place.filter("week", window=604_800)
    key = filter.keys[9]
    place.one(key).delete(key)
    for there, says in [
        (("WINDOW", 60), r"a window of 60 s \(SLICES 15\)"),
        (("WINDOW", 604_800, "ROLLING"), r"a window of 604800 s \(SLICES 15, ROLLING\)"),
        (("ROLLING",), r"no window \(SLICES 15, ROLLING\)"),
    ]:
        place.one(key).execute_command("BF.RESERVE", key, repr(TIGHT), 1000, *there)
        with pytest.raises(FilterMismatchError, match=f"{re.escape(key)}.*{says}, but a window"):
            filter.reserve()
        place.one(key).delete(key)


@pytest.mark.parametrize("kind", [ShardedFilter, AsyncShardedFilter])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"window": 0}, "^window must be a whole number of seconds from 1 to 3155760000"),
        ({"window": 1.5}, "^window must be .* or a timedelta, not 1.5"),
        ({"window": timedelta(milliseconds=1)}, "^window must be"),
        ({"window": 60, "slices": 1}, "^slices must be a whole number from 2 to 64, not 1"),
        ({"window": 60, "counting": True}, "^window and counting cannot be combined"),
        ({"slices": 8}, "^slices needs window"),
        ({"refresh": True}, "^refresh needs window"),
        *(({"capacity": capacity}, "capacity must") for capacity in (0, -1)),
        *(({"error_rate": rate}, "error_rate must") for rate in (0, 1, -0.1, 1.5, math.nan)),
        *(({"shards": shards}, "shards must") for shards in (0, -1, 16385)),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_is_sent(
    kind: Any, options: Any, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        kind(None, "seen", **{"shards": 16, **options})


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
def test_a_key_of_another_type_is_reported_and_left_alone(place: Place, shards: int) -> None:
    filter = place.filter(shards=shards)
    key = filter.keys[-1]
    place.one(key).sadd(key, "fingerprint")
    with pytest.raises(KeyTakenError, match=f"{re.escape(key)}.*no Bloom filter"):
        filter.reserve()
    with pytest.raises(KeyTakenError):
        filter.check()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        filter.add_all(numbered(200))
    assert place.one(key).smembers(key) == {b"fingerprint"}


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
def test_every_operation_reports_a_missing_module(bare_place: Place, shards: int) -> None:
    filter = bare_place.filter(shards=shards, counting=True)
    for operation, words in OPERATIONS.items():
        with pytest.raises(ModuleMissingError, match="without the oxbloom module"):
            getattr(filter, operation)(*words)


@four_ways
def test_a_missing_shard_is_created_again_as_it_was(place: Place) -> None:
    filter = place.filter(capacity=16_000, error_rate=0.003, counting=True)
    filter.reserve()
    fields = ("CAPACITY", "ERROR", "LAYOUT", "EXPANSION")

    def facts(key: str) -> list[Any]:
        answers = [place.one(key).execute_command("BF.INFO", key, field) for field in fields]
        return [answer[-1] for answer in answers]

    before = [facts(key) for key in filter.keys]
    assert before[0][0] == placement.capacity_of_each(16_000, 16)
    for key in filter.keys:
        place.one(key).delete(key)
    filter.add_all(numbered(1000))
    assert [facts(key) for key in filter.keys] == before


# Counting


@four_ways
def test_removing_from_a_filter_without_counting_is_rejected(place: Place) -> None:
    filter = place.filter()
    filter.add("item")
    before = place.calls("bf.mdel")
    with pytest.raises(ValueError, match="counting"):
        filter.remove("item")
    assert place.calls("bf.mdel") == before
    assert filter.contains("item")


@four_ways
def test_removing_from_a_missing_filter_finds_nothing(place: Place) -> None:
    assert place.filter(counting=True).remove("item") is False


# Servers without packed commands


def packed_calls(place: Place) -> int:
    """Returns how often packed commands were sent, also those that were rejected."""
    stats = [server.client.info("commandstats") for server in place.servers]
    names = [f"cmdstat_{name.lower()}" for name in SEPARATE]
    counts = [each.get(name, {"calls": 0, "rejected_calls": 0}) for each in stats for name in names]
    return sum(count["calls"] + count["rejected_calls"] for count in counts)


@contextmanager
def forbidding(server: Server, *commands: str) -> Iterator[None]:
    """Forbids commands. They are then rejected as those that a server does not have."""
    server.client.execute_command("ACL SETUSER", "default", *(f"-{name}" for name in commands))
    try:
        yield
    finally:
        server.client.execute_command("ACL SETUSER", "default", "+@all")


def check_everything(filter: Any) -> None:
    items = numbered(1000)
    assert filter.add_all([*items, "item 3"]) == [False] * 1000 + [True]
    assert filter.add_all(items) == [True] * 1000
    assert filter.contains_all([*items, *numbered(1000, "other")]) == [True] * 1000 + [False] * 1000
    assert filter.remove_all([*items[:500], "other 1"]) == [True] * 500 + [False]
    assert filter.contains_all(items) == [False] * 500 + [True] * 500
    assert filter.card() == 500


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
def test_each_server_is_asked_once_whether_it_has_packed_commands(
    place: Place, shards: int
) -> None:
    filter = place.filter(counting=True, shards=shards)
    filter.reserve()
    before = packed_calls(place)
    with forbidding(place.servers[0], *map(str.lower, SEPARATE)):
        check_everything(filter)
        asked = sum(place.one(key) is place.servers[0].client for key in filter.keys)
        calls = packed_calls(place) - before
        # The shards of other servers get five packed commands each.
        assert calls == asked + 5 * (shards - asked)
        check_everything(place.filter("other", counting=True, shards=shards))


@pytest.mark.parametrize("way", [w for w in FOUR_WAYS if not w.clustered], ids=str)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_server_with_redisbloom_gets_commands_that_it_knows(way: Way, shards: int) -> None:
    with running(REDISBLOOM) as server, ExitStack() as stack:
        filter = Place(way, [server], None, stack).filter(shards=shards)
        items = numbered(12_000)
        assert filter.add_all([*items, "item 3"]) == [False] * 12_000 + [True]
        assert filter.contains_all([*items, "other"]) == [True] * 12_000 + [False]
        assert filter.add("item 4") is True


# Full servers


@contextmanager
def limited(place: Place, limit: int) -> Iterator[None]:
    """Limits the memory of each filter to this many bytes."""
    for server in place.servers:
        server.client.config_set("bf.filter-memory-limit", limit)
    try:
        yield
    finally:
        for server in place.servers:
            server.client.config_set("bf.filter-memory-limit", 0)


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
def test_a_filter_that_cannot_grow_says_so_and_keeps_what_it_has(place: Place, shards: int) -> None:
    filter = place.filter(shards=shards, capacity=2000)
    filter.reserve()
    size = max(place.one(key).memory_usage(key) for key in filter.keys)
    with limited(place, size + 1000):
        acknowledged: list[str] = []

        def add_on() -> None:
            for first in range(0, 20_000, 100):
                items = [f"item {number}" for number in range(first, first + 100)]
                filter.add_all(items)
                acknowledged.extend(items)

        with pytest.raises(redis.ResponseError, match="memory"):
            add_on()
        assert len(acknowledged) >= 1000
        assert filter.contains_all(acknowledged) == [True] * len(acknowledged)
        assert filter.add_all(acknowledged) == [True] * len(acknowledged)
    filter.add_all(numbered(20_000))
    assert filter.contains_all(numbered(20_000)) == [True] * 20_000


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
@pytest.mark.parametrize("packed", [True, False])
def test_an_exception_has_the_answers_to_the_items_before_the_first_that_failed(
    place: Place, shards: int, packed: bool
) -> None:
    filter = place.filter(shards=shards)
    for key in filter.keys:
        place.one(key).execute_command("BF.RESERVE", key, repr(TIGHT), 100, "NONSCALING")
    filter.add_all(numbered(10))
    items = [*numbered(20_000), *numbered(20_000)]
    with ExitStack() as stack:
        for server in [] if packed else place.servers:
            stack.enter_context(forbidding(server, "bf.addpacked"))
        with pytest.raises(redis.ResponseError, match="full") as raised:
            filter.add_all(items)
    answers = raised.value.answers
    assert answers == [True] * 10 + [False] * (len(answers) - 10)
    assert (len(answers) == 100) if shards == 1 else (100 < len(answers) < 1600)
    assert filter.contains_all(items[: len(answers)]) == [True] * len(answers)
    assert filter.contains(items[len(answers)]) is False
