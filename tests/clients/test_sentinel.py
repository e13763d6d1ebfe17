"""Clients continue when another server becomes the primary, and find every item that is certain to be present."""

from collections.abc import Callable
from typing import Any

import redis
from filters import ONCE, Kind, Writer, check, check_alike, go_on, keys_of, reserve, writing
from replicated import REPLICAS, Replicated, running_replicated
from servers import wait_until

WRITERS = 2
ROUNDS = 5


def filters(servers: Replicated) -> dict[str, Kind]:
    """Creates filters, and waits until all servers have them."""
    keys = reserve(servers.primary().client, "")
    wait_until(servers.wait)
    return keys


def writers(
    keys: dict[str, Kind], client: Callable[[], Any], replicas: int, name: str = ""
) -> list[Writer]:
    return [Writer(f"{name}{n}", client(), keys, replicas) for n in range(WRITERS)]


def check_all(servers: Replicated, writers: list[Writer]) -> None:
    primary, replicas = servers.primary(), servers.replicas()
    check(primary.client, *writers)
    wait_until(servers.wait)
    assert len(replicas) == REPLICAS
    for replica in replicas:
        check_alike(primary.client, replica.client, keys_of(*writers))


def test_nothing_that_all_replicas_had_is_lost_when_sentinels_choose_a_new_primary():
    """Sentinels choose a replica by its last report, so any replica may become the primary."""
    with running_replicated() as servers:
        keys = filters(servers)

        def client() -> redis.Redis:
            return servers.client(retry=ONCE)

        first = writers(keys, client, replicas=REPLICAS)
        with writing(*first):
            go_on(*first, rounds=ROUNDS)
            servers.fail_over()
            go_on(*first, rounds=ROUNDS)
            killed = servers.kill_primary()
            go_on(*first, rounds=1)
        check(servers.primary().client, *first)
        then = writers(keys, client, replicas=REPLICAS, name="then ")
        with writing(*then):
            killed.start()
            wait_until(lambda: len(servers.replicas()) == REPLICAS and servers.settled())
            go_on(*then, rounds=ROUNDS)
        check_all(servers, first + then)


class FollowingClient:
    """A client that sends to one server. When that server becomes a replica, it changes to the next one."""

    def __init__(self, servers: Replicated) -> None:
        self.clients = servers.clients(retry=ONCE)

    def execute_command(self, *command: Any) -> Any:
        try:
            return self.clients[0].execute_command(*command)
        except redis.ReadOnlyError:
            self.clients.append(self.clients.pop(0))
            raise


def test_nothing_that_was_acknowledged_is_lost_when_a_primary_hands_over():
    with running_replicated(sentinels=0) as servers:
        at_work = writers(filters(servers), lambda: FollowingClient(servers), replicas=0)
        with writing(*at_work):
            for _ in range(3):
                go_on(*at_work, rounds=ROUNDS)
                servers.hand_over()
            go_on(*at_work, rounds=ROUNDS)
        check_all(servers, at_work)
