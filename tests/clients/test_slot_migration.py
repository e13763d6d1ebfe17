"""Filters move with their slot between the servers of a cluster, while clients write to them."""

import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count, product
from pathlib import Path

import pytest
from cluster import Cluster, running_cluster
from filters import (
    FAILURES,
    KINDS,
    LOOKUP_BATCH,
    ONCE,
    Kind,
    Writer,
    ask,
    check,
    check_alike,
    go_on,
    keys_of,
    reserve,
    writing,
)
from redis.cluster import RedisCluster
from redis.exceptions import ResponseError
from servers import OXBLOOM_WITH_CLOCK, Server, server_version, wait_until

MOVES_ATOMICALLY = server_version() >= (9, 0)  # only Valkey has such versions

TAG = "{moving}"
WRITERS = 3
MOVES = 4
# Times in seconds. The tests stop the clock only where a slice begins.
BEGIN, SLICE_OF_WINDOW, SLICES_OF_WINDOW = 1_800_000_000, 900, 4
CHUNK = 16 << 20  # bytes that a server sends at once

LARGE = {
    # This filter grows from small to large.
    "classic": Kind(0.01, 1000, ("EXPANSION", "20000", "LAYOUT", "classic")),
    # These filters grow in small steps: with FILLED items, once every two hundred items.
    "native": Kind(1e-15, 1000),
    "counting": Kind(1e-15, 1000, ("COUNTING",)),
}
FILLED, SLICE = 2_140_000, 53_500  # items of the last two filters: in all, and in each script
HUGE = {"huge": Kind(0.01, 60_000_000, ("NONSCALING",))}

FILL = """
for first = ARGV[1], ARGV[2] - 1, 500 do
  local items = {}
  for number = first, first + 499 do items[#items + 1] = 'filled ' .. number end
  redis.call('BF.MADD', KEYS[1], unpack(items))
end
"""


@pytest.fixture
def new_cluster() -> Iterator[Cluster]:
    """Starts a cluster whose servers have not freed any memory yet. A server could use freed memory again without
    reaching the limit of the test."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.clear()
    return running


def writers(cluster: Cluster, keys: dict[str, Kind]) -> list[Writer]:
    return [Writer(f"writer {n}", cluster.client(retry=ONCE), keys) for n in range(WRITERS)]


def next_primary(cluster: Cluster) -> Server:
    primaries = cluster.primaries()
    return primaries[(primaries.index(cluster.primary_of(TAG)) + 1) % len(primaries)]


def fact(cluster: Cluster, key: str, field: str) -> int:
    return next(iter(cluster.client(protocol=2).execute_command("BF.INFO", key, field)))


def capacity(cluster: Cluster, key: str) -> int:
    return fact(cluster, key, "CAPACITY")


def check_all(cluster: Cluster, writers: list[Writer]) -> None:
    assert [error for writer in writers for error in writer.errors] == []
    check(cluster.client(), *writers)
    wait_until(cluster.wait_all)
    primary = cluster.primary_of(TAG)
    (replica,) = cluster.replicas_of(primary)
    replica.client.readonly()
    check_alike(primary.client, replica.client, keys_of(*writers))


def test_nothing_is_lost_while_a_slot_moves_key_by_key(cluster: Cluster):
    keys = reserve(cluster.client(), TAG)
    growing = {key: kind for key, kind in keys.items() if "NONSCALING" not in kind.options}
    at_work = writers(cluster, keys)
    with writing(*at_work):
        moves = 0
        while moves < MOVES or any(
            capacity(cluster, key) == kind.capacity for key, kind in growing.items()
        ):
            cluster.move_slot(TAG, next_primary(cluster), lambda: go_on(*at_work, rounds=1))
            moves += 1
    for primary in cluster.primaries():
        assert primary.client.info("commandstats")["cmdstat_asking"]["calls"] > 0
    check_all(cluster, at_work)


def test_filters_of_many_megabytes_grow_while_they_move(cluster: Cluster):
    client = cluster.client()
    keys = reserve(client, TAG, LARGE)
    filled = [f"{TAG}native", f"{TAG}counting"]
    for key, first in product(filled, range(0, FILLED, SLICE)):
        client.eval(FILL, 1, key, first, first + SLICE)
    capacities = {key: capacity(cluster, key) for key in keys}
    huge = reserve(client, TAG, HUGE)
    at_work = writers(cluster, keys | huge)
    with writing(*at_work):
        moves = 0
        while moves < 2 or any(
            capacity(cluster, key) <= before for key, before in capacities.items()
        ):
            cluster.move_slot(TAG, next_primary(cluster), lambda: go_on(*at_work, rounds=1))
            moves += 1
    for key in keys | huge:
        assert client.memory_usage(key) > CHUNK, key
    assert [fact(cluster, key, "FILTERS") for key in keys] == [2, 2, 1]
    items = [f"filled {number}" for number in range(0, FILLED, 10)]
    assert all(all(ask(client, "BF.MEXISTS", key, items)) for key in filled)
    check_all(cluster, at_work)


def test_nothing_is_lost_while_a_slot_moves_atomically(cluster: Cluster):
    if not MOVES_ATOMICALLY:
        return
    keys = reserve(cluster.client(), TAG, KINDS | HUGE)
    at_work = writers(cluster, keys)
    with writing(*at_work):
        written, moves = 0, 0
        while moves < MOVES or written == 0:
            go_on(*at_work)
            before = sum(writer.rounds for writer in at_work)
            assert cluster.move_slot_atomically(TAG, next_primary(cluster)) == ("success", "")
            written += sum(writer.rounds for writer in at_work) - before
            moves += 1
    check_all(cluster, at_work)


def stop_clock(cluster: Cluster, primary: Server, seconds: int) -> None:
    """Stops the clock of a primary this many seconds after BEGIN."""
    key = next(cluster.tags_of(primary))
    primary.client.execute_command("BF.CLOCK", key, 1000 * (BEGIN + seconds))


def stop_clocks(cluster: Cluster, seconds: int) -> None:
    for primary in cluster.primaries():
        stop_clock(cluster, primary, seconds)


def added_during(act: Callable[[], object], client: RedisCluster, key: str, name: str) -> list[str]:
    """Adds items to a filter while `act` runs, which starts after the first item. Returns the items."""
    items, over = list[str](), threading.Event()

    def write() -> None:
        for number in count():
            item = f"{name} {number}"
            # Servers may redirect a client back and forth until all know who serves the slot.
            with suppress(*FAILURES):
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
def test_items_are_forgotten_in_time_wherever_the_filter_is(atomically: bool):
    key = f"{TAG}window"
    with running_cluster(OXBLOOM_WITH_CLOCK) as cluster:
        client = cluster.client()
        stop_clocks(cluster, 0)
        window = ("WINDOW", SLICES_OF_WINDOW * SLICE_OF_WINDOW, "SLICES", SLICES_OF_WINDOW)
        client.execute_command("BF.RESERVE", key, 1e-12, 1000, *window, "SEED", 7)
        came: list[list[str]] = []
        for number in range(2 * SLICES_OF_WINDOW):
            stop_clocks(cluster, number * SLICE_OF_WINDOW)
            target = next_primary(cluster)
            move = cluster.move_slot_atomically if atomically else cluster.move_slot
            act = partial(move, TAG, target)
            came.append(added_during(act, client, key, f"item {number}"))
            assert cluster.primary_of(TAG) is target
            for items in came[-SLICES_OF_WINDOW:]:
                assert all(ask(client, "BF.MEXISTS", key, items)), items[0]
            for items in came[:-SLICES_OF_WINDOW]:
                assert not any(ask(client, "BF.MEXISTS", key, items[:10])), items[0]


@ATOMICALLY
@pytest.mark.parametrize("options", [(), ("REFRESH",)], ids=["plain", "refresh"])
def test_no_item_is_forgotten_early_when_its_filter_moves_to_a_server_whose_clock_is_behind(
    atomically: bool, options: tuple[str, ...]
):
    """The new primary keeps the times of the old one, although they are in the future for its own clock."""
    key, window = f"{TAG}window", SLICES_OF_WINDOW * SLICE_OF_WINDOW
    with running_cluster(OXBLOOM_WITH_CLOCK) as cluster:
        client = cluster.client()
        stop_clocks(cluster, 0)
        source, target = cluster.primary_of(TAG), next_primary(cluster)
        stop_clock(cluster, source, window)
        command = ("BF.RESERVE", key, 1e-12, 1000, "WINDOW", window, "SLICES", SLICES_OF_WINDOW)
        client.execute_command(*command, *options, "SEED", 7)
        move = cluster.move_slot_atomically if atomically else cluster.move_slot
        items = added_during(partial(move, TAG, target), client, key, "item")
        assert cluster.primary_of(TAG) is target
        items += ["after the move"]
        client.execute_command("BF.ADD", key, items[-1])
        assert client.execute_command("BF.CARD", key) == len(set(items))
        for seconds in (0, window, 2 * window - 1):
            stop_clock(cluster, target, seconds)
            assert all(ask(client, "BF.MEXISTS", key, items)), seconds
        stop_clock(cluster, target, 2 * window + SLICE_OF_WINDOW)
        assert not any(ask(client, "BF.MEXISTS", key, items))


@contextmanager
def short_of_memory(server: Server) -> Iterator[None]:
    """Leaves a server less than half of the memory that a huge filter needs."""
    unlimited = resource.prlimit(server.process.pid, resource.RLIMIT_AS)
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + HUGE["huge"].capacity // 2
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, unlimited[1]))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, unlimited)


def test_a_filter_stays_where_it_is_if_the_other_server_has_no_memory_for_it(new_cluster: Cluster):
    cluster, key = new_cluster, f"{TAG}huge"
    client, source, target = cluster.client(), cluster.primary_of(TAG), next_primary(cluster)
    reserve(client, TAG, HUGE)
    items = [f"item {number}" for number in range(LOOKUP_BATCH)]
    client.execute_command("BF.MADD", key, *items)
    with short_of_memory(target):
        with pytest.raises(ResponseError, match="Target instance replied with error"):
            cluster.move_slot(TAG, target)
        assert all(ask(client, "BF.MEXISTS", key, items))
    cluster.leave_slot(TAG, target)
    if MOVES_ATOMICALLY:
        with short_of_memory(target):
            state, message = cluster.move_slot_atomically(TAG, target)
        assert (state, message[:25]) == ("failed", "Failed to process command")
        assert cluster.primary_of(TAG) is source
        assert all(ask(client, "BF.MEXISTS", key, items))
        assert cluster.move_slot_atomically(TAG, target) == ("success", "")
    else:
        cluster.move_slot(TAG, target)
    assert all(ask(client, "BF.MEXISTS", key, items))
    assert target.client.memory_usage(key) > CHUNK
