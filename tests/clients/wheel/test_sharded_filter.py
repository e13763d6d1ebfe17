"""Tests what `ShardedFilter` and `AsyncShardedFilter` promise, on one server and on a cluster, with both protocols."""

import binascii
import doctest
import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import oxbloom._sharded.filter
import pytest
from cluster import Cluster
from oxbloom import FilterMismatchError, ShardedInfo, _slots
from oxbloom._sharded import placement
from sharded import COMMANDS, EVERY_SHARDS, EVERY_WAY, Place, four_ways, numbered

# The placement


@pytest.mark.parametrize(
    ("item", "shards", "shard"),
    [
        # The check value of CRC-32 is 0xCBF43926.
        (b"123456789", 16384, 0x3926),
        (b"123456789", 16, 6),
        (b"123456789", 3, 2),
        (b"", 64, 0),
        (b"https://example.com/", 16, 4),
        ("straße".encode(), 64, 13),
        (b"\xff\x00\xfe", 1, 0),
    ],
)
def test_shards_are_those_of_the_documentation(item: bytes, shards: int, shard: int) -> None:
    assert placement.shard_of(item, shards) == shard
    assert binascii.crc32(item) % shards == shard


def test_keys_are_those_of_the_documentation() -> None:
    assert placement.keys("seen", 1) == ["seen"]
    assert placement.keys("seen", 2) == ["{2}:seen:0/2", "{0}:seen:1/2"]
    assert placement.keys("a b:{c}", 3) == ["{3}:a b:{c}:0/3", "{1}:a b:{c}:1/3", "{0}:a b:{c}:2/3"]
    assert placement.keys("seen", 16)[::5] == [
        "{10}:seen:0/16",
        "{2}:seen:5/16",
        "{63}:seen:10/16",
        "{40}:seen:15/16",
    ]


def test_each_primary_of_a_real_cluster_gets_its_share(cluster: Cluster) -> None:
    shares = Counter(cluster.primary_of(key) for key in placement.keys("seen", 64))
    assert sorted(shares.values()) == [21, 21, 22]


@pytest.mark.parametrize("module", [placement, _slots])
def test_the_examples_in_the_documentation_run(module: Any) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted >= 2
    assert failed == 0


# Nothing is lost


@pytest.mark.parametrize("shards", EVERY_SHARDS)
@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_a_filter_answers_as_a_set_does(
    place: Place, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(f"{place.way} {shards}")
    monkeypatch.setattr(oxbloom._sharded.filter, "BATCH", 37)
    # 100 items for a capacity of 50, so some shards grow.
    filter = place.filter(shards=shards, capacity=chance.choice([50, 5000]))
    model: set[bytes] = set()

    def some() -> list[str | bytes]:
        numbers = [chance.randrange(100) for _ in range(chance.choice([0, 1, 5, 37, 38, 200]))]
        return [f"ü {n}" if chance.random() < 0.5 else f"ü {n}".encode() for n in numbers]

    def there(item: str | bytes) -> bool:
        return as_bytes(item) in model

    def add(item: str | bytes) -> bool:
        present = there(item)
        model.add(as_bytes(item))
        return present

    for _ in range(15):
        items = some()
        assert filter.contains_all(iter(items)) == list(map(there, items))
        assert filter.add_all(iter(items)) == list(map(add, items))
        for item in islice(items, 2):
            assert filter.add(item) is True
        single = f"ü {chance.randrange(120)}"
        assert filter.contains(single) is there(single)
        assert filter.add(single) is add(single)
    assert filter.card() == len(model)
    # Another object for the same filter finds all items.
    assert place.filter(shards=shards).contains_all(model) == [True] * len(model)


def as_bytes(item: str | bytes) -> bytes:
    return item.encode() if isinstance(item, str) else item


@four_ways
def test_an_empty_batch_sends_no_commands(place: Place) -> None:
    filter = place.filter(counting=True)
    before = [place.calls(command.lower()) for command in COMMANDS]
    assert filter.add_all([]) == filter.remove_all([]) == []
    assert filter.contains_all(iter(())) == []
    assert [place.calls(command.lower()) for command in COMMANDS] == before


# Capacity


STEMS: dict[str, Callable[[int], str]] = {
    "sequential": str,
    "padded": "{:09d}".format,
    "pages": "https://example.com/list?page={}&size=100".format,
    "strides": lambda number: str(number * 4096),
}


@pytest.mark.parametrize("shards", EVERY_SHARDS)
@pytest.mark.parametrize("stem", STEMS)
def test_no_shard_of_a_full_filter_gets_more_items_than_its_capacity(
    stem: str, shards: int
) -> None:
    items = (STEMS[stem](number).encode() for number in range(30_000))
    counts = Counter(placement.shard_of(item, shards) for item in items)
    assert len(counts) == shards
    assert max(counts.values()) <= placement.capacity_of_each(30_000, shards)


@pytest.mark.parametrize(("each", "costs"), [(1_000_000, 1.005), (10_000, 1.05)])
def test_the_spare_capacity_costs_what_is_documented(each: int, costs: float) -> None:
    assert placement.capacity_of_each(16 * each, 16) == pytest.approx(costs * each)


# Facts


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
def test_card_and_info_are_sums_over_the_shards(place: Place, shards: int) -> None:
    filter = place.filter(shards=shards, capacity=1000)
    assert filter.card() == 0
    filter.reserve()
    each = placement.capacity_of_each(1000, shards)
    empty = filter.info()
    assert empty == ShardedInfo(each * shards, empty.size, shards, 0, shards)
    filter.add_all(numbered(3000) + numbered(10))
    facts = [place.one(key).execute_command("BF.INFO", key)[1::2] for key in filter.keys]
    capacity, size, layers, items, _ = (
        sum(map(int, fact)) for fact in zip(*([*fact[:4], 0] for fact in facts), strict=True)
    )
    assert filter.info() == ShardedInfo(capacity, size, layers, items, shards)
    assert layers > shards
    assert size > empty.size
    assert filter.card() == items == 3000


# Reserving


@four_ways
@pytest.mark.parametrize("counting", [False, True])
@pytest.mark.parametrize("rate", [0.001, 1 / 3, 2.0**-6, 1e-15, 0.1 + 0.2, 1 - 1e-9])
def test_a_filter_is_reserved_once(place: Place, rate: float, counting: bool) -> None:
    make = {"error_rate": rate, "counting": counting, "shards": 3, "capacity": 100}
    filter, other = place.filter(**make), place.filter(**make)
    assert filter.counting is counting
    assert filter.reserve() is True
    assert filter.reserve() is False
    assert other.reserve() is False
    filter.add_all(numbered(5))
    place.one(filter.keys[1]).delete(filter.keys[1])
    assert other.reserve() is True
    assert other.info().layers == 3


@four_ways
def test_another_filter_at_the_keys_is_reported_before_anything_is_added(place: Place) -> None:
    place.filter(error_rate=0.01).reserve()
    key = place.filter().keys[0]
    with pytest.raises(
        FilterMismatchError, match=f"{re.escape(key)}.* rate of 0.01, but 0.001 was"
    ):
        place.filter(error_rate=0.001).reserve()
    with pytest.raises(FilterMismatchError, match=r"with bits, but counters \(COUNTING\) was"):
        place.filter(error_rate=0.01, counting=True).reserve()
    place.filter("counted", counting=True).reserve()
    with pytest.raises(FilterMismatchError, match=r"with counters \(COUNTING\), but bits was"):
        place.filter("counted").reserve()
    assert place.filter(error_rate=0.01).card() == 0
