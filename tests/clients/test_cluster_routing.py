"""Clients send every command to the server of a cluster that serves its keys. All other servers redirect it."""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import redis
from cluster import Cluster, migrate, running_cluster
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterError,
    MovedError,
    RedisClusterException,
    TryAgainError,
)
from servers import HOST, Server, server_version, wait_until

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


def test_keys_of_two_slots_are_rejected_by_every_server(cluster: Cluster):
    client = cluster.client()
    first, second, *_ = cluster.primaries()
    here, beside = islice(cluster.tags_of(first), 2)
    for one, other in [(here, beside), (here, next(cluster.tags_of(second)))]:
        keys, elsewhere = Keys(client, one), Keys(client, other)
        keys.words["{filter}"] = elsewhere["filter"]
        for line in TWO_FILTERS + FROM_ANOTHER:
            for server in cluster.primaries():
                with pytest.raises(ClusterCrossSlotError):
                    server.client.execute_command(*keys.line(line))
            with pytest.raises(RedisClusterException, match="same key slot"):
                client.execute_command(*keys.line(line))
        assert not client.exists(keys["absent"])
        assert client.execute_command("BF.CARD", keys["alike"]) == 0
        cluster.clear()


def redirection(
    server: Server | redis.Redis, words: list[str | bytes], kind: type[AskError]
) -> int:
    """Returns the port to which a server redirects a command."""
    client = server.client if isinstance(server, Server) else server
    with pytest.raises(kind) as caught:
        client.execute_command(*words)
    assert type(caught.value) is kind
    assert caught.value.slot_id == key_slot(str(words[1]).encode())
    return int(caught.value.port)


def test_every_other_server_says_where_the_keys_are(cluster: Cluster):
    owner, *others = cluster.primaries()
    keys = Keys(cluster.client(), next(cluster.tags_of(owner)))
    for server in [*others, *cluster.replicas_of(owner), *cluster.replicas_of(others[0])]:
        for line in READS + WRITES + LENIENT:
            assert redirection(server, keys.line(line), MovedError) == owner.port, line


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
            assert redirection(reader, keys.line(line), MovedError) == primary.port, line
        reader.readwrite()
        for line in READS + LENIENT:
            assert redirection(reader, keys.line(line), MovedError) == primary.port, line


class Moving:
    """A slot that moves from one primary to another."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.source, self.target, _ = cluster.primaries()
        self.tag = next(cluster.tags_of(self.source))
        self.keys = Keys(cluster.client(), self.tag)
        cluster.open_slot(self.tag, self.target)

    def move(self, *names: str) -> None:
        migrate(self.source, self.target, [self.keys[name] for name in names])

    def finish(self) -> None:
        if self.cluster.primary_of(self.tag) is self.source:
            self.cluster.move_keys(self.tag, self.target)
            self.cluster.close_slot(self.tag, self.target)

    def ask_target(self, line: str) -> Any:
        with self.target.client.pipeline(transaction=False) as connection:
            connection.execute_command("ASKING").execute_command(*self.keys.line(line))
            return connection.execute(raise_on_error=False)[1]


@pytest.fixture
def moving(cluster: Cluster) -> Iterator[Moving]:
    moving = Moving(cluster)
    yield moving
    moving.finish()
    cluster.move_slot(moving.tag, moving.source)


def test_a_key_that_has_not_moved_is_served_by_the_source(moving: Moving):
    keys, source, target = moving.keys, moving.source, moving.target
    for line in READS + CHANGES + TWO_FILTERS:
        source.client.execute_command(*keys.line(line))
        assert redirection(target, keys.line(line), MovedError) == source.port, line
    for line in CREATIONS + LENIENT:
        assert redirection(source, keys.line(line), AskError) == target.port, line


def test_a_key_that_has_moved_is_served_by_the_target_to_redirected_clients(moving: Moving):
    keys, source, target = moving.keys, moving.source, moving.target
    moving.move("filter", "alike")
    for line in READS + CHANGES + TWO_FILTERS + CREATIONS + LENIENT:
        assert redirection(source, keys.line(line), AskError) == target.port, line
        assert redirection(target, keys.line(line), MovedError) == source.port, line
        reply = moving.ask_target(line)
        assert not isinstance(reply, Exception), line
        moving.ask_target("UNLINK {absent}")


def test_commands_with_keys_on_both_sides_of_a_move_have_to_wait_for_its_end(moving: Moving):
    keys, source = moving.keys, moving.source
    client = moving.cluster.client()
    moving.move("filter")
    # Servers before 7.0 redirect the client where later ones tell it to wait.
    waiting = AskError if server_version() < (7, 0) else TryAgainError
    for line in TWO_FILTERS:
        with pytest.raises(waiting):
            source.client.execute_command(*keys.line(line))
    for line in TWO_FILTERS + FROM_ANOTHER:
        assert isinstance(moving.ask_target(line), TryAgainError), line
        with pytest.raises(ClusterError, match="TTL exhausted"):
            client.execute_command(*keys.line(line))
    moving.finish()
    for line in TWO_FILTERS + FROM_ANOTHER:
        client.execute_command(*keys.line(line))
        keys.drop_absent()


def test_a_cluster_client_finds_keys_on_either_side_of_a_move(moving: Moving):
    keys, client = moving.keys, moving.cluster.client()
    moving.move("filter")
    for line in READS + CHANGES + CREATIONS + LENIENT:
        for each in {line, line.replace("{filter}", "{alike}")}:
            client.execute_command(*keys.line(each))
        keys.drop_absent()
    assert client.execute_command("BF.MEXISTS", keys["filter"], "item", "other") == [1, 1]
    assert client.execute_command("BF.MEXISTS", keys["alike"], "item", "other") == [1, 1]
