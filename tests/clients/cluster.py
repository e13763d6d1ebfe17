"""Real clusters on one machine: primaries with their replicas, for tests that move slots and kill servers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import combinations
from typing import Any

import redis
import redis.asyncio.cluster
import redis.cluster
from redis.crc import key_slot
from redis.utils import str_if_bytes
from servers import HOST, OXBLOOM, PATIENCE, Server, free_port, running, start, wait_until

SLOTS = 16384
BUS = 10_000  # the distance from a server's port to that of its cluster bus
GIVE_UP_AFTER = 1000  # milliseconds until servers consider a killed one dead
OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(GIVE_UP_AFTER),
    # A replica may take over however long its primary has been away, and never changes to another primary.
    "cluster-replica-validity-factor": "0",
    "cluster-allow-replica-migration": "no",
    "repl-diskless-sync-delay": "0",
    "appendonly": "no",
}


class Cluster:
    """A cluster. At first, its first servers are the primaries; later, the servers themselves say which ones are."""

    def __init__(self, stack: ExitStack, servers: list[Server], primaries: int) -> None:
        """Forms the cluster. `stack` closes the clients."""
        self._stack = stack
        self.servers = servers
        self.ids = {server: str(server.client.cluster("MYID"), "ascii") for server in servers}
        self._form(servers[:primaries], servers[primaries:])

    def client(self, **options: Any) -> redis.cluster.RedisCluster:
        options.setdefault("socket_timeout", PATIENCE)
        client = redis.cluster.RedisCluster(HOST, self.alive()[0].port, **options)
        self._stack.callback(client.close)
        return client

    def async_client(self, **options: Any) -> redis.asyncio.cluster.RedisCluster:
        return redis.asyncio.cluster.RedisCluster(HOST, self.alive()[0].port, **options)

    def alive(self) -> list[Server]:
        return [server for server in self.servers if not server.ended()]

    def primaries(self) -> list[Server]:
        return [server for server in self.alive() if server.client.role()[0] == b"master"]

    def primary_of(self, key: str) -> Server:
        """Returns the server that serves a key, according to the first server that is alive."""
        owner = self._owner(self.alive()[0], key)
        return next(server for server in self.servers if server.port == owner)

    def replicas_of(self, primary: Server) -> list[Server]:
        roles = [(server, server.client.role()) for server in self.alive()]
        return [server for server, role in roles if role[0] == b"slave" and role[2] == primary.port]

    def tags_of(self, primary: Server) -> Iterator[str]:
        """Yields hash tags of keys that a primary serves, each for a different slot."""
        tags = (f"{{{number}}}" for number in range(SLOTS))
        return (tag for tag in tags if self.primary_of(tag) is primary)

    def wait_all(self) -> bool:
        """Returns true if all earlier writes to the primaries have reached their replicas."""
        return all(self._wait(primary) for primary in self.primaries())

    def _wait(self, primary: Server) -> bool:
        marker = f"{next(self.tags_of(primary))}marker"
        with primary.client.pipeline(transaction=False) as connection:
            connection.set(marker, "").execute_command("WAIT", 1, 1000).unlink(marker)
            return connection.execute()[1] == 1

    def give_up_after(self, milliseconds: int) -> None:
        """Sets the time without a reply after which servers consider another one dead."""
        for server in self.alive():
            server.client.config_set("cluster-node-timeout", milliseconds)

    def kill_primary_of(self, key: str) -> Server:
        """Kills a key's primary. Returns it once its replica has taken over and all other servers know."""
        killed = self.primary_of(key)
        self.give_up_after(GIVE_UP_AFTER)
        killed.kill()
        wait_until(
            lambda: (
                all(self._owner(server, key) not in (killed.port, None) for server in self.alive())
                and self._healthy()
            )
        )
        self.give_up_after(PATIENCE * 1000)
        return killed

    def start_again(self, server: Server) -> None:
        """Starts a server that was killed, and waits until it follows its successor."""
        server.start()
        wait_until(self._healthy)
        wait_until(lambda: follows(server))
        self.give_up_after(PATIENCE * 1000)

    def move_slot(self, key: str, to: Server) -> None:
        """Moves the slot of a key as redis-cli does, while clients use it."""
        if self.primary_of(key) is not to:
            self.open_slot(key, to)
            self.move_keys(key, to)
            self.close_slot(key, to)

    def shuffle(self, keys: list[str]) -> None:
        """Moves the slot of each key to the next primary."""
        for key in keys:
            primaries = self.primaries()
            place = primaries.index(self.primary_of(key))
            self.move_slot(key, primaries[(place + 1) % len(primaries)])

    def open_slot(self, key: str, to: Server) -> None:
        """Begins the move of a slot: its keys may now move to another primary."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        to.client.cluster("SETSLOT", slot, "IMPORTING", self.ids[source])
        source.client.cluster("SETSLOT", slot, "MIGRATING", self.ids[to])

    def move_keys(self, key: str, to: Server) -> None:
        """Moves the keys of a slot, one by one."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        while keys := source.client.cluster("GETKEYSINSLOT", slot, 1):
            source.client.migrate(HOST, to.port, keys, 0, PATIENCE * 1000)

    def leave_slot(self, key: str, to: Server) -> None:
        """Cancels the move of a slot before any of its keys has moved."""
        slot = key_slot(key.encode())
        for server in (self.primary_of(key), to):
            server.client.cluster("SETSLOT", slot, "STABLE")

    def close_slot(self, key: str, to: Server) -> None:
        """Makes a primary the owner of a slot, after all keys have moved to it."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        others = [server for server in self.primaries() if server not in (source, to)]
        for server in (to, source, *others):
            server.client.cluster("SETSLOT", slot, "NODE", self.ids[to])
        # If a server takes over a slot before it knows the newest epoch, it claims an older one, and the servers never
        # agree.
        wait_until(lambda: len({self._epoch(server, to) for server in self.alive()}) == 1)
        wait_until(self._healthy)

    def move_slot_atomically(self, key: str, to: Server) -> tuple[str, str]:
        """Moves the slot of a key as Valkey does from 9.0 on. Returns the state of the migration and its message."""
        slot, source = key_slot(key.encode()), self.primary_of(key)
        before = _migrations(source).keys()
        command = ["MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.ids[to]]
        source.client.execute_command("CLUSTER", *command)
        (name,) = _migrations(source).keys() - before
        ends = ("success", "failed", "cancelled")
        wait_until(lambda: all(_migrations(each)[name][0] in ends for each in (source, to)))
        wait_until(self._healthy)
        return _migrations(to)[name]

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
        wait_until(lambda: all(self._knows_all(server) for server in self.servers))
        for number, server in enumerate(replicas):
            server.client.cluster("REPLICATE", self.ids[primaries[number % len(primaries)]])
        wait_until(lambda: self._healthy() and all(map(follows, replicas)))

    def _knows_all(self, server: Server) -> bool:
        nodes = server.client.cluster("NODES").values()
        return sorted(node["node_id"] for node in nodes) == sorted(self.ids.values())

    def _healthy(self) -> bool:
        """Returns true if every slot is served, and all living servers agree on its primary."""
        owners = [sorted(owners_of_slots(server)) for server in self.alive()]
        return all(each == owners[0] for each in owners) and all(
            server.client.cluster("INFO")["cluster_state"] == "ok" for server in self.alive()
        )

    def _epoch(self, server: Server, of: Server) -> str:
        """Returns the configuration epoch of a server, according to another one."""
        nodes = server.client.cluster("NODES").values()
        (epoch,) = (node["epoch"] for node in nodes if node["node_id"] == self.ids[of])
        return epoch

    def _owner(self, server: Server, key: str) -> int | None:
        """Returns the port of the primary that serves a key, according to a server."""
        slot = key_slot(key.encode())
        return next(
            (port for first, last, port in owners_of_slots(server) if first <= slot <= last), None
        )


def _migrations(server: Server) -> dict[str, tuple[str, str]]:
    """Returns the state and message of each atomic migration that a server knows."""
    entries = server.client.execute_command("CLUSTER", "GETSLOTMIGRATIONS")
    facts = [dict(zip(*[map(str_if_bytes, entry)] * 2, strict=True)) for entry in entries]
    return {fact["name"]: (fact["state"], fact["message"]) for fact in facts}


def owners_of_slots(server: Server) -> list[tuple[int, int, int]]:
    """Returns the first slot, the last slot and the primary's port of each range that a server knows."""
    return [
        (first, last, port) for first, last, (_, port, *_), *_ in server.client.cluster("SLOTS")
    ]


def follows(server: Server) -> bool:
    """Returns true if a server is a replica and has received its primary's data."""
    state = server.client.info("replication")
    return state["role"] == "slave" and state["master_link_status"] == "up"


@contextmanager
def running_cluster(
    module: str | None = OXBLOOM, primaries: int = 3, replicas: int = 3
) -> Iterator[Cluster]:
    """Starts a cluster whose primaries have equal parts of the slots. A busy server is not considered dead."""
    options = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        starting = [
            threads.submit(start, stack, module, *options, beside=(BUS,))
            for _ in range(primaries + replicas)
        ]
        cluster = Cluster(stack, [each.result() for each in starting], primaries)
        cluster.give_up_after(PATIENCE * 1000)
        yield cluster


@contextmanager
def running_node(module: str = OXBLOOM) -> Iterator[Server]:
    """Starts a cluster of one server, which has all slots."""
    ports = ("--cluster-port", str(free_port()))  # the default, 10000 more, may be above 65535
    with running(module, "--cluster-enabled", "yes", *ports) as server:
        server.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        wait_until(lambda: server.client.cluster("INFO")["cluster_state"] == "ok")
        yield server
