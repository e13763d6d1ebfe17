"""A real cluster: primaries with their replicas, on one machine, for the tests that move slots and kill servers.

Its ports, and those of its bus, which are 10000 above, lie below those that the system gives to connections: nobody else takes
them by chance.
"""

import random
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio.cluster
import redis.cluster
from oxbloom_scrapy.deliveries import beside
from redis.crc import key_slot
from servers import ATTEMPTS, HOST, OXBLOOM, Server, wait_until

SLOTS = 16384
PORTS = range(10_000, 20_000)
BUS = 10_000  # above a server's port
FORMED_WITHIN = 50  # seconds
OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "1000",
    # A replica takes over however long it has not heard of its primary, and stays with it otherwise.
    "cluster-replica-validity-factor": "0",
    "cluster-allow-replica-migration": "no",
    "repl-diskless-sync-delay": "0",
    "appendonly": "no",
}


def port_with_bus() -> int:
    while True:
        port = random.choice(PORTS)
        try:
            for each in (port, port + BUS):
                with socket.socket() as probe:
                    probe.bind((HOST, each))
        except OSError:
            continue
        return port


class Cluster:
    """Servers, the first of which are made primaries. Which are so later, they tell themselves."""

    def __init__(self, servers: list[Server], primaries: int) -> None:
        self.servers = servers
        self.ids = {server: str(server.client.cluster("MYID"), "ascii") for server in servers}
        self._form(servers[:primaries], servers[primaries:])

    def client(self, **options: Any) -> redis.cluster.RedisCluster:
        return redis.cluster.RedisCluster(HOST, self.alive()[0].port, **options)

    def async_client(self, **options: Any) -> redis.asyncio.cluster.RedisCluster:
        return redis.asyncio.cluster.RedisCluster(HOST, self.alive()[0].port, **options)

    def alive(self) -> list[Server]:
        return [server for server in self.servers if server.process.poll() is None]

    def primaries(self) -> list[Server]:
        return [server for server in self.alive() if server.client.role()[0] == b"master"]

    def primary_of(self, key: str) -> Server:
        """The server that the cluster's first living one believes to serve a key."""
        owner = self._owner(self.alive()[0], key)
        return next(server for server in self.servers if server.port == owner)

    def wait(self, key: str) -> bool:
        """Whether a key's primary has handed all that was written to it before on to its replica."""
        marker = beside(key, "marker")
        with self.primary_of(key).client.pipeline(transaction=False) as connection:
            connection.set(marker, "").execute_command("WAIT", 1, 1000).unlink(marker)
            return connection.execute()[1] == 1

    def wait_all(self) -> bool:
        """The same, of all primaries."""
        return all(self.wait(self._key_of(server)) for server in self.primaries())

    def kill_primary_of(self, key: str) -> Server:
        """Kills a key's primary, and returns it when its replica has taken over and all others know that."""
        killed = self.primary_of(key)
        killed.kill()
        wait_until(
            lambda: (
                all(self._owner(server, key) not in (killed.port, None) for server in self.alive())
                and self._healthy()
            )
        )
        return killed

    def start_again(self, server: Server) -> None:
        """Starts a server that was killed, and waits until it follows the one that took over."""
        server.start()
        wait_until(self._healthy)
        wait_until(lambda: follows(server))

    def move_slot(self, key: str, to: Server) -> None:
        """Moves the slot of a key while it is in use, as redis-cli does."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        if source is to:
            return
        to.client.cluster("SETSLOT", slot, "IMPORTING", self.ids[source])
        source.client.cluster("SETSLOT", slot, "MIGRATING", self.ids[to])
        while keys := source.client.cluster("GETKEYSINSLOT", slot, 100):
            source.client.migrate(HOST, to.port, keys, 0, 10_000)
        others = [server for server in self.primaries() if server not in (source, to)]
        for server in (to, source, *others):
            server.client.cluster("SETSLOT", slot, "NODE", self.ids[to])

    def clear(self) -> None:
        for server in self.primaries():
            server.client.flushall()

    def _form(self, primaries: list[Server], replicas: list[Server]) -> None:
        for number, server in enumerate(primaries):
            first, end = (SLOTS * n // len(primaries) for n in (number, number + 1))
            server.client.cluster("ADDSLOTS", *range(first, end))
            server.client.cluster("SET-CONFIG-EPOCH", number + 1)
        for one, other in combinations(self.servers, 2):
            one.client.cluster("MEET", HOST, other.port)
        wait_until(lambda: all(self._knows_all(server) for server in self.servers), FORMED_WITHIN)
        for number, server in enumerate(replicas):
            server.client.cluster("REPLICATE", self.ids[primaries[number % len(primaries)]])
        wait_until(lambda: self._healthy() and all(map(follows, replicas)), FORMED_WITHIN)

    def _knows_all(self, server: Server) -> bool:
        nodes = server.client.cluster("NODES").values()
        return sorted(node["node_id"] for node in nodes) == sorted(self.ids.values())

    def _healthy(self) -> bool:
        """Whether all who live agree who serves what, and that this is everything."""
        owners = [sorted(owners_of_slots(server)) for server in self.alive()]
        return all(each == owners[0] for each in owners) and all(
            server.client.cluster("INFO")["cluster_state"] == "ok" for server in self.alive()
        )

    def _owner(self, server: Server, key: str) -> int | None:
        """The port of the primary that a server believes to serve a key."""
        slot = key_slot(key.encode())
        return next(
            (port for first, last, port in owners_of_slots(server) if first <= slot <= last), None
        )

    def _key_of(self, server: Server) -> str:
        keys = (f"{{{number}}}" for number in range(SLOTS))
        return next(key for key in keys if self.primary_of(key) is server)


def owners_of_slots(server: Server) -> list[tuple[int, int, int]]:
    """First slot, last slot and primary's port of each range that a server knows."""
    return [
        (first, last, port) for first, last, (_, port, *_), *_ in server.client.cluster("SLOTS")
    ]


def follows(server: Server) -> bool:
    """Whether a replica has got all that its primary had when it began to follow it."""
    state = server.client.info("replication")
    return state["role"] == "slave" and state["master_link_status"] == "up"


@contextmanager
def running_cluster(
    module: str | None = OXBLOOM, primaries: int = 3, replicas: int = 3
) -> Iterator[Cluster]:
    """A cluster whose slots are dealt out to its primaries in equal parts."""
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        starting = [threads.submit(_start, module, stack) for _ in range(primaries + replicas)]
        yield Cluster([each.result() for each in starting], primaries)


def _start(module: str | None, stack: ExitStack) -> Server:
    for _ in range(ATTEMPTS):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oxbloom-"))
        options = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
        try:
            server = Server(Path(folder), module, *options, port=port_with_bus())
        except pytest.fail.Exception:  # somebody was faster
            continue
        stack.callback(server.client.close)
        stack.callback(server.kill)
        return server
    pytest.fail("the servers of a cluster do not start", pytrace=False)
