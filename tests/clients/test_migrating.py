"""Follows docs/migrating-from-redisbloom.md: its commands run as they are written.

Only the settings that readers choose are different, such as ports and folders.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

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
        self.servers = [redis.Redis(HOST, port, protocol=2) for port in self.ports]
        self.new = self.servers[0]


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


def same(one: redis.Redis, other: redis.Redis, model: Model) -> None:
    absent = [b"absent %d" % n for n in range(5000)]
    for questions, keys in ((QUESTIONS, model.items), (CUCKOO_QUESTIONS, CUCKOO_KEYS)):
        for command in ([*question.split(), key] for key in keys for question in questions):
            assert one.execute_command(*command) == other.execute_command(*command), command
    for key in model.items:
        answers = [side.execute_command("BF.MEXISTS", key, *absent) for side in (one, other)]
        assert answers[0] == answers[1], key


def test_keys_that_cannot_move_are_listed(move: Move) -> None:
    old = move.old.client
    Model(old)
    settings, functions, foreign = move.shell.blocks("Before you start")
    assert move.shell.text(settings, functions, foreign).strip() == ""
    old.execute_command("CMS.INITBYDIM", "sketch", 10, 5)
    old.execute_command("TOPK.RESERVE", "top", 5)
    old.execute_command("TDIGEST.CREATE", "digest")
    assert sorted(move.shell.text(foreign).split()) == ["digest", "sketch", "top"]
    move.shell.text(move.shell.blocks("By replica")[0])
    assert move.new.config_get("bf.redisbloom-version") == {"bf.redisbloom-version": "2"}
    move.new.execute_command("BF.RESERVE", "native one", "0.01", 100, "LAYOUT", "native")
    move.new.execute_command("CF.RESERVE", "native two", 100, "LAYOUT", "native")
    move.new.execute_command("BF.ADD", "classic", "item")
    move.new.execute_command("CF.ADD", "classic cuckoo", "item")
    assert move.shell.text(move.shell.blocks("Back")[0]).split("\n")[:2] == [
        "native one",
        "native two",
    ]


def test_a_key_that_cannot_move_ends_the_wait_and_leaves_what_the_page_says(move: Move) -> None:
    """The clock of the shell runs fast here."""
    move.old.client.execute_command("TOPK.RESERVE", "top", 5)
    settings, functions, _ = move.shell.blocks("Before you start")
    start_replica, replicate, *_ = move.shell.blocks("By replica")
    quick = "date() { echo $((SECONDS * 20)); }"
    move.shell.text(settings, functions, start_replica)
    move.shell.text(f"{quick}\n{{\n{replicate}}} || echo gave up")
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
    Then goes back. `tests/oracle` tests that replicas of either module miss nothing under load, and that RedisBloom
    loads snapshots and chunks of ours."""
    old, new = move.old.client, move.new
    model = Model(old)
    add_to_cuckoo_filters(old, 0)
    shown = []
    for block in pages.blocks(move.shell.page):
        shown.append(move.shell.text(block))
        if "ACL SETUSER" in block:
            # The new server is the master, and the old one follows it.
            model.add(new, "added", 5000)
            add_to_cuckoo_filters(new, 3000)
            new.execute_command("BF.ADDPACKED", "packed", "COUNT", "LINES", "a\nb")
            wait_until(lambda: old.execute_command("BF.MEXISTS", "packed", "a", "b") == [1, 1])
            same(new, old, model)
            for command in ("BF.MERGE a 1 added", "COPY added a"):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    new.execute_command(*command.split())
    assert [text.count("copied 8 filters") for text in shown].count(1) == 1
    assert old.info("replication")["role"] == "master"
    for client in (old, *move.servers):
        model.check(client)
        same(old, client, model)
