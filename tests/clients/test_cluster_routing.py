"""Clients send every command to the server of a cluster that serves its keys, also while its slot moves.

`tests/server/access/cluster.rs` tests that other servers redirect every command, and
`tests/server/commands/described.rs` that servers know its keys.
"""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from cluster import Cluster, migrate, running_cluster
from redis.exceptions import ClusterError, MovedError
from servers import HOST, wait_until

# In these commands, {filter} is a filter with one item, {alike} is an empty filter like it, and {absent} is a missing
# key.
READS = [
    "BF.EXISTS {filter} item",
    "BF.MEXISTS {filter} item other",
    "BF.EXISTSPACKED {filter} LINES item",
    "BF.COUNT {filter} item",
    "BF.MCOUNT {filter} item other",
    "BF.CARD {filter}",
    "BF.INFO {filter} ITEMS",
    "BF.SCANDUMP {filter} 0",
    "BF.DEBUG {filter}",
]
CHANGES = [
    "BF.ADD {filter} item",
    "BF.MADD {filter} item other other",
    "BF.INSERT {filter} ITEMS item",
    "BF.ADDPACKED {filter} LINES item",
    "BF.DEL {filter} item",
    "BF.MDEL {filter} other",
    "BF.DELPACKED {filter} LINES item",
]
TWO_FILTERS = ["BF.MERGE {alike} 1 {filter}"]
FROM_ANOTHER = ["BF.RESERVE {absent} LIKE {filter}", "BF.MERGE {absent} 1 {filter}"]
CREATIONS = [
    "BF.RESERVE {absent} 0.01 100",
    "BF.ADD {absent} item",
    "BF.MADD {absent} item",
    "BF.INSERT {absent} ITEMS item",
    "BF.ADDPACKED {absent} LINES item",
    "BF.LOADCHUNK {absent} 1 {header}",
    "BF.LOAD {absent} {payload}",
]
WRITES = CHANGES + TWO_FILTERS + FROM_ANOTHER + CREATIONS
# Commands that succeed for a missing key.
LENIENT = [
    "BF.EXISTS {absent} item",
    "BF.MEXISTS {absent} item",
    "BF.EXISTSPACKED {absent} LINES item",
    "BF.CARD {absent}",
]

# An empty filter for 10 items at 1 %, in the format of BF.LOAD: its numbers, and those of its only layer.
BLOB = struct.pack("<BQI", 1, 12, 7) + bytes(32 + 12)
PAYLOAD = (
    struct.pack("<BIddBQQ", 1, 2, 0.01, 0.5, 1, 1, len(BLOB)) + BLOB + struct.pack("<qq", 0, 10)
)


class Keys:
    """Keys in one slot. Two of them hold filters."""

    def __init__(self, client: Any, tag: str) -> None:
        names = ("filter", "alike", "absent")
        self.words: dict[str, str | bytes] = {f"{{{name}}}": f"{tag}{name}" for name in names}
        client.execute_command("BF.RESERVE", f"{tag}filter", "0.01", "100", "COUNTING")
        client.execute_command("BF.RESERVE", f"{tag}alike", "LIKE", f"{tag}filter")
        client.execute_command("BF.ADD", f"{tag}filter", "item")
        self.client = client
        self.words["{payload}"] = PAYLOAD
        self.words["{header}"] = client.execute_command("BF.SCANDUMP", f"{tag}filter", 0)[1]

    def __getitem__(self, name: str) -> str:
        return str(self.words[f"{{{name}}}"])

    def line(self, text: str) -> list[str | bytes]:
        return [self.words.get(word, word) for word in text.split()]

    def drop_absent(self) -> None:
        self.client.unlink(self["absent"])


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.clear()
    return running


def outcomes(cluster: Cluster, name: str) -> dict[int, tuple[int, int]]:
    """Returns the numbers of calls and of rejected calls of a command on each primary, by its port."""
    counts = {
        primary.port: primary.client.info("commandstats").get(f"cmdstat_{name}")
        for primary in cluster.primaries()
    }
    return {
        port: (count["calls"], count["rejected_calls"]) if count else (0, 0)
        for port, count in counts.items()
    }


def test_a_cluster_client_sends_every_command_to_the_server_that_has_its_keys(
    cluster: Cluster,
):
    offered = {str(name) for name in cluster.client().command() if str(name).startswith("bf.")}
    lines = READS + WRITES + LENIENT
    assert {line.split()[0].lower() for line in lines} == offered - {"bf.panic"}
    client = cluster.client()
    for primary in cluster.primaries():
        keys = Keys(client, next(cluster.tags_of(primary)))
        for line in lines:
            name = line.split()[0].lower()
            before = outcomes(cluster, name)
            client.execute_command(*keys.line(line))
            after = outcomes(cluster, name)
            calls, rejected = before[primary.port]
            assert after == {**before, primary.port: (calls + 1, rejected)}, line
            keys.drop_absent()


def test_a_replica_answers_as_its_primary_does_after_readonly(cluster: Cluster):
    primary = cluster.primaries()[0]
    keys = Keys(cluster.client(), next(cluster.tags_of(primary)))
    wait_until(cluster.wait_all)
    (replica,) = cluster.replicas_of(primary)
    with redis.Redis(HOST, replica.port, protocol=2, single_connection_client=True) as reader:
        reader.readonly()
        for line in READS + LENIENT:
            words = keys.line(line)
            assert reader.execute_command(*words) == primary.client.execute_command(*words), line
        for line in WRITES:
            with pytest.raises(MovedError):
                reader.execute_command(*keys.line(line))


def test_a_cluster_client_finds_keys_on_either_side_of_a_move(cluster: Cluster):
    source, target, _ = cluster.primaries()
    tag, client = next(cluster.tags_of(source)), cluster.client()
    keys = Keys(client, tag)
    cluster.open_slot(tag, target)
    migrate(source, target, [keys["filter"]])
    for line in READS + CHANGES + CREATIONS + LENIENT:
        for each in {line, line.replace("{filter}", "{alike}")}:
            client.execute_command(*keys.line(each))
        keys.drop_absent()
    for key in ("filter", "alike"):
        assert client.execute_command("BF.MEXISTS", keys[key], "item", "other") == [1, 1]
    # Commands with keys on both sides have to wait for the end of the move.
    for line in TWO_FILTERS + FROM_ANOTHER:
        with pytest.raises(ClusterError, match="TTL exhausted"):
            client.execute_command(*keys.line(line))
    cluster.move_keys(tag, target)
    cluster.close_slot(tag, target)
    for line in TWO_FILTERS + FROM_ANOTHER:
        client.execute_command(*keys.line(line))
        keys.drop_absent()
