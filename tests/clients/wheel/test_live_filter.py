"""`LiveFilter` and `AsyncLiveFilter`: copies of filters in this process that follow a server."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.cluster
import valkey
from cluster import Cluster
from oxbloom import (
    AsyncLiveFilter,
    BloomFilter,
    KeyTakenError,
    LiveFilter,
    ModuleMissingError,
    StaleCopyError,
)
from oxbloom._live import Follower
from servers import HOST, OXBLOOM, Server, running, wait_until

RESERVATIONS = [
    ("0.01", 1000),
    ("0.01", 100_000, "NONSCALING"),
    ("0.001", 500, "LAYOUT", "classic"),
    ("0.001", 500, "LAYOUT", "valkey"),
]


def reserve(client: Any, *options: Any) -> None:
    client.execute_command("DEL", "seen")
    client.execute_command("BF.RESERVE", "seen", *options)


def test_the_pause_after_failures_has_a_limit(server: Server):
    follower = Follower(server.client, "seen")
    pauses = []
    for _ in range(5000):
        pauses.append(follower.wait(0.1))
        follower.ended(OSError())
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == 5
    assert follower.wait(60) == 60


def add(client: Any, numbers: range) -> None:
    client.execute_command("BF.MADD", "seen", *(f"item {number}" for number in numbers))


def assert_equal(live: LiveFilter | AsyncLiveFilter, client: Any, key: str = "seen") -> None:
    assert live.copy().dump() == BloomFilter.load_from(client, key).dump()


@pytest.mark.parametrize("options", RESERVATIONS, ids=str)
@pytest.mark.parametrize("kind", [redis.Redis, valkey.Valkey], ids=["redis-py", "valkey-py"])
def test_a_copy_follows_the_filter(server: Server, kind: Any, options: tuple):
    reserve(server.client, *options)
    add(server.client, range(300))
    with (
        kind(port=server.port, decode_responses=True) as client,
        LiveFilter(client, "seen", interval=0.01) as seen,
    ):
        assert "item 299" in seen
        add(server.client, range(300, 4000))
        wait_until(lambda: "item 3999" in seen)
        assert (
            list(seen.contains_all([f"item {number}" for number in range(4000)])) == [True] * 4000
        )
        seen.sync()
        assert_equal(seen, server.client)
        assert (seen.resyncs, seen.error) == (0, None)
        assert seen.lag < 60
        assert time.time() - 60 < seen.synced_at < time.time()


def test_what_is_gone_from_the_server_leaves_the_copy(server: Server):
    add(server.client, range(10))
    with LiveFilter(server.client, "seen", interval=0.01) as seen:
        server.client.delete("seen")
        wait_until(lambda: "item 0" not in seen)
        add(server.client, range(10, 20))
        wait_until(lambda: "item 19" in seen)
        assert "item 0" not in seen
        assert seen.resyncs == 1
        server.client.pexpire("seen", 1)
        wait_until(lambda: "item 19" not in seen)
        assert seen.error is None
    with LiveFilter(server.client, "nothing", interval=0.01) as nothing:
        assert "item" not in nothing
        server.client.bf().add("nothing", "item")
        wait_until(lambda: "item" in nothing)


def test_a_lost_connection_leaves_the_copy_and_its_age_tells(server: Server):
    with running(OXBLOOM) as other:
        add(other.client, range(10))
        with redis.Redis(HOST, other.port, retry=None) as client:
            seen = LiveFilter(client, "seen", interval=0.01)
            strict = LiveFilter(client, "seen", interval=0.01, max_lag=60)
            assert "item 0" in strict
            other.kill()
            wait_until(lambda: isinstance(seen.error, redis.ConnectionError))
            assert "item 0" in seen
            synced_at, lag = seen.synced_at, seen.lag
            with pytest.raises(redis.ConnectionError):
                seen.sync()
            assert (seen.synced_at, seen.lag > lag) == (synced_at, True)
            strict.max_lag = 0.0
            with pytest.raises(StaleCopyError, match="seconds old, more than max_lag"):
                _ = "item 0" in strict
            # The server comes back without its data.
            other.start()
            wait_until(lambda: "item 0" not in seen)
            assert seen.error is None
            seen.close()
            strict.close()


def test_wrong_keys_servers_and_clients_are_rejected_at_once(server: Server, bare_server: Server):
    server.client.set("text", "x")
    with pytest.raises(KeyTakenError):
        LiveFilter(server.client, "text")
    with pytest.raises(ModuleMissingError):
        LiveFilter(bare_server.client, "seen")
    with pytest.raises(ModuleMissingError):
        LiveFilter(server.client, "seen", prefix="OX")
    for option in ("COUNTING", "ROLLING"):
        reserve(server.client, 0.01, 100, option)
        with pytest.raises(redis.ResponseError, match="COUNTING, WINDOW or ROLLING"):
            LiveFilter(server.client, "seen")
    for interval in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="above 0"):
            LiveFilter(server.client, "seen", interval=interval)
    for client in (redis.asyncio.Redis(), server.client.pipeline(), "redis://"):
        with pytest.raises(TypeError, match="LiveFilter needs a client"):
            LiveFilter(client, "seen")  # type: ignore[arg-type]


def test_threads_end_with_their_filters_and_begin_again_in_forked_processes(server: Server):
    add(server.client, range(10))

    def followers() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name.startswith("oxbloom follows")]

    def use() -> None:
        seen = LiveFilter(server.client, "seen", interval=0.01)
        assert len(followers()) == 1
        process = os.fork()
        if not process:  # the child
            status = 1
            try:
                add(redis.Redis(HOST, server.port), range(10, 20))
                wait_until(lambda: "item 19" in seen)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(process, 0)[1] == 0
        wait_until(lambda: "item 19" in seen)

    use()
    gc.collect()
    wait_until(lambda: not followers())


def test_asyncio_has_the_same(server: Server):
    add(server.client, range(10))

    async def follow() -> None:
        client = redis.asyncio.Redis(host=HOST, port=server.port)
        async with AsyncLiveFilter(client, "seen", interval=0.01) as seen:
            assert "item 9" in seen
            add(server.client, range(10, 4000))
            while "item 3999" not in seen:
                await asyncio.sleep(0.01)
            await seen.sync()
            assert_equal(seen, server.client)
            server.client.delete("seen")
            while "item 0" in seen:
                await asyncio.sleep(0.01)
            assert (seen.error, seen.resyncs) == (None, 0)
        with pytest.raises(TypeError, match="AsyncLiveFilter needs a client"):
            AsyncLiveFilter(server.client, "seen")  # type: ignore[arg-type]
        await client.aclose()

    asyncio.run(follow())


# --- Under load ----------------------------------------------------------------------------------------------------------

WRITERS = 4
RATE = 10_000  # additions a second of all writers. One that is late catches up
BATCH = 50
ROUND = RATE * float(os.environ.get("LIVE_SECONDS", "0.4"))  # additions after each disturbance


class Load:
    """Threads that add to the filter `seen`, and remember what was acknowledged, and when."""

    def __init__(self, connect: Any) -> None:
        self.connect = connect
        self.acknowledged: list[tuple[float, str]] = []
        self.running = threading.Event()
        self.running.set()
        self.ended = False
        self.idle = [threading.Event() for _ in range(WRITERS)]
        self.threads = [
            threading.Thread(target=self.write, args=(writer,), daemon=True)
            for writer in range(WRITERS)
        ]
        for thread in self.threads:
            thread.start()

    def write(self, writer: int) -> None:
        client, number, due = self.connect(), 0, time.monotonic()
        while not self.ended:
            if not self.running.is_set():
                self.idle[writer].set()
                self.running.wait()
                self.idle[writer].clear()
                due = time.monotonic()
            items = [f"{writer}:{each}" for each in range(number, number + BATCH)]
            number += BATCH
            try:
                client.execute_command("BF.MADD", "seen", *items)
            except (redis.RedisError, redis.exceptions.RedisClusterException, KeyError):
                due = time.monotonic()
                continue
            now = time.time()
            self.acknowledged += [(now, item) for item in items]
            due += WRITERS * BATCH / RATE
            time.sleep(max(0.0, due - time.monotonic()))

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.running.clear()
        for idle in self.idle:
            assert idle.wait(240)
        yield
        self.running.set()

    def end(self) -> None:
        self.ended = True
        self.running.set()
        for thread in self.threads:
            thread.join()


def check(seen: LiveFilter, load: Load, client: Any, since: float = 0.0) -> None:
    """Checks during a round that what was acknowledged after `since` and before the copy asked is in the copy, and then
    at rest that the copy equals the filter, and has all of that."""
    end, done = len(load.acknowledged) + ROUND, 0
    while not done or len(load.acknowledged) < end:
        synced_at, known = seen.synced_at, len(load.acknowledged)
        for at, item in load.acknowledged[max(0, known - 20_000) : known]:
            if since < at < synced_at:
                assert item in seen, f"a false negative: {item}"
                done += 1
        time.sleep(0.01)
    with load.paused():
        wait_until(lambda: synced(seen))
        assert_equal(seen, client)
        assert all(seen.contains_all([item for at, item in load.acknowledged if at > since]))


def synced(seen: LiveFilter) -> bool:
    try:
        seen.sync()
    except (redis.RedisError, redis.exceptions.RedisClusterException):
        return False  # a server is down
    return True


def test_a_copy_under_load_has_no_false_negative_whatever_happens(server: Server):
    client = server.client
    reserve(client, 0.01, 5000, "SEED", 7)
    client.execute_command("BF.RESERVE", "other", "LIKE", "seen")
    client.execute_command("BF.MADD", "other", *range(1000))
    load = Load(lambda: redis.Redis(HOST, server.port))
    seen = LiveFilter(redis.Redis(HOST, server.port), "seen", interval=0.02)
    try:
        check(seen, load, client)
        client.execute_command("BF.MERGE", "seen", 1, "other")
        wait_until(lambda: "999" in seen)
        check(seen, load, client)
        # Others copy the filter, too.
        others = [LiveFilter(redis.Redis(HOST, server.port), "seen") for _ in range(3)]
        check(others[-1], load, client)
        for other in others:
            other.close()
        # It is deleted, and created again: larger than it needs to be, and folded.
        with load.paused():
            reserve(client, 0.01, 4_000_000)
            since = time.time()
        check(seen, load, client, since)
        assert client.execute_command("BF.FOLD", "seen", "CAPACITY", 1_000_000) > 1
        check(seen, load, client, since)
        # The client is stopped for longer than the server keeps changes.
        resyncs = seen.resyncs
        with seen._turn:
            known = len(load.acknowledged)
            wait_until(lambda: len(load.acknowledged) > known + 6000)
        check(seen, load, client, since)
        assert seen.resyncs == resyncs + 1
    finally:
        load.end()
        seen.close()


def test_a_copy_under_load_survives_the_death_of_its_server():
    with running(OXBLOOM, "--appendonly", "yes", "--appendfsync", "always") as server:
        load = Load(lambda: redis.Redis(HOST, server.port))
        seen = LiveFilter(redis.Redis(HOST, server.port), "seen", interval=0.02)
        try:
            check(seen, load, server.client)
            for _ in range(2):
                server.kill()
                lost_at = seen.synced_at
                server.start()
                wait_until(lambda: seen.synced_at > lost_at)  # noqa: B023
                check(seen, load, server.client)
        finally:
            load.end()
            seen.close()


def test_a_copy_under_load_follows_its_key_through_a_cluster(cluster: Cluster):
    cluster.clear()
    load = Load(cluster.client)
    client = cluster.client()
    seen = LiveFilter(client, "seen", interval=0.02)
    try:
        check(seen, load, client)
        # The slot moves to another server.
        cluster.shuffle(["seen"])
        check(seen, load, client)
        # A replica takes over.
        with load.paused():
            wait_until(cluster.wait_all)
            killed = cluster.kill_primary_of("seen")
            wait_until(lambda: synced(seen))
        check(seen, load, client)
        cluster.start_again(killed)
    finally:
        load.end()
        seen.close()
