"""A replica that takes over in a cluster has every item that is certain to last.

A cluster replicates asynchronously. If the primary hands over, all acknowledged writes are certain. If it dies, or
another server takes over by force, only writes that WAIT confirmed for the replica are certain.
"""

from collections.abc import Iterator

import pytest
from cluster import Cluster, running_cluster
from filters import ONCE, Kind, Writer, check, check_alike, go_on, keys_of, reserve, writing
from servers import wait_until

WRITERS = 2
ROUNDS = 5


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tags(cluster: Cluster) -> Iterator[str]:
    """Returns tags of keys that no test has used, each on a server that took no part in a failover.

    If a server is elected twice within seconds, it mistakes old votes for new ones, and steps down again.
    """
    return iter([next(cluster.tags_of(primary)) for primary in cluster.primaries()])


@pytest.fixture
def keys(cluster: Cluster, tags: Iterator[str]) -> dict[str, Kind]:
    """Creates filters, and waits until the replica has them."""
    keys = reserve(cluster.client(), next(tags))
    wait_until(cluster.wait_all)
    return keys


def writers(cluster: Cluster, keys: dict[str, Kind], replicas: int, name: str = "") -> list[Writer]:
    clients = [cluster.client(retry=ONCE) for _ in range(WRITERS)]
    return [Writer(f"{name}{n}", client, keys, replicas) for n, client in enumerate(clients)]


def check_all(cluster: Cluster, writers: list[Writer]) -> None:
    check(cluster.client(), *writers)
    wait_until(cluster.wait_all)
    keys = keys_of(*writers)
    primary = cluster.primary_of(next(iter(keys)))
    (replica,) = cluster.replicas_of(primary)
    replica.client.readonly()
    check_alike(primary.client, replica.client, keys)


def test_nothing_that_a_replica_had_is_lost_when_its_primary_is_killed(
    cluster: Cluster, keys: dict[str, Kind]
):
    first = writers(cluster, keys, replicas=1)
    with writing(*first):
        go_on(*first, rounds=ROUNDS)
        killed = cluster.kill_primary_of(next(iter(keys)))
        go_on(*first, rounds=1)
    check(cluster.client(), *first)
    then = writers(cluster, keys, replicas=1, name="then ")
    with writing(*then):
        cluster.start_again(killed)
        go_on(*then, rounds=ROUNDS)
    assert killed not in cluster.primaries()
    check_all(cluster, first + then)


def test_nothing_that_was_acknowledged_is_lost_when_a_primary_hands_over(
    cluster: Cluster, keys: dict[str, Kind]
):
    at_work = writers(cluster, keys, replicas=0)
    with writing(*at_work):
        go_on(*at_work, rounds=ROUNDS)
        old = cluster.fail_over(next(iter(keys)))
        go_on(*at_work, rounds=ROUNDS)
    assert old not in cluster.primaries()
    check_all(cluster, at_work)


def test_nothing_that_a_replica_had_is_lost_when_it_takes_over_by_force(
    cluster: Cluster, keys: dict[str, Kind]
):
    everyone: list[Writer] = []
    for how in ("FORCE", "TAKEOVER"):
        at_work = writers(cluster, keys, replicas=1, name=how)
        everyone += at_work
        with writing(*at_work):
            go_on(*at_work, rounds=ROUNDS)
            old = cluster.fail_over(next(iter(keys)), how)
            go_on(*at_work, rounds=ROUNDS)
        assert old not in cluster.primaries()
        check_all(cluster, everyone)
