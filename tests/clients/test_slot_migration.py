"""Filters move with their slot between the servers of a cluster, while a client adds to them."""

import math
import resource
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from cluster import Cluster, running_cluster
from redis import RedisError
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException, ResponseError
from servers import OXBLOOM_WITH_CLOCK, Server, server_version, wait_until

MOVES_ATOMICALLY = server_version() >= (9, 0)  # only Valkey has such versions

TAG = "{moving}"
MOVES = 4
KINDS = {
    "native": (0.01, 1000),
    "linear": (0.001, 2000, "EXPANSION", 1),
    "fixed": (0.01, 500_000, "NONSCALING"),
    "grown": (1e-15, 10),
    "classic": (0.01, 10, "LAYOUT", "classic"),
    "counting": (1e-15, 10, "COUNTING"),
    # Its window is longer than the tests take.
    "windowed": (0.01, 1000, "WINDOW", 604_800, "REFRESH"),
}
# Times in seconds. The tests stop the clock only where a slice begins.
BEGIN, SLICE_OF_WINDOW, SLICES_OF_WINDOW = 1_800_000_000, 900, 4
LARGE = 60_000_000  # the capacity of a filter of 75 MB
BATCH = 1000  # items that are looked up with one command


def most_false_positives(trials: int, rate: float) -> float:
    """Returns a bound that a number with the binomial distribution B(trials, rate) exceeds with a probability below
    2e-14.

    It is Bernstein's inequality at eight standard deviations, which filter/tests/promises/rates.rs explains.
    """
    z = 8
    variance = trials * rate * (1 - rate)
    return trials * rate + z**2 / 6 + math.sqrt(z**4 / 36 + z**2 * variance)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Starts a cluster whose servers have not freed any memory yet. A server could use freed memory again without
    reaching the limit of the test."""
    with running_cluster() as cluster:
        yield cluster


def next_primary(cluster: Cluster) -> Server:
    primaries = cluster.primaries()
    return primaries[(primaries.index(cluster.primary_of(TAG)) + 1) % len(primaries)]


def mover(cluster: Cluster, atomically: bool) -> Callable[[str, Server], object]:
    return cluster.move_slot_atomically if atomically else cluster.move_slot


def ask(client: RedisCluster, key: str, items: list[str]) -> list[int]:
    starts = range(0, len(items), BATCH)
    replies = (
        client.execute_command("BF.MEXISTS", key, *items[first : first + BATCH]) for first in starts
    )
    return [int(each) for reply in replies for each in reply]


def added_during(
    act: Callable[[], object], client: RedisCluster, keys: Iterable[str], name: str
) -> list[str]:
    """Adds items to filters while `act` runs, which starts after the first item. Returns the items that all have."""
    items, over = list[str](), threading.Event()

    def write() -> None:
        for number in count():
            item = f"{name} {number}"
            # Servers may redirect a client back and forth until all know who serves the slot.
            with suppress(RedisError, RedisClusterException):
                for key in keys:
                    client.execute_command("BF.ADD", key, item)
                items.append(item)
            if over.is_set():
                return

    with ThreadPoolExecutor() as threads:
        writing = threads.submit(write)
        try:
            wait_until(lambda: items)
            act()
        finally:
            over.set()
        writing.result()
    return items


ATOMICALLY = pytest.mark.parametrize("atomically", [False, True] if MOVES_ATOMICALLY else [False])


@ATOMICALLY
def test_nothing_is_lost_while_a_slot_moves(cluster: Cluster, atomically: bool):
    client, move = cluster.client(), mover(cluster, atomically)
    keys = {f"{TAG}{name}": options for name, options in KINDS.items()}
    items = [f"before {number}" for number in range(3000)]
    for key, options in keys.items():
        client.execute_command("BF.RESERVE", key, *options)
        client.execute_command("BF.MADD", key, *items)
    for number in range(MOVES):
        target = next_primary(cluster)
        items += added_during(partial(move, TAG, target), client, keys, f"move {number}")
        assert cluster.primary_of(TAG) is target
    absent = [f"absent {number}" for number in range(10_000)]
    wait_until(cluster.wait_all)
    primary = cluster.primary_of(TAG)
    (replica,) = cluster.replicas_of(primary)
    replica.client.readonly()
    for key, (rate, *_) in keys.items():
        assert all(ask(client, key, items)), key
        assert sum(ask(client, key, absent)) <= most_false_positives(len(absent), rate), key
        # The replica has the same filter, bit for bit.
        assert primary.client.dump(key) == replica.client.dump(key) is not None, key


def stop_clock(cluster: Cluster, primary: Server, seconds: int) -> None:
    """Stops the clock of a primary this many seconds after BEGIN."""
    key = next(cluster.tags_of(primary))
    primary.client.execute_command("BF.CLOCK", key, 1000 * (BEGIN + seconds))


@ATOMICALLY
@pytest.mark.parametrize("options", [(), ("REFRESH",)], ids=["plain", "refresh"])
def test_no_item_is_forgotten_early_when_its_filter_moves_to_a_server_whose_clock_is_behind(
    atomically: bool, options: tuple[str, ...]
):
    """The new primary keeps the times of the old one, although they are in the future for its own clock."""
    key, window = f"{TAG}window", SLICES_OF_WINDOW * SLICE_OF_WINDOW
    with running_cluster(OXBLOOM_WITH_CLOCK) as cluster:
        client = cluster.client()
        for primary in cluster.primaries():
            stop_clock(cluster, primary, 0)
        source, target = cluster.primary_of(TAG), next_primary(cluster)
        stop_clock(cluster, source, window)
        command = ("BF.RESERVE", key, 1e-12, 1000, "WINDOW", window, "SLICES", SLICES_OF_WINDOW)
        client.execute_command(*command, *options, "SEED", 7)
        act = partial(mover(cluster, atomically), TAG, target)
        items = added_during(act, client, [key], "item")
        assert cluster.primary_of(TAG) is target
        items += ["after the move"]
        client.execute_command("BF.ADD", key, items[-1])
        assert client.execute_command("BF.CARD", key) == len(set(items))
        for seconds in (0, window, 2 * window - 1):
            stop_clock(cluster, target, seconds)
            assert all(ask(client, key, items)), seconds
        stop_clock(cluster, target, 2 * window + SLICE_OF_WINDOW)
        assert not any(ask(client, key, items))


@contextmanager
def short_of_memory(server: Server) -> Iterator[None]:
    """Leaves a server less than half of the memory that a large filter needs."""
    unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_AS)
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + LARGE // 2
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, unlimited[1]))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, unlimited)


def test_a_filter_stays_where_it_is_if_the_other_server_has_no_memory_for_it(cluster: Cluster):
    key = f"{TAG}large"
    client, source, target = cluster.client(), cluster.primary_of(TAG), next_primary(cluster)
    client.execute_command("BF.RESERVE", key, 0.01, LARGE, "NONSCALING")
    items = [f"item {number}" for number in range(BATCH)]
    client.execute_command("BF.MADD", key, *items)
    with short_of_memory(target):
        with pytest.raises(ResponseError, match="Target instance replied with error"):
            cluster.move_slot(TAG, target)
        assert all(ask(client, key, items))
    cluster.leave_slot(TAG, target)
    if MOVES_ATOMICALLY:
        with short_of_memory(target):
            state, message = cluster.move_slot_atomically(TAG, target)
        assert (state, message[:25]) == ("failed", "Failed to process command")
        assert cluster.primary_of(TAG) is source
        assert all(ask(client, key, items))
        assert cluster.move_slot_atomically(TAG, target) == ("success", "")
    else:
        cluster.move_slot(TAG, target)
    assert all(ask(client, key, items))
    assert target.client.memory_usage(key) > LARGE
