"""Tests what sharded filters send, and that nothing is lost with replies, connections, slots and primaries."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

import oxbloom._sharded.filter
import pytest
import redis
from oxbloom import FilterMismatchError, ShardedFilter
from oxbloom._sharded import placement
from oxbloom._sharded.exchange import exchange
from servers import WITHIN, Server, wait_until
from sharded import (
    COMMANDS,
    CONNECTIONS,
    EVERY_WAY,
    FOUR_WAYS,
    OPERATIONS,
    TIGHT,
    Place,
    four_ways,
    from_redis_py_6,
    numbered,
)

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


def fail_at(
    monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException, *, lost: bool = False
) -> None:
    """Makes the read of this reply raise an error, as a signal handler may do. The connection stays open, unless the
    reply is `lost`."""
    sync, asynchronous = CONNECTIONS
    replies = count(1)

    def read_or_raise(connection: Any, *words: Any, **options: Any) -> Any:
        if next(replies) != number:
            return read(connection, *words, **options)
        if lost:
            read(connection, *words, **options)
            connection.disconnect()
        raise error

    async def read_or_raise_later(connection: Any, *words: Any, **options: Any) -> Any:
        if next(replies) != number:
            return await read_later(connection, *words, **options)
        if lost:
            await read_later(connection, *words, **options)
            await connection.disconnect()
        raise error

    read, read_later = sync.read_response, asynchronous.read_response
    monkeypatch.setattr(sync, "read_response", read_or_raise)
    monkeypatch.setattr(asynchronous, "read_response", read_or_raise_later)


def lose_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(monkeypatch, 1, redis.ConnectionError("lost"), lost=True)


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
        fail_at(patch, number, error)
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
