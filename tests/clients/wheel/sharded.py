"""Servers, clusters and all kinds of clients for the tests of `ShardedFilter` and `AsyncShardedFilter`."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.connection
from cluster import Cluster
from oxbloom import AsyncShardedFilter, ShardedFilter
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import HOST, PATIENCE, Server

TIGHT = 1e-18  # so low that the tests have no false positives
CONNECTIONS = (redis.connection.AbstractConnection, redis.asyncio.connection.AbstractConnection)
EVERY_SHARDS = [1, 3, 16, 64]
SEPARATE = {"BF.ADDPACKED": "BF.INSERT", "BF.EXISTSPACKED": "BF.MEXISTS", "BF.DELPACKED": "BF.MDEL"}
COMMANDS = [*SEPARATE, *SEPARATE.values(), "BF.RESERVE", "BF.CARD", "BF.INFO", "UNLINK"]
OPERATIONS: dict[str, tuple[Any, ...]] = {
    "reserve": (),
    "check": (),
    "add": ("item",),
    "add_all": (["item", "other", "third"],),
    "contains": ("item",),
    "contains_all": (["item", "other", "third"],),
    "remove": ("item",),
    "remove_all": (["item", "other", "third"],),
    "card": (),
    "info": (),
}


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


def numbered(count: int, stem: str = "item") -> list[str]:
    return [f"{stem} {number}" for number in range(count)]
