"""Filters are saved to keys of servers, and loaded from keys, in chunks."""

import threading
from collections.abc import Iterator

import pytest
import redis
import redis.cluster
import valkey
import valkey.cluster
from cluster import Cluster, running_node
from kinds import KINDS, ODD_KEYS, filled
from oxbloom import BloomFilter
from oxbloom._slots import beside, hash_slot
from redis.crc import key_slot
from servers import HOST, Server


@pytest.mark.parametrize("name", KINDS)
def test_filters_of_all_kinds_are_saved_and_loaded(server: Server, name: str):
    filter, members = filled(name)
    filter.save_to(server.client, "key")
    assert server.client.keys() == [b"key"]
    assert server.client.ttl("key") == -1
    assert all(server.client.execute_command("BF.MEXISTS", "key", *members))
    loaded = BloomFilter.load_from(server.client, "key")
    assert loaded.dump() == filter.dump()
    assert loaded.info() == filter.info()


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"protocol": 3}, {"protocol": 2}])
@pytest.mark.parametrize("kind", [redis.Redis, valkey.Valkey], ids=["redis-py", "valkey-py"])
def test_all_kinds_of_clients_work(server: Server, kind: type[redis.Redis], options: dict):
    filter, _ = filled("grown")
    with kind(port=server.port, **options) as client:
        client.bf()  # registers callbacks, which parse replies
        filter.save_to(client, b"key")
        sizes: list[tuple[int, int]] = []
        loaded = BloomFilter.load_from(client, b"key", progress=lambda *args: sizes.append(args))
    assert loaded.dump() == filter.dump()
    assert sizes


@pytest.mark.thorough
def test_a_filter_that_is_larger_than_any_argument_is_saved_and_loaded(server: Server):
    largest = 512 << 20  # proto-max-bulk-len, which limits RESTORE
    filter = BloomFilter(largest, 0.01)
    assert filter.memory > largest
    filter.add_all(f"item {number}" for number in range(100_000))
    filter.save_to(server.client, "key")
    with pytest.raises(redis.ConnectionError):
        server.client.restore("other", 0, filter.dump())
    loaded = BloomFilter.load_from(server.client, "key")
    server.client.delete("key")
    assert loaded._header() == filter._header()
    assert loaded.dump() == filter.dump()


def test_progress_goes_up_to_the_whole(server: Server):
    filter, _ = filled("large")
    for call in (filter.save_to, BloomFilter.load_from):
        steps: list[tuple[int, int]] = []
        call(
            server.client,
            "key",
            progress=lambda done, total, steps=steps: steps.append((done, total)),
        )
        assert len(steps) > 3
        assert steps == sorted(steps)
        done, total = steps[-1]
        assert 0.99 * total <= done <= total
        assert total == pytest.approx(filter.memory, rel=0.01)


def test_an_existing_key_is_kept_without_replace(server: Server):
    filter, members = filled("native")
    server.client.set("key", "value", ex=1000)
    with pytest.raises(KeyError, match="the key exists"):
        filter.save_to(server.client, "key")
    assert server.client.get("key") == b"value"
    filter.save_to(server.client, "key", replace=True)
    assert all(server.client.execute_command("BF.MEXISTS", "key", *members))
    assert server.client.ttl("key") == -1
    assert server.client.dbsize() == 1


def test_a_key_that_is_created_during_a_save_is_kept(server: Server):
    filter, _ = filled("native")
    with pytest.raises(KeyError, match="the key exists"):
        filter.save_to(server.client, "key", progress=lambda *_: server.client.set("key", "mine"))
    assert server.client.get("key") == b"mine"
    assert server.client.dbsize() == 1


def test_a_failed_save_leaves_nothing(server: Server):
    def fail(*_: int) -> None:
        assert server.client.dbsize() == 1
        [temporary] = server.client.keys()
        assert 0 < server.client.ttl(temporary) <= 3600
        raise OSError("enough")

    with pytest.raises(OSError, match="enough"):
        filled("native")[0].save_to(server.client, "key", progress=fail)
    assert server.client.dbsize() == 0


@pytest.mark.parametrize("kind", [redis.cluster.RedisCluster, valkey.cluster.ValkeyCluster])
def test_a_filter_is_loaded_from_wherever_its_slot_has_moved(cluster: Cluster, kind: type):
    cluster.clear()
    filter, _ = filled("grown")
    with kind(HOST, cluster.alive()[0].port) as client:
        filter.save_to(client, "key")
        cluster.shuffle(["key"])
        assert BloomFilter.load_from(client, "key").dump() == filter.dump()
        # The key has moved already, but the slot has not.
        source = cluster.primary_of("key")
        other = next(each for each in cluster.primaries() if each is not source)
        cluster.open_slot("key", other)
        cluster.move_keys("key", other)
        end = threading.Timer(0.2, cluster.close_slot, ("key", other))
        end.start()
        assert BloomFilter.load_from(client, "key").dump() == filter.dump()
        end.join()


def test_keys_without_a_filter_are_not_loaded(server: Server):
    with pytest.raises(KeyError, match="no such key"):
        BloomFilter.load_from(server.client, "key")
    server.client.set("key", "value")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        BloomFilter.load_from(server.client, "key")


def test_memory_is_bounded(server: Server):
    server.client.execute_command("BF.RESERVE", "key", 0.01, 1_000_000)
    with pytest.raises(ValueError, match="more than max_memory=1000"):
        BloomFilter.load_from(server.client, "key", max_memory=1000)


def test_a_filter_that_changes_during_a_load_is_read_again(server: Server):
    for name in ("grown", "growing counting"):
        filter, members = filled(name)
        filter.save_to(server.client, name)
        added: list[int] = []

        def add(*_: int, name: str = name, added: list[int] = added) -> None:
            if not added:
                added.append(1)
                server.client.execute_command("BF.MADD", name, *range(200))

        loaded = BloomFilter.load_from(server.client, name, progress=add)
        assert all(loaded.contains_all(members + [str(number) for number in range(200)]))
        assert len(loaded) == server.client.execute_command("BF.CARD", name)


def test_a_filter_whose_header_comes_back_during_a_load_is_read_again(server: Server):
    """The chunks of a classic filter do not tell which filter they are of."""
    send = server.client.execute_command

    def create(name: str) -> bytes:
        send("DEL", "key")
        send("BF.RESERVE", "key", 0.01, 20_000_000, "LAYOUT", "classic")
        send("BF.MADD", "key", *(f"{name} {number}" for number in range(1000)))
        return send("BF.SCANDUMP", "key", 0)[1]

    header = create("old")
    done: list[int] = []

    def replace(*_: int) -> None:
        done.append(1)
        if len(done) == 2:  # after the header and the first of two chunks
            assert create("new") == header

    loaded = BloomFilter.load_from(server.client, "key", progress=replace)
    assert len(done) == 6
    assert loaded == BloomFilter.load(send("DUMP", "key"))


def test_loading_a_filter_that_keeps_changing_fails(server: Server):
    filled("grown")[0].save_to(server.client, "key")
    numbers = iter(range(1_000_000))

    def add(*_: int) -> None:
        server.client.execute_command("BF.MADD", "key", *(next(numbers) for _ in range(50)))

    with pytest.raises(RuntimeError, match="changes again and again"):
        BloomFilter.load_from(server.client, "key", progress=add)


def test_a_filter_that_changes_during_a_save_is_not_saved(server: Server):
    filter, _ = filled("grown")
    with pytest.raises((RuntimeError, redis.ResponseError)):
        filter.save_to(
            server.client, "key", progress=lambda *_: filter.add_all(map(str, range(99)))
        )
    assert server.client.dbsize() == 0


@pytest.fixture(scope="module")
def node() -> Iterator[redis.RedisCluster]:
    with running_node() as server:
        client = redis.RedisCluster.from_url(server.url)
        yield client
        client.close()


@pytest.mark.parametrize("key", ODD_KEYS)
def test_filters_are_saved_in_clusters(node: redis.RedisCluster, key: bytes):
    filter, _ = filled("grown")
    filter.save_to(node, key)
    assert BloomFilter.load_from(node, key).dump() == filter.dump()
    assert hash_slot(key) == key_slot(key)
    assert hash_slot(beside(key, b":x")) == key_slot(key)
