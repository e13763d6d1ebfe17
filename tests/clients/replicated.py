"""Starts a primary with its replicas, and sentinels that choose the next primary."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis
from redis.sentinel import Sentinel
from servers import HOST, OXBLOOM, PATIENCE, Server, server_version, start, wait_until

NAME = "filters"
REPLICAS = 2
SENTINELS = 3
QUORUM = 2
WATCH = {"down-after-milliseconds": 2000, "failover-timeout": 10_000}
# Times in milliseconds. The second one determines how soon a former primary learns who its successor is.
PERIODS = {"info-period": 1000, "publish-period": 500}


class Replicated:
    """A primary with its replicas. At first, the first server is the primary; later, the servers say which one is."""

    def __init__(self, stack: ExitStack, servers: list[Server], sentinels: list[Server]) -> None:
        """Starts the replication. `stack` closes the clients."""
        self._stack = stack
        self.servers, self.sentinels = servers, sentinels
        primary, *replicas = servers
        for replica in replicas:
            replica.client.replicaof(HOST, primary.port)
        wait_until(self.settled)
        for sentinel in sentinels:
            watch = sentinel.client.execute_command
            watch("SENTINEL", "MONITOR", NAME, HOST, primary.port, QUORUM)
            for option, value in WATCH.items():
                watch("SENTINEL", "SET", NAME, option, value)
            for option, value in PERIODS.items() if server_version() >= (7, 0) else ():
                watch("SENTINEL", "DEBUG", option, value)
        wait_until(lambda: all(self._knows_all(sentinel) for sentinel in sentinels))

    def client(self, **options: Any) -> redis.Redis:
        """Returns a client that asks the sentinels for the primary."""
        asked = Sentinel([(HOST, sentinel.port) for sentinel in self.sentinels])
        client = asked.master_for(NAME, socket_timeout=PATIENCE, **options)
        for each in (client, *asked.sentinels):
            self._stack.callback(each.close)
        return client

    def clients(self, **options: Any) -> list[redis.Redis]:
        """Returns a client for each server, whatever its role."""
        clients = [redis.Redis(HOST, server.port, **options) for server in self.servers]
        for each in clients:
            self._stack.callback(each.close)
        return clients

    def primary(self) -> Server:
        wait_until(self.settled)
        (primary,) = self._of_role(b"master")
        return primary

    def replicas(self) -> list[Server]:
        return self._of_role(b"slave")

    def kill_primary(self) -> Server:
        """Kills the primary. Returns it once another server has taken over."""
        killed = self.primary()
        killed.kill()
        wait_until(lambda: self._is_replaced(killed))
        return killed

    def fail_over(self) -> None:
        """Makes a sentinel choose another primary."""
        old = self.primary()
        # The sentinel rejects this until it knows a suitable replica.
        wait_until(self._told_to_fail_over)
        wait_until(lambda: self._is_replaced(old))

    def hand_over(self) -> None:
        """Makes the primary hand over to another server, and all others follow that one. This needs no sentinels."""
        next_one, *others = self.replicas()
        self.primary().client.execute_command("FAILOVER", "TO", HOST, next_one.port)
        wait_until(lambda: next_one in self._of_role(b"master"))
        for other in others:
            other.client.replicaof(HOST, next_one.port)
        wait_until(self.settled)

    def wait(self) -> bool:
        """Returns true if all replicas have all earlier writes."""
        with self.primary().client.pipeline(transaction=False) as connection:
            connection.set("marker", "").execute_command("WAIT", len(self.replicas()), 1000)
            return connection.execute()[1] >= len(self.replicas())

    def settled(self) -> bool:
        """Returns true if there is one primary, all others follow it, and it knows that they are online."""
        primaries, replicas = self._of_role(b"master"), self.replicas()
        if len(primaries) != 1:
            return False
        online = {int(port) for _host, port, _offset in primaries[0].client.role()[2]}
        return all(
            replica.port in online
            and replica.client.role()[2:4] == [primaries[0].port, b"connected"]
            for replica in replicas
        )

    def _of_role(self, role: bytes) -> list[Server]:
        alive = [server for server in self.servers if not server.ended()]
        return [server for server in alive if server.client.role()[0] == role]

    def _told_to_fail_over(self) -> bool:
        try:
            return self.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", NAME)
        except redis.ResponseError:
            return False

    def _is_replaced(self, old: Server) -> bool:
        """Returns true if all sentinels and servers agree on a new primary."""
        ports = {self._primary_for(sentinel) for sentinel in self.sentinels}
        return (
            ports == {server.port for server in self._of_role(b"master")} != {old.port}
            and self.settled()
        )

    def _primary_for(self, sentinel: Server) -> int:
        """Returns the port of the primary, according to a sentinel."""
        facts = sentinel.client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return int(facts[1])

    def _knows_all(self, sentinel: Server) -> bool:
        counts = [
            len(sentinel.client.execute_command("SENTINEL", whom, NAME))
            for whom in ("REPLICAS", "SENTINELS")
        ]
        return counts == [len(self.servers) - 1, len(self.sentinels) - 1]


@contextmanager
def running_replicated(sentinels: int = SENTINELS) -> Iterator[Replicated]:
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        options = ["--repl-diskless-sync-delay", "0"]
        servers = [threads.submit(start, stack, OXBLOOM, *options) for _ in range(1 + REPLICAS)]
        watching = [threads.submit(_start_sentinel, stack) for _ in range(sentinels)]
        yield Replicated(stack, *([each.result() for each in some] for some in (servers, watching)))


def _start_sentinel(stack: ExitStack) -> Server:
    configuration = Path(stack.enter_context(TemporaryDirectory(prefix="oxbloom-"))) / "sentinel"
    configuration.touch()
    return start(stack, None, "--sentinel", configuration=configuration)
