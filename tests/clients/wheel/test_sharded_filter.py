"""Tests what `ShardedFilter` and `AsyncShardedFilter` promise, on one server and on a cluster, with both protocols."""

import asyncio
import binascii
import doctest
import math
import os
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, islice, product
from typing import Any

import oxbloom._sharded.filter
import pytest
import redis
import redis.asyncio
import redis.connection
from cluster import Cluster, running_cluster
from filters import most_false_positives
from oxbloom import (
    AsyncShardedFilter,
    FilterMismatchError,
    KeyTakenError,
    ModuleMissingError,
    ShardedFilter,
    ShardedInfo,
    _slots,
)
from oxbloom._sharded import placement
from oxbloom._sharded.exchange import exchange
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import HOST, PATIENCE, REDISBLOOM, WITHIN, Server, running, wait_until

TIGHT = 1e-18  # so low that the tests have no false positives
SLOTS = 16384
CONNECTIONS = (redis.connection.AbstractConnection, redis.asyncio.connection.AbstractConnection)
EVERY_SHARDS = [1, 3, 16, 64]


@dataclass(frozen=True)
class Way:
    """A kind of client."""

    asynchronous: bool
    clustered: bool
    protocol: int
    decode: bool

    def __str__(self) -> str:
        words = ("asyncio" if self.asynchronous else "sync", "cluster" if self.clustered else "one")
        return "-".join((*words, f"resp{self.protocol}", "text" if self.decode else "bytes"))


EVERY_WAY = [Way(*each) for each in product((False, True), (False, True), (2, 3), (False, True))]
FOUR_WAYS = [
    Way(False, False, 2, False),
    Way(False, True, 3, True),
    Way(True, False, 3, False),
    Way(True, True, 2, True),
]
four_ways = pytest.mark.parametrize("way", FOUR_WAYS, ids=str)
# Before redis-py 6, most clients do not retry by default, and pipelines to clusters do not recover when slots move or a
# primary fails.
from_redis_py_6 = pytest.mark.skipif(
    int(redis.__version__.split(".")[0]) < 6,
    reason="clients retry as documented from redis-py 6 on",
)


class Blocking:
    """Wraps an asynchronous object. Its methods wait for their results."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: Any) -> None:
        self.loop, self.target = loop, target

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.target, name)
        if not callable(attribute):
            return attribute
        return lambda *words: self.loop.run_until_complete(attribute(*words))


@dataclass
class Place:
    """A server or a cluster, with one kind of client."""

    way: Way
    servers: list[Server]
    cluster: Cluster | None
    stack: ExitStack

    def filter(
        self,
        name: str = "seen",
        retries: int | None = None,
        socket_timeout: float = PATIENCE,
        **options: Any,
    ) -> Any:
        """Returns a filter with a client of its own. Its methods are synchronous."""
        client = self.client(retries, socket_timeout)
        options = {"shards": 16, "error_rate": TIGHT, "capacity": 5000, **options}
        if isinstance(client, Blocking):
            return Blocking(client.loop, AsyncShardedFilter(client.target, name, **options))
        return ShardedFilter(client, name, **options)

    def client(self, retries: int | None = None, socket_timeout: float = PATIENCE) -> Any:
        options: dict[str, Any] = {
            "protocol": self.way.protocol,
            "socket_timeout": socket_timeout,
            "decode_responses": self.way.decode,
        }
        if retries is not None:
            options["retry"] = Retry(NoBackoff(), retries)
        if self.cluster:
            make = self.cluster.async_client if self.way.asynchronous else self.cluster.client
        else:
            options |= {"host": HOST, "port": self.servers[0].port}
            make = redis.asyncio.Redis if self.way.asynchronous else redis.Redis
        if not self.way.asynchronous:
            client = make(**options)
            self.stack.callback(client.close)
            return client
        loop = asyncio.new_event_loop()
        self.stack.callback(loop.close)
        blocking = Blocking(loop, make(**options))
        self.stack.callback(blocking.aclose)
        return blocking

    def one(self, key: str) -> redis.Redis:
        """Returns a plain client of the server that serves a key."""
        return (self.cluster.primary_of(key) if self.cluster else self.servers[0]).client

    def calls(self, command: str) -> int:
        """Returns how often a command was sent to any of the servers."""
        stats = [server.client.info("commandstats") for server in self.servers]
        return sum(each.get(f"cmdstat_{command}", {"calls": 0})["calls"] for each in stats)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare_server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[Cluster]:
    with running_cluster(None, replicas=0) as cluster:
        yield cluster


def placed(way: Way, kind: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        if way.clustered:
            cluster = request.getfixturevalue(f"{kind}cluster")
            cluster.clear()
            yield Place(way, cluster.primaries(), cluster, stack)
        else:
            server = request.getfixturevalue(f"{kind}server")
            server.client.flushall()
            yield Place(way, [server], None, stack)


@pytest.fixture
def place(way: Way, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from placed(way, "", request)


@pytest.fixture
def bare_place(way: Way, request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from placed(way, "bare_", request)


def numbered(count: int, stem: str = "item") -> list[str]:
    return [f"{stem} {number}" for number in range(count)]


# The placement


def slot(key: str) -> int:
    """Returns the hash slot of a key with a tag, as specified for clusters."""
    return binascii.crc_hqx(key[key.index("{") + 1 : key.index("}")].encode(), 0) % SLOTS


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


@pytest.mark.parametrize("shards", [2, 3, 16, 64, 1000, SLOTS])
def test_each_tag_is_the_smallest_number_in_its_part_of_the_slots(shards: int) -> None:
    smallest: dict[int, int] = {}
    number = 0
    while len(smallest) < shards:
        smallest.setdefault(slot(f"{{{number}}}") * shards // SLOTS, number)
        number += 1
    expected = [f"{{{smallest[shard]}}}:seen:{shard}/{shards}" for shard in range(shards)]
    assert placement.keys("seen", shards) == expected


@pytest.mark.parametrize("shards", [2, 3, 16, 64, 1000, SLOTS])
def test_shards_lie_in_different_slots_and_evenly_on_equal_primaries(shards: int) -> None:
    slots = [slot(key) for key in placement.keys("seen", shards)]
    assert len(set(slots)) == shards
    for primaries in (2, 3, 5, 7):
        share = Counter(slot * primaries // SLOTS for slot in slots)
        # The slots of a primary may begin or end in the middle of a shard's part of the slots.
        assert all(abs(share[n] - shards / primaries) < 2 for n in range(primaries)), share


def test_each_primary_of_a_real_cluster_gets_its_share(cluster: Cluster) -> None:
    shares = Counter(cluster.primary_of(key) for key in placement.keys("seen", 64))
    assert sorted(shares.values()) == [21, 21, 22]


def test_all_processes_place_items_alike() -> None:
    program = """
from oxbloom._sharded import placement
print(placement.keys("seen", 16), [placement.shard_of(b"%d" % n, 16) for n in range(1000)])
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
    assert outputs.pop().startswith(b"['{10}:seen:0/16'")


@pytest.mark.parametrize("module", [placement, _slots])
def test_the_examples_in_the_documentation_run(module: Any) -> None:
    failed, attempted = doctest.testmod(module)
    assert attempted >= 2
    assert failed == 0


@four_ways
def test_text_is_its_utf8_bytes(place: Place) -> None:
    filter = place.filter()
    texts = ["straße", "фильтр", "", "a\0b", "😀"]
    assert filter.add_all(texts) == [False] * 5
    assert filter.contains_all(text.encode() for text in texts) == [True] * 5
    assert filter.add_all(text.encode() for text in texts) == [True] * 5
    assert not filter.add("straße".encode("latin-1"))
    # Each item is in its shard, where other programs look for it.
    for text in texts:
        key = filter.keys[binascii.crc32(text.encode()) % 16]
        assert place.one(key).execute_command("BF.EXISTS", key, text) == 1


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
def test_batches_larger_than_one_command_takes_are_added_in_order(place: Place) -> None:
    filter = place.filter(capacity=60_000)
    items = numbered(25_000)
    assert filter.add_all(items + items[:10]) == [False] * 25_000 + [True] * 10
    asked = [item for pair in zip(items, numbered(25_000, "other"), strict=True) for item in pair]
    assert filter.contains_all(asked) == [True, False] * 25_000


@four_ways
def test_an_empty_batch_sends_no_commands(place: Place) -> None:
    filter = place.filter(counting=True)
    before = [place.calls(command.lower()) for command in COMMANDS]
    assert filter.add_all([]) == filter.remove_all([]) == []
    assert filter.contains_all(iter(())) == []
    assert [place.calls(command.lower()) for command in COMMANDS] == before


@four_ways
def test_a_cleared_filter_is_empty(place: Place) -> None:
    filter = place.filter()
    filter.clear()
    filter.add_all(numbered(100))
    filter.clear()
    assert filter.contains_all(numbered(100)) == [False] * 100
    assert sum(server.client.dbsize() for server in place.servers) == 0


# Capacity and error rate


STEMS: dict[str, Callable[[int], str]] = {
    "sequential": str,
    "padded": "{:09d}".format,
    "pages": "https://example.com/list?page={}&size=100".format,
    "strides": lambda number: str(number * 4096),
}


@pytest.mark.parametrize("shards", EVERY_SHARDS)
@pytest.mark.parametrize("stem", STEMS)
def test_a_filter_holds_its_capacity_at_its_error_rate(
    server: Server, stem: str, shards: int
) -> None:
    server.client.flushall()
    capacity, rate, absent = 30_000, 0.01, 100_000
    filter = ShardedFilter(server.client, "full", shards=shards, capacity=capacity, error_rate=rate)
    item = STEMS[stem]
    present = filter.add_all(item(number) for number in range(capacity))
    assert sum(present) <= most_false_positives(capacity, rate)
    info = filter.info()
    assert info.layers == info.shards == shards
    assert info.capacity >= capacity
    assert filter.contains_all(item(number) for number in range(capacity)) == [True] * capacity
    false_positives = sum(filter.contains_all(item(number + capacity) for number in range(absent)))
    assert false_positives <= most_false_positives(absent, rate)
    # A rate of 0 would mean that the test checks nothing.
    assert false_positives > absent * rate / 20


@pytest.mark.parametrize("shards", [3, 16, 64])
def test_a_filter_that_grew_keeps_its_error_rate(server: Server, shards: int) -> None:
    server.client.flushall()
    filter = ShardedFilter(server.client, "grown", shards=shards, capacity=1000, error_rate=0.01)
    filter.add_all(numbered(20_000))
    assert filter.info().layers > shards
    assert filter.contains_all(numbered(20_000)) == [True] * 20_000
    assert sum(filter.contains_all(numbered(100_000, "absent"))) <= most_false_positives(
        100_000, 0.01
    )


def exceeding(mean: int, shards: int) -> float:
    """Returns the probability that a shard gets more items than its capacity, out of `mean * shards` items."""
    items, share = mean * shards, 1 / shards
    number = placement.capacity_of_each(items, shards) + 1
    logarithm = math.lgamma(items + 1) - math.lgamma(number + 1) - math.lgamma(items - number + 1)
    logarithm += number * math.log(share) + (items - number) * math.log1p(-share)
    term, total = math.exp(logarithm), 0.0
    while term > total * 1e-12:
        total += term
        term *= (items - number) / (number + 1) * share / (1 - share)
        number += 1
    return total


@pytest.mark.parametrize("shards", [2, 3, 16, 64, 1000, SLOTS])
def test_a_shard_is_overfull_as_rarely_as_documented(shards: int) -> None:
    assert exceeding(1_000_000, shards) < 1 / 3_000_000
    assert exceeding(100, shards) < 1 / 800_000


@pytest.mark.parametrize(("each", "costs"), [(1_000_000, 1.005), (10_000, 1.05)])
def test_the_spare_capacity_costs_what_is_documented(
    server: Server, each: int, costs: float
) -> None:
    client = server.client
    client.flushall()
    filter = ShardedFilter(client, "sharded", shards=16, capacity=16 * each)
    filter.reserve()
    client.execute_command("BF.RESERVE", "one", 1e-6, each)
    (size,) = client.execute_command("BF.INFO", "one", "SIZE")[-1:]
    assert filter.info().size / (16 * size) == pytest.approx(costs, abs=0.002)


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


@four_ways
def test_info_of_a_missing_shard_is_an_error(place: Place) -> None:
    filter = place.filter()
    filter.reserve()
    key = filter.keys[5]
    place.one(key).delete(key)
    with pytest.raises(redis.ResponseError, match="not found"):
        filter.info()


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
def test_clients_that_reserve_at_once_get_one_filter(place: Place) -> None:
    filters = [place.filter(shards=64) for _ in range(4)]
    start = threading.Barrier(len(filters))

    def reserve(filter: Any) -> bool:
        start.wait()
        created = filter.reserve()
        filter.add_all(numbered(100))
        return created

    with ThreadPoolExecutor(len(filters)) as threads:
        created = list(threads.map(reserve, filters))
    assert True in created
    assert filters[0].card() == 100
    assert filters[0].info().layers == 64


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
    assert filter.reserve() is True
    assert filter.reserve() is other.reserve() is False
    assert windows(place, filter) == [expected] * shards
    assert filter.add_all(numbered(500)) == [False] * 500
    assert other.add_all(numbered(500)) == [True] * 500
    assert filter.card() == filter.info().items == 500
    filter.clear()
    other.add_all(numbered(500))
    assert windows(place, filter) == [expected] * shards


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
        with pytest.raises(FilterMismatchError, match=says):
            place.filter(name, **options).reserve()
    # One shard is enough for the error.
    filter = place.filter("week", window=604_800)
    key = filter.keys[9]
    place.one(key).delete(key)
    place.one(key).execute_command("BF.RESERVE", key, repr(TIGHT), 1000, "WINDOW", 60)
    with pytest.raises(FilterMismatchError, match=f"{re.escape(key)}.*a window of 60 s"):
        filter.reserve()


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
    ],
)
def test_windows_that_make_no_sense_are_rejected(kind: Any, options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        kind(None, "seen", shards=1, **options)


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
def test_a_key_of_another_type_is_reported_and_left_alone(place: Place, shards: int) -> None:
    filter = place.filter(shards=shards)
    key = filter.keys[-1]
    place.one(key).sadd(key, "fingerprint")
    with pytest.raises(KeyTakenError, match=f"{re.escape(key)}.*no Bloom filter"):
        filter.reserve()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        filter.add_all(numbered(200))
    assert place.one(key).smembers(key) == {b"fingerprint"}


OPERATIONS: dict[str, tuple[Any, ...]] = {
    "reserve": (),
    "add": ("item",),
    "add_all": (["item", "other", "third"],),
    "contains": ("item",),
    "contains_all": (["item", "other", "third"],),
    "remove": ("item",),
    "remove_all": (["item", "other", "third"],),
    "card": (),
    "info": (),
}


@four_ways
@pytest.mark.parametrize("shards", [1, 16])
def test_every_operation_reports_a_missing_module(bare_place: Place, shards: int) -> None:
    filter = bare_place.filter(shards=shards, counting=True)
    for operation, words in OPERATIONS.items():
        with pytest.raises(ModuleMissingError, match="without the oxbloom module"):
            getattr(filter, operation)(*words)


@pytest.mark.parametrize("kind", [ShardedFilter, AsyncShardedFilter])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("capacity", capacity) for capacity in (0, -1)),
        *(("error_rate", rate) for rate in (0, 0.0, 1, -0.1, 1.5, math.nan, math.inf)),
        *(("shards", shards) for shards in (0, -1, 16385)),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_is_sent(
    kind: Any, name: str, value: float
) -> None:
    with pytest.raises(ValueError, match=f"{name} must"):
        kind(None, "seen", **{"shards": 16, name: value})


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
def test_an_item_that_was_added_twice_and_removed_once_is_gone(place: Place) -> None:
    filter = place.filter(counting=True)
    assert filter.add_all([*numbered(100), *numbered(100)]) == [False] * 100 + [True] * 100
    assert filter.add("item 7") is True
    assert filter.remove("item 7") is True
    assert filter.contains("item 7") is False
    assert filter.remove("item 7") is False
    others = [item for item in numbered(100) if item != "item 7"]
    assert filter.contains_all(others) == [True] * 99
    assert filter.card() == 99
    assert filter.add("item 7") is False


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


@four_ways
def test_reserving_without_enough_memory_is_an_error(place: Place) -> None:
    with limited(place, 10_000), pytest.raises(redis.ResponseError, match="memory"):
        place.filter(capacity=1_000_000).reserve()
    assert place.filter(capacity=1_000_000).reserve() is True


# Round trips


@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_a_batch_is_a_command_for_each_shard(place: Place) -> None:
    filter = place.filter(counting=True)
    filter.reserve()
    for command, operation in (
        ("bf.addpacked", filter.add_all),
        ("bf.existspacked", filter.contains_all),
        ("bf.delpacked", filter.remove_all),
    ):
        before = place.calls(command)
        operation(numbered(1000))
        assert place.calls(command) - before == 16
    before = place.calls("bf.insert")
    filter.add("item")
    assert place.calls("bf.insert") - before == 1


@four_ways
def test_a_batch_is_sent_to_all_servers_before_the_first_reply_is_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    filter = place.filter()
    filter.add_all(numbered(1000))  # opens connections, and looks commands up
    events = record_events(monkeypatch)
    filter.add_all(numbered(1000))
    servers = len(place.servers)
    assert events == ["send"] * servers + ["read"] * 16


def record_events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records each send and each read on a connection from now on."""
    events: list[str] = []

    def noting(event: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def note(*words: Any, **options: Any) -> Any:
            events.append(event)
            return original(*words, **options)

        return note

    for kind in CONNECTIONS:
        for name, event in (("send_packed_command", "send"), ("read_response", "read")):
            monkeypatch.setattr(kind, name, noting(event, getattr(kind, name)))
    return events


# Lost replies


def lose_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loses the next reply, and breaks its connection."""
    sync, asynchronous = CONNECTIONS
    lost = threading.Event()

    def lose(connection: Any, *words: Any, **options: Any) -> Any:
        answer = read(connection, *words, **options)
        if lost.is_set():
            return answer
        lost.set()
        connection.disconnect()
        raise redis.ConnectionError("lost")

    async def lose_later(connection: Any, *words: Any, **options: Any) -> Any:
        answer = await read_later(connection, *words, **options)
        if lost.is_set():
            return answer
        lost.set()
        await connection.disconnect()
        raise redis.ConnectionError("lost")

    read, read_later = sync.read_response, asynchronous.read_response
    monkeypatch.setattr(sync, "read_response", lose)
    monkeypatch.setattr(asynchronous, "read_response", lose_later)


@from_redis_py_6
@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_an_addition_whose_reply_is_lost_is_sent_again_only_by_a_client_that_retries(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient, impatient = place.filter(), place.filter(retries=0)
    for filter in (patient, impatient):
        filter.add("first")  # opens a connection to the server
    # These items have the same shard, and so the same connection.
    once, twice = islice((n for n in numbered(1000) if same_shard(n, "first")), 2)

    before = place.calls("bf.insert")
    with monkeypatch.context() as patch:
        lose_a_reply(patch)
        with pytest.raises(redis.ConnectionError, match="lost"):
            impatient.add(once)
    assert place.calls("bf.insert") - before == 1
    assert impatient.contains(once) is True

    with monkeypatch.context() as patch:
        lose_a_reply(patch)
        assert patient.add(twice) is True
    assert place.calls("bf.insert") - before == 3


def same_shard(*items: str) -> bool:
    return len({placement.shard_of(item.encode(), 16) for item in items}) == 1


@from_redis_py_6
@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_a_batch_with_a_lost_reply_is_sent_again_where_the_documentation_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = place.filter(retries=0)
    impatient.add_all(numbered(200, "first"))  # opens connections to all servers
    before = place.calls("bf.addpacked")
    again = place.way.clustered and not place.way.asynchronous
    with monkeypatch.context() as patch:
        lose_a_reply(patch)
        if again:
            assert True in impatient.add_all(numbered(200))
        else:
            with pytest.raises(redis.ConnectionError, match="lost"):
                impatient.add_all(numbered(200))
    assert impatient.contains_all(numbered(200)) == [True] * 200
    assert (place.calls("bf.addpacked") - before > 16) is again


# Callbacks, and replies that are not read

SEPARATE = {"BF.ADDPACKED": "BF.INSERT", "BF.EXISTSPACKED": "BF.MEXISTS", "BF.DELPACKED": "BF.MDEL"}
COMMANDS = [*SEPARATE, *SEPARATE.values(), "BF.RESERVE", "BF.CARD", "BF.INFO", "UNLINK"]


def register_those_of_redis_py(client: Any) -> None:
    if not hasattr(client, "bf"):
        pytest.skip("asynchronous clients for clusters have bf() from redis-py 6 on")
    client.bf()


def register_failing_ones(client: Any) -> None:
    for command in COMMANDS:
        client.set_response_callback(command, lambda reply: reply["no such key"])


@pytest.mark.parametrize("register", [register_those_of_redis_py, register_failing_ones])
@pytest.mark.parametrize("shards", [1, 16])
@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_a_client_with_callbacks_gets_the_same_answers(
    place: Place, shards: int, register: Callable[[Any], None]
) -> None:
    def filter(**options: Any) -> Any:
        made = place.filter(shards=shards, **options)
        register(made.client)
        return made

    counting = filter(counting=True)
    assert counting.reserve() is True
    assert counting.reserve() is False
    assert counting.contains_all(["never"]) == [False]
    assert counting.add("item") is False
    assert counting.add_all([*numbered(100), "item"]) == [False] * 100 + [True]
    assert counting.remove("item") is True
    assert counting.contains("item") is False
    assert counting.card() == counting.info().items == 100
    with pytest.raises(FilterMismatchError, match="but bits was asked for"):
        filter().reserve()
    with pytest.raises(FilterMismatchError, match=f"an error rate of {TIGHT}"):
        filter(counting=True, error_rate=0.1).reserve()
    counting.clear()
    assert counting.contains_all(numbered(100)) == [False] * 100
    with pytest.raises(redis.ResponseError, match="not found"):
        counting.info()


def test_every_command_is_among_those_that_have_callbacks_above(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: set[str] = set()

    def note(client: Any, commands: Any) -> list[Any]:
        sent.update(command[0] for command in commands)
        return exchange(client, commands)

    monkeypatch.setattr(oxbloom._sharded.filter, "exchange", note)
    filter = ShardedFilter(server.client, "seen", shards=2, counting=True)
    for operation, words in [*OPERATIONS.items(), ("reserve", ()), ("clear", ())]:
        getattr(filter, operation)(*words)
    assert sent == set(COMMANDS)


def interrupt(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Makes the read of this reply raise an error, as a signal handler may do. The connection stays open."""
    sync, asynchronous = CONNECTIONS
    replies = count(1)

    def read_or_raise(connection: Any, *words: Any, **options: Any) -> Any:
        if next(replies) == number:
            raise error
        return read(connection, *words, **options)

    async def read_or_raise_later(connection: Any, *words: Any, **options: Any) -> Any:
        if next(replies) == number:
            raise error
        return await read_later(connection, *words, **options)

    read, read_later = sync.read_response, asynchronous.read_response
    monkeypatch.setattr(sync, "read_response", read_or_raise)
    monkeypatch.setattr(asynchronous, "read_response", read_or_raise_later)


# Asynchronous clients of clusters are left out. They raise nothing between two replies, since a task is only cancelled
# where it waits.
INTERRUPTIBLE = [way for way in EVERY_WAY if not (way.asynchronous and way.clustered)]


@pytest.mark.parametrize(
    "error",
    [
        KeyError("Capacity"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(
    ("operation", "words", "number"),
    [
        ("contains", ("item 0",), 1),
        ("contains_all", (numbered(200),), 1),
        ("contains_all", (numbered(200),), 7),
        ("add_all", (numbered(200),), 16),
        ("reserve", (), 3),
    ],
)
@pytest.mark.parametrize("way", INTERRUPTIBLE, ids=str)
def test_after_an_interrupt_the_next_command_gets_its_own_reply(
    place: Place,
    operation: str,
    words: Any,
    number: int,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filter = place.filter()
    filter.add_all(numbered(200))
    with monkeypatch.context() as patch:
        interrupt(patch, number, error)
        with pytest.raises(type(error)):
            getattr(filter, operation)(*words)
    assert filter.contains_all(numbered(200, "never")) == [False] * 200
    assert filter.contains("item 7") is True
    assert filter.card() == 200
    assert filter.contains_all(numbered(200)) == [True] * 200


@contextmanager
def paused(place: Place) -> Iterator[None]:
    """Makes the servers hold back additions."""
    for server in place.servers:
        server.client.client_pause(WITHIN * 1000, all=False)
    try:
        yield
    finally:
        for server in place.servers:
            server.client.client_unpause()


def waiting(place: Place) -> bool:
    """Returns true if each server holds back a client."""
    return all(server.client.info("clients")["blocked_clients"] for server in place.servers)


@pytest.mark.parametrize("way", [way for way in EVERY_WAY if way.asynchronous], ids=str)
def test_after_a_cancellation_the_next_command_gets_its_own_reply(place: Place) -> None:
    filter = place.filter()
    filter.reserve()

    async def cancel_additions() -> None:
        adding = asyncio.create_task(filter.target.add_all(numbered(200)))
        while not waiting(place):
            await asyncio.sleep(0.005)
        # Before Python 3.12, `asyncio.wait_for` loses a cancellation that comes after the awaited call has ended
        # (cpython#86296). redis-py uses it to send, and the server may receive the command before asyncio notices the
        # end.
        for _ in range(100):
            await asyncio.sleep(0)
        assert not adding.done(), f"the addition did not wait: {adding}"
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding

    with paused(place):
        filter.loop.run_until_complete(cancel_additions())
        assert filter.contains_all(numbered(200, "never")) == [False] * 200
    assert filter.contains_all(numbered(200, "never")) == [False] * 200


@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_after_a_timeout_the_next_command_gets_its_own_reply(place: Place) -> None:
    def in_time(call: Callable[[], Any]) -> Any:
        """Repeats a call until its replies come in time, since the machine may be busy. Returns its result."""
        answers: list[Any] = []

        def answered() -> bool:
            # A client of a cluster raises the second error if no server replies in time.
            with suppress(redis.TimeoutError, redis.exceptions.RedisClusterException):
                answers.append(call())
            return bool(answers)

        wait_until(answered)
        return answers[0]

    # A client of a cluster already sends commands when it is created.
    filter = in_time(lambda: place.filter(retries=0, socket_timeout=0.1))

    def answer(operation: str, *words: Any) -> Any:
        return in_time(lambda: getattr(filter, operation)(*words))

    answer("reserve")
    with paused(place), pytest.raises(redis.TimeoutError):
        filter.add_all(numbered(20))
    assert answer("contains_all", numbered(20, "never")) == [False] * 20
    assert answer("contains", "never") is False


# Moving slots and failing primaries


class Adder(threading.Thread):
    """Adds items, one batch after another. Repeats each batch until it is acknowledged."""

    def __init__(self, filter: Any) -> None:
        super().__init__()
        self.filter, self.stopped = filter, threading.Event()
        self.acknowledged: list[str] = []
        self.errors: list[redis.RedisError] = []

    def run(self) -> None:
        while not self.stopped.is_set():
            first = len(self.acknowledged)
            self.add([f"item {number}" for number in range(first, first + 50)])

    def add(self, items: list[str]) -> None:
        while not self.stopped.is_set():
            try:
                self.filter.add_all(items)
                self.acknowledged += items
                return
            except redis.RedisError as error:
                self.errors.append(error)
                self.stopped.wait(0.02)

    def wait_for_more(self) -> None:
        """Waits for two more batches. The second one started after the call."""
        count = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) >= count + 100)


@contextmanager
def adding_to(filter: Any) -> Iterator[Adder]:
    adder = Adder(filter)
    adder.start()
    try:
        yield adder
    finally:
        adder.stopped.set()
        adder.join()


def redirections(servers: list[Server]) -> int:
    """Returns how often servers redirected a client."""
    stats = [server.client.info("errorstats") for server in servers]
    counts = [each.get(f"errorstat_{name}") for each in stats for name in ("MOVED", "ASK")]
    return sum(count["count"] for count in counts if count)


on_clusters = pytest.mark.parametrize("way", [w for w in FOUR_WAYS if w.clustered], ids=str)


@from_redis_py_6
@on_clusters
@pytest.mark.parametrize("counting", [False, True])
def test_nothing_is_lost_while_slots_move(place: Place, counting: bool) -> None:
    cluster = place.cluster
    filter = place.filter(capacity=200_000, counting=counting)
    filter.reserve()
    homes = {key: cluster.primary_of(key) for key in filter.keys}
    before = redirections(place.servers)
    with adding_to(place.filter(capacity=200_000, counting=counting)) as adder:
        for steps in (1, 2, 0):  # the last step moves them back
            for key in filter.keys:
                primaries = place.servers
                to = primaries[(primaries.index(homes[key]) + steps) % len(primaries)]
                cluster.move_slot(key, to)
                assert cluster.primary_of(key) is to
            adder.wait_for_more()
    assert redirections(place.servers) > before
    assert adder.errors == []
    assert filter.contains_all(adder.acknowledged) == [True] * len(adder.acknowledged)
    # A later client finds all items too, each in one shard.
    late = place.filter(counting=counting)
    assert late.add_all(adder.acknowledged[:5000]) == [True] * min(5000, len(adder.acknowledged))
    assert filter.info().layers == 16
    assert sum(server.client.dbsize() for server in cluster.primaries()) == 16


@from_redis_py_6
@on_clusters
def test_items_that_a_replica_has_received_outlive_its_primary(place: Place) -> None:
    cluster = place.cluster
    filter = place.filter(capacity=200_000)
    filter.reserve()
    with adding_to(place.filter(capacity=200_000)) as adder:
        adder.wait_for_more()
        safe: list[str] = []
        while not safe:
            so_far = adder.acknowledged[:]
            if cluster.wait_all():
                safe = so_far
        killed = cluster.kill_primary_of(filter.keys[3])
        try:
            count = len(adder.acknowledged)
            adder.wait_for_more()
        finally:
            cluster.start_again(killed)
    assert len(safe) >= 100
    assert filter.contains_all(safe) == [True] * len(safe)
    # Items that were added after the failover are present too. The first batch is left out: it may have started before.
    later = adder.acknowledged[count + 50 :]
    assert len(later) >= 50
    assert filter.contains_all(later) == [True] * len(later)
    # No shard was created again with the server's defaults.
    assert filter.reserve() is False
    assert filter.info().capacity >= 200_000
    assert filter.add_all(numbered(100, "afterwards")) == [False] * 100


@on_clusters
def test_shards_that_a_cluster_lost_are_created_again_as_they_were(place: Place) -> None:
    """A cluster also loses shards when a primary fails before its replica has received them."""
    filter = place.filter(capacity=200_000)
    filter.add_all(numbered(100))
    facts = filter.info()
    for server in place.servers:
        server.client.flushall()
    filter.add_all(numbered(100))
    assert filter.info() == facts


@pytest.mark.parametrize("operation", ["add_all", "contains_all"])
@pytest.mark.parametrize("word", ["https://example.com/", b"bytes"])
def test_batches_reject_a_single_string(operation, word):
    for filter in (ShardedFilter, AsyncShardedFilter):
        call = getattr(filter(None, "seen", shards=4), operation)
        with pytest.raises(TypeError, match="single item into a list"):
            asyncio.run(call(word)) if filter is AsyncShardedFilter else call(word)
