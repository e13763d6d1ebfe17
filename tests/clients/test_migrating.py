"""Follows docs/migrating-from-redisbloom.md: its commands run as they are written.

Only the settings that readers choose are different, such as ports and folders.
"""

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pages
import pytest
import redis
from pasting import Shell
from servers import HOST, OXBLOOM, REDISBLOOM, Server, free_port, running, wait_until

PAGE = pages.page("migrating-from-redisbloom.md")
LAYERED = 3000  # items in a filter that was created for 100
QUESTIONS = ["BF.INFO", "BF.DEBUG", "BF.CARD", "MEMORY USAGE", "DUMP"]


# The ports and folders of the three new servers, one for each method.
NEW_SERVERS = {
    "NEW_PORT=6380": "NEW_DIR=/var/lib/redis-new",
    "NEW_PORT=6381": "NEW_DIR=/var/lib/redis-from-file",
    "NEW_PORT=6382": "NEW_DIR=/var/lib/redis-copied",
}


class Move:
    """A reader of the page, with a shell."""

    def __init__(self, old: Server, folder: Path) -> None:
        self.old = old
        settings = {
            "OLD_PORT=6379": f"OLD_PORT={old.port}",
            "OXBLOOM=$PWD/target/release/liboxbloom.so": f"OXBLOOM={Path(OXBLOOM).resolve()}",
            # The packages are already installed in the Python of these tests.
            "PYTHON=~/oxbloom-python": f"PYTHON={sys.prefix}",
            "WHEELS=$PWD/target/wheels": f"WHEELS={Path(OXBLOOM).resolve().parents[1] / 'wheels'}",
        }
        self.ports = [free_port() for _ in NEW_SERVERS]
        for port, (port_on_page, folder_on_page) in zip(
            self.ports, NEW_SERVERS.items(), strict=True
        ):
            settings[port_on_page] = f"NEW_PORT={port}"
            settings[folder_on_page] = f"NEW_DIR={folder / str(port)}"
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.shell = Shell(folder, PAGE, settings, directory=folder, serves=self.ports, **quiet)
        self.blocks = self.shell.blocks
        self.servers = [redis.Redis(HOST, port, protocol=2) for port in self.ports]
        self.new = self.servers[0]

    def run(self, *commands: str) -> str:
        """Pastes commands into the shell. Returns what they print."""
        return "\n".join(self.shell.paste(*commands))


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    with running(REDISBLOOM, "--repl-diskless-sync-delay", "0") as old:
        move = Move(old, tmp_path)
        with move.shell:
            yield move
        for client in move.servers:
            client.close()


class Model:
    """Filters, and for each of them the number of items whose addition was acknowledged."""

    def __init__(self, client: redis.Redis) -> None:
        client.execute_command("BF.RESERVE", "reserved", "0.001", 5000, "EXPANSION", 4)
        client.execute_command("BF.RESERVE", "fixed", "0.01", 9000, "NONSCALING")
        client.execute_command("BF.RESERVE", "large", "0.01", 20_000_000)
        self.items: dict[str, int] = dict.fromkeys(["reserved", "fixed", "large", "added"], 0)
        for key in self.items:
            self.add(client, key, LAYERED)

    def add(self, client: redis.Redis, key: str, more: int) -> None:
        first = self.items.get(key, 0)
        client.execute_command(
            "BF.MADD", key, *(b"item %d" % n for n in range(first, first + more))
        )
        self.items[key] = first + more

    def check(self, client: redis.Redis) -> None:
        for key, count in self.items.items():
            words = [b"item %d" % n for n in range(count)]
            assert all(client.execute_command("BF.MEXISTS", key, *words)), key


CUCKOO_KEYS = ["cuckoo", "cuckoo added", "cuckoo fixed"]
CUCKOO_QUESTIONS = ["CF.INFO", "CF.DEBUG", "DUMP"]


def add_to_cuckoo_filters(client: redis.Redis, first: int) -> None:
    """Adds 3000 items to each cuckoo filter, and removes a third of them. Creates the filters if there are none."""
    if not client.exists("cuckoo"):
        client.execute_command("CF.RESERVE", "cuckoo", 64, "BUCKETSIZE", 4, "EXPANSION", 2)
        client.execute_command("CF.RESERVE", "cuckoo fixed", 500, "EXPANSION", 0)
    items = [b"item %d" % n for n in range(first, first + 3000)]
    for key in CUCKOO_KEYS:
        for index in range(0, 3000, 100):
            client.execute_command("CF.INSERT", key, "ITEMS", *items[index : index + 100])
        client.execute_command("CF.INSERTNX", key, "ITEMS", *items[:20])
        for item in items[::3]:
            client.execute_command("CF.DEL", key, item)
    client.execute_command("CF.ADD", "cuckoo", items[0])
    client.execute_command("CF.COMPACT", "cuckoo")


def same_cuckoo_filters(one: redis.Redis, other: redis.Redis) -> None:
    for key in CUCKOO_KEYS:
        for question in CUCKOO_QUESTIONS:
            command = [*question.split(), key]
            assert one.execute_command(*command) == other.execute_command(*command), command


def same(one: redis.Redis, other: redis.Redis, model: Model) -> None:
    absent = [b"absent %d" % n for n in range(5000)]
    for key in model.items:
        for question in QUESTIONS:
            command = [*question.split(), key]
            assert one.execute_command(*command) == other.execute_command(*command), command
        answers = [side.execute_command("BF.MEXISTS", key, *absent) for side in (one, other)]
        assert answers[0] == answers[1], key


class Writer(threading.Thread):
    """Adds items to the server that accepts them, until it is told to stop."""

    def __init__(self, model: Model, *servers: redis.Redis) -> None:
        super().__init__()
        self.model, self.servers, self.stopped = model, servers, threading.Event()

    def run(self) -> None:
        # Additions create the filters whose names begin with `live`.
        keys = ["reserved", "large", "added", *(f"live {n}" for n in range(50))]
        rounds = 0
        while not self.stopped.is_set():
            for server in self.servers:
                try:
                    self.model.add(server, keys[rounds % len(keys)], 7)
                    rounds += 1
                    break
                except redis.RedisError:  # the server is a replica, or there is no master
                    pass

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.join()


def caught_up(master: redis.Redis, replica: redis.Redis) -> bool:
    state = replica.info("replication")
    offset = master.info("replication")["master_repl_offset"]
    return state.get("master_link_status") == "up" and state["slave_repl_offset"] == offset


def test_by_replica_and_back(move: Move) -> None:
    old, new = move.old.client, move.new
    model = Model(old)
    add_to_cuckoo_filters(old, 0)
    settings, functions, _ = move.blocks("Before you start")
    start_replica, replicate, take_over, forbid = move.blocks("By replica")
    native_keys, back = move.blocks("Back")
    writing = [redis.Redis(HOST, port, protocol=2) for port in (move.old.port, move.ports[0])]
    with Writer(model, *writing):
        move.run(settings, functions, start_replica, replicate)
        add_to_cuckoo_filters(old, 3000)
        move.run(take_over)
        move.run(forbid)
        wait_until(lambda: old.info("replication")["role"] == "slave")
        # The new server is the master, and the old one follows it.
        count = model.items["large"]
        wait_until(lambda: model.items["large"] > count)
    wait_until(lambda: caught_up(new, old))
    assert len(model.items) > 10
    model.check(new)
    same(new, old, model)
    same_cuckoo_filters(new, old)
    new.execute_command("CF.ADD", "cuckoo of the new server", "item")
    add_to_cuckoo_filters(new, 6000)
    assert move.run(native_keys).strip() == ""
    new.execute_command("BF.ADDPACKED", "packed", "COUNT", "LINES", "a\nb")
    wait_until(lambda: old.execute_command("BF.MEXISTS", "packed", "a", "b") == [1, 1])
    for command in ("BF.MERGE a 1 added", "COPY added a"):
        with pytest.raises(redis.exceptions.NoPermissionError):
            new.execute_command(*command.split())

    with Writer(model, *writing):
        move.run(back)
        count = model.items["large"]
        wait_until(lambda: model.items["large"] > count)
    wait_until(lambda: old.info("replication")["role"] == "master")
    wait_until(lambda: caught_up(old, new))
    model.check(old)
    same(old, new, model)
    same_cuckoo_filters(old, new)
    assert old.execute_command("CF.EXISTS", "cuckoo of the new server", "item")
    for client in writing:
        client.close()


def test_keys_that_cannot_move_are_listed(move: Move) -> None:
    old = move.old.client
    Model(old)
    settings, functions, foreign = move.blocks("Before you start")
    assert move.run(settings, functions, foreign).strip() == ""
    old.execute_command("CMS.INITBYDIM", "sketch", 10, 5)
    old.execute_command("TOPK.RESERVE", "top", 5)
    old.execute_command("TDIGEST.CREATE", "digest")
    assert sorted(move.run(foreign).split()) == ["digest", "sketch", "top"]
    move.run(move.blocks("By replica")[0])
    assert move.new.config_get("bf.redisbloom-version") == {"bf.redisbloom-version": "2"}
    move.new.execute_command("BF.RESERVE", "native one", "0.01", 100, "LAYOUT", "native")
    move.new.execute_command("CF.RESERVE", "native two", 100, "LAYOUT", "native")
    move.new.execute_command("BF.ADD", "classic", "item")
    move.new.execute_command("CF.ADD", "classic cuckoo", "item")
    assert move.run(move.blocks("Back")[0]).split("\n")[:2] == ["native one", "native two"]


def test_a_key_that_cannot_move_ends_the_wait_and_leaves_what_the_page_says(move: Move) -> None:
    """The clock of the shell runs fast here."""
    move.old.client.execute_command("TOPK.RESERVE", "top", 5)
    settings, functions, _ = move.blocks("Before you start")
    start_replica, replicate, *_ = move.blocks("By replica")
    quick = "date() { echo $((SECONDS * 20)); }"
    move.run(settings, functions, start_replica)
    move.run(f"{quick}\n{{\n{replicate}}} || echo gave up")
    (why,) = re.findall("^gave up.*", move.shell.errors.read_text(), re.MULTILINE)
    assert ": Could not connect to" in why
    folder = move.shell.errors.parent / str(move.ports[0])
    log = (folder / "redis.log").read_text()
    section = pages.section(PAGE, "By replica").replace("\n", " ")
    for text in ("Internal error in RDB reading", "no matching module type 'TopK-TYPE'"):
        assert text in log
        assert text in section
    assert (folder / "dump.rdb").exists()


def test_the_page_can_be_pasted_from_top_to_bottom(move: Move) -> None:
    """Runs all methods one after another: a replica that takes over, a server with the snapshot, and one with copies.
    Then goes back. `tests/oracle` tests that RedisBloom loads snapshots and chunks of ours."""
    old = move.old.client
    model = Model(old)
    add_to_cuckoo_filters(old, 0)
    shown = [move.run(block) for block in pages.blocks(move.shell.page)]
    assert [text.count("copied 7 filters") for text in shown].count(1) == 1
    assert old.info("replication")["role"] == "master"
    for client in (old, *move.servers):
        model.check(client)
    for client in move.servers[1:]:
        same(old, client, model)
        same_cuckoo_filters(old, client)
