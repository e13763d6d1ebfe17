"""Tests `RemoteFilter` and `AsyncRemoteFilter`: with all clients, and what asyncio's calls of one turn share."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
import valkey
import valkey.asyncio
import valkey.asyncio.cluster
import valkey.cluster
from cluster import Cluster
from oxbloom import AsyncRemoteFilter, BloomFilter, KeyTakenError, RemoteFilter, ShardedFilter
from servers import HOST, Server, wait_until
from sharded import TIGHT, numbered

CLIENTS: list[Any] = [
    redis.Redis,
    redis.asyncio.Redis,
    redis.cluster.RedisCluster,
    redis.asyncio.cluster.RedisCluster,
    valkey.Valkey,
    valkey.asyncio.Valkey,
    valkey.cluster.ValkeyCluster,
    valkey.asyncio.cluster.ValkeyCluster,
]


@pytest.fixture
def port(kind: Any, server: Server, cluster: Cluster) -> int:
    """Returns the port of a server, or of a node of a cluster, that is empty."""
    if "cluster" not in kind.__module__:
        return server.port
    cluster.clear()
    return cluster.primaries()[0].port


@pytest.mark.parametrize("kind", CLIENTS)
def test_other_clients_and_pipelines_are_rejected_by_name(kind: Any, port: int) -> None:
    is_async = "asyncio" in kind.__module__
    right: Any
    wrong: Any
    right, wrong = (
        (AsyncRemoteFilter, RemoteFilter) if is_async else (RemoteFilter, AsyncRemoteFilter)
    )

    class Own(wrong):
        pass

    async def check() -> None:
        client = kind(host=HOST, port=port)
        given = re.escape(f"not {kind.__module__}.{kind.__qualname__}: use {right.__name__}")
        for each in (wrong, Own):
            with pytest.raises(TypeError, match=f"^{wrong.__name__} needs a client.*{given}"):
                each(client, "seen")
        pipeline = client.pipeline()
        for user in (right, wrong):
            with pytest.raises(TypeError, match=f"^{user.__name__} .*outside of the pipeline"):
                user(pipeline, "seen")
        local = BloomFilter(10)
        for given in [pipeline, *([client] if is_async else [])]:
            with pytest.raises(TypeError, match=r"^save_to needs a client .* redis\.Redis, not "):
                local.save_to(given, "seen")
            with pytest.raises(TypeError, match=r"^load_from needs"):
                BloomFilter.load_from(given, "seen")
        if is_async:
            await client.aclose()
        else:
            client.close()

    asyncio.run(check())


@pytest.mark.parametrize("client", ["redis://localhost", 6379])
def test_what_is_no_client_or_no_key_is_rejected(server: Server, client: Any) -> None:
    key: Any = 5
    for kind in (RemoteFilter, AsyncRemoteFilter):
        with pytest.raises(TypeError, match=f"not builtins.{type(client).__name__}$"):
            kind(client, "seen")
    with pytest.raises(TypeError, match="a filter must be a str, not int"):
        RemoteFilter(server.client, key)
    with pytest.raises(TypeError, match="a filter must be a str, not bytes"):
        ShardedFilter(server.client, b"seen", shards=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the key must be str or bytes, not int"):
        BloomFilter(10).save_to(server.client, key)
    with pytest.raises(TypeError, match="the key must be str or bytes, not int"):
        BloomFilter.load_from(server.client, key)


def test_an_item_can_be_added_in_a_transaction(server: Server) -> None:
    filter = RemoteFilter(server.client, "seen")
    with server.client.pipeline() as transaction:
        transaction.execute_command(*filter.addition("a"))
        assert not server.client.exists("seen")
        assert transaction.execute() == [[1]]
    assert filter.contains("a")


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("kind", CLIENTS)
def test_a_filter_answers_with_the_clients_of_both_libraries(
    kind: Any, port: int, decode: bool
) -> None:
    items = numbered(12_000)

    async def check() -> None:
        is_async = "asyncio" in kind.__module__
        client = kind(host=HOST, port=port, decode_responses=decode)
        make: Any = AsyncRemoteFilter if is_async else RemoteFilter
        filter = make(client, "seen", capacity=20_000, error_rate=TIGHT, counting=True)

        async def call(operation: str, *arguments: Any) -> Any:
            result = getattr(filter, operation)(*arguments)
            return await result if is_async else result

        assert filter.keys == ["seen"]
        assert await call("reserve") is True
        assert await call("reserve") is False
        assert await call("add_all", [*items, "item 3"]) == [False] * 12_000 + [True]
        assert await call("contains_all", ["item 7", "other"]) == [True, False]
        assert await call("add", "item 7") is True
        assert await call("remove", "item 7") is True
        assert await call("contains", "item 7") is False
        assert await call("remove_all", ["item 7", "item 8"]) == [False, True]
        assert await call("card") == 11_998
        info = await call("info")
        assert (info.shards, info.items) == (1, 11_998)
        await call("clear")
        assert await call("contains", "item 9") is False
        await call("reserve")
        if is_async:
            await client.aclose()
        else:
            client.close()

    asyncio.run(check())


def test_it_is_the_filter_that_commands_and_sharded_filters_see(server: Server) -> None:
    client = server.client
    client.execute_command("BF.RESERVE", "seen", "0.001", 100)
    seen = RemoteFilter(client, "seen")
    assert seen.add_all(["a", "b"]) == [False, False]
    assert client.execute_command("BF.MEXISTS", "seen", "a", "b", "c") == [1, 1, 0]
    assert client.execute_command("BF.INFO", "seen", "CAPACITY") == [100]
    assert ShardedFilter(client, "seen", shards=1).contains("a") is True
    client.set("text", "")
    with pytest.raises(KeyTakenError):
        RemoteFilter(client, "text").reserve()
    with pytest.raises(TypeError, match="shards"):
        RemoteFilter(client, "seen", shards=2)  # type: ignore[call-arg]


# Calls of one turn of the event loop

Check = Callable[[AsyncRemoteFilter], Awaitable[None]]


def run(server: Server, check: Check, **options: Any) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            filter = AsyncRemoteFilter(client, "seen", error_rate=TIGHT, **options)
            await filter.reserve()
            await check(filter)

    asyncio.run(main())


def calls(server: Server) -> dict[str, int]:
    """Returns the numbers of commands on items."""
    stats = server.client.info("commandstats")
    names = {name.removeprefix("cmdstat_bf."): each["calls"] for name, each in stats.items()}
    return {name: names[name] for name in names if not name.startswith(("cmdstat", "reserve"))}


@pytest.fixture
def counted(server: Server) -> Server:
    server.client.config_resetstat()
    return server


def test_calls_of_one_turn_are_one_command(counted: Server) -> None:
    async def check(filter: AsyncRemoteFilter) -> None:
        items = numbered(1000)
        adding = [filter.add(item) for item in [*items, *items]]
        assert await asyncio.gather(*adding) == [False] * 1000 + [True] * 1000
        assert calls(counted) == {"addpacked": 1}
        asking = [filter.contains(item) for item in [*items, *numbered(1000, "other")]]
        removing = [filter.remove(item) for item in numbered(10, "never")]
        answers = await asyncio.gather(*asking, *removing)
        assert answers == [True] * 1000 + [False] * 1010
        assert calls(counted) == {"addpacked": 1, "existspacked": 1, "delpacked": 1}

    run(counted, check, counting=True)


def test_a_single_call_is_sent_as_such(counted: Server) -> None:
    async def check(filter: AsyncRemoteFilter) -> None:
        assert await filter.add("item") is False
        assert await filter.add("item") is True
        assert await filter.contains("item") is True

    run(counted, check)
    assert calls(counted) == {"insert": 2, "mexists": 1}


def test_tasks_that_are_cancelled_harm_no_others(server: Server) -> None:
    async def check(filter: AsyncRemoteFilter) -> None:
        tasks = [asyncio.ensure_future(filter.add(item)) for item in numbered(100)]
        await asyncio.sleep(0)
        tasks[3].cancel()  # before the batch is sent
        server.client.client_pause(60_000, all=False)
        while not server.client.info("clients")["blocked_clients"]:
            await asyncio.sleep(0.005)
        tasks[7].cancel()  # after it was sent
        await asyncio.sleep(0)
        assert tasks[7].cancelled()
        server.client.client_unpause()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled = [n for n, result in enumerate(results) if result is not False]
        assert cancelled == [3, 7]
        assert all(isinstance(results[n], asyncio.CancelledError) for n in cancelled)
        present = await filter.contains_all(numbered(100))
        assert [n for n, there in enumerate(present) if not there] == [3]

    run(server, check)


def test_a_batch_whose_tasks_are_all_cancelled_is_not_sent(counted: Server) -> None:
    async def check(filter: AsyncRemoteFilter) -> None:
        tasks = [asyncio.ensure_future(filter.add(item)) for item in numbered(3)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        await asyncio.sleep(0.05)
        assert calls(counted) == {}

    run(counted, check)


def test_items_before_one_that_fails_get_their_answers_and_the_others_the_error(
    server: Server,
) -> None:
    server.client.execute_command("BF.RESERVE", "small", repr(TIGHT), 50, "NONSCALING")

    async def check(_: AsyncRemoteFilter) -> None:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            small = AsyncRemoteFilter(client, "small")
            results = await asyncio.gather(*map(small.add, numbered(80)), return_exceptions=True)
            assert results[:50] == [False] * 50
            assert len(results) == 80
            for result in results[50:]:
                assert isinstance(result, redis.ResponseError)
                assert "full" in str(result)
            assert await small.contains("item 3") is True

    run(server, check)


def test_an_item_of_another_type_is_an_error_of_its_own_call(server: Server) -> None:
    async def check(filter: AsyncRemoteFilter) -> None:
        items: list[Any] = ["a", 1, b"b"]
        results = await asyncio.gather(*map(filter.add, items), return_exceptions=True)
        assert results[::2] == [False, False]
        assert isinstance(results[1], TypeError)

    run(server, check)


def test_a_lost_connection_is_an_error_of_all_calls() -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(port=1) as client:
            filter = AsyncRemoteFilter(client, "seen")
            results = await asyncio.gather(*map(filter.add, "abc"), return_exceptions=True)
            assert [type(result) for result in results] == [redis.ConnectionError] * 3

    asyncio.run(main())


def test_calls_that_wait_when_the_loop_ends_are_cancelled(server: Server) -> None:
    waiting: list[asyncio.Future[bool]] = []

    async def main() -> None:
        client = redis.asyncio.Redis.from_url(server.url)
        filter = AsyncRemoteFilter(client, "seen")
        server.client.client_pause(60_000, all=False)
        waiting.extend(asyncio.ensure_future(filter.add(item)) for item in "abc")
        while not server.client.info("clients")["blocked_clients"]:
            await asyncio.sleep(0.005)

    asyncio.run(main())
    server.client.client_unpause()
    assert all(call.cancelled() for call in waiting)


def test_a_filter_can_be_used_in_one_loop_after_another(server: Server) -> None:
    client = redis.asyncio.Redis.from_url(server.url, single_connection_client=False)
    filter = AsyncRemoteFilter(client, "seen", error_rate=TIGHT)

    async def add() -> list[bool]:
        try:
            return await asyncio.gather(*map(filter.add, "abc"))
        finally:
            await client.aclose()

    assert asyncio.run(add()) == [False] * 3
    assert asyncio.run(add()) == [True] * 3
    wait_until(lambda: server.client.execute_command("BF.CARD", "seen") == 3)
