"""Follows docs/migrating-from-redisbloom.md: its commands run as they are written.

Only the settings that readers choose are different, such as ports and folders.
"""

import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pages
import pasting
import pytest
import redis
from pasting import Shell, with_settings
from servers import HOST, OXBLOOM, REDISBLOOM, Server, free_port, running, wait_until

PAGE = pages.page("migrating-from-redisbloom.md")
LAYERED = 3000  # items in a filter that was created for 100
QUESTIONS = ["BF.INFO", "BF.DEBUG", "BF.CARD", "MEMORY USAGE", "DUMP"]


def blocks(heading: str) -> list[str]:
    """Returns the blocks of commands below a heading of the page."""
    return pages.blocks(pages.section(PAGE, heading))


SETTINGS, FUNCTIONS, FOREIGN = blocks("Before you start")
START_REPLICA, REPLICATE, TAKE_OVER = blocks("By replica")
(BY_FILE,) = blocks("By file")
INSTALL, START_EMPTY, COPY, COPY_AGAIN = blocks("Chunk by chunk")
NATIVE_KEYS, RETURN = blocks("Back")


# The ports and folders of the three new servers, one for each method.
NEW_SERVERS = {
    "NEW_PORT=6380": "NEW_DIR=/var/lib/redis-new",
    "NEW_PORT=6381": "NEW_DIR=/var/lib/redis-from-file",
    "NEW_PORT=6382": "NEW_DIR=/var/lib/redis-copied",
}


class Move:
    """A reader who follows one method in a shell. There is one new server, so the ports of all methods are the same."""

    def __init__(self, old: Server, folder: Path) -> None:
        self.old, self.folder = old, folder
        self.new_dir, self.new_port = folder / "new", free_port()
        self.new = redis.Redis(HOST, self.new_port, protocol=2)
        self.shell: Shell | None = None

    def settings(self, ports: list[int], folders: list[Path]) -> dict[str, str]:
        """Returns the reader's values for the settings of the page."""
        settings = {
            "OLD_PORT=6379": f"OLD_PORT={self.old.port}",
            "OXBLOOM=/usr/local/lib/redis/modules/liboxbloom.so": f"OXBLOOM={Path(OXBLOOM).resolve()}",
            # The packages are already installed in the Python of these tests.
            "PYTHON=~/oxbloom-python": f"PYTHON={sys.prefix}",
            "WHEELS=$PWD/target/wheels": f"WHEELS={Path(OXBLOOM).resolve().parents[1] / 'wheels'}",
        }
        for page, port, folder in zip(NEW_SERVERS.items(), ports, folders, strict=True):
            settings |= {page[0]: f"NEW_PORT={port}", page[1]: f"NEW_DIR={folder}"}
        return settings

    def paste(self, page: str, *blocks: str) -> str:
        """Pastes blocks of a page into the shell. Returns what they print."""
        if not self.shell:
            quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            self.shell = Shell(self.folder, page, directory=self.folder, **quiet)
        return "\n".join(self.shell.paste(*blocks))

    def run(self, *commands: str) -> str:
        settings = self.settings([self.new_port] * 3, [self.new_dir] * 3)
        before = [] if self.shell else [SETTINGS, FUNCTIONS]
        blocks = [with_known(settings, block) for block in (*before, *commands)]
        return self.paste(PAGE, *blocks)


def with_known(settings: dict[str, str], block: str) -> str:
    """Returns a block with the reader's values for the settings that occur in it."""
    return with_settings(block, {name: here for name, here in settings.items() if name in block})


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    with running(REDISBLOOM, "--repl-diskless-sync-delay", "0") as old:
        move = Move(old, tmp_path)
        yield move
        if move.shell:
            move.shell.close(move.new_port)
        move.new.close()


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
    writing = [redis.Redis(HOST, port, protocol=2) for port in (move.old.port, move.new_port)]
    with Writer(model, *writing):
        move.run(START_REPLICA)
        move.run(REPLICATE)
        add_to_cuckoo_filters(old, 3000)
        move.run(TAKE_OVER)
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
    assert move.run(NATIVE_KEYS).strip() == ""

    with Writer(model, *writing):
        move.run(RETURN)
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


def test_filters_from_redisbloom_are_classic_whatever_the_layout_of_new_filters_is(
    move: Move,
) -> None:
    old, new = move.old.client, move.new
    move.run(START_REPLICA.replace("bf-layout classic", "bf-layout native"))
    move.run(REPLICATE)
    model = Model(old)
    old.execute_command("BF.INSERT", "inserted", "CAPACITY", 7, "NX", "ITEMS", "item")
    model.add(old, "inserted", 5)
    wait_until(lambda: caught_up(old, new))
    model.check(new)
    same(old, new, model)
    for key in model.items:
        assert new.execute_command("BF.INFO", key, "LAYOUT") == [b"classic"]
    assert move.run(NATIVE_KEYS).strip() == ""


@pytest.mark.parametrize(("version", "rate"), [("2", b"0.5"), ("8", b"0.25")])
def test_the_replication_stream_is_read_as_that_of_the_version_that_is_set(
    move: Move, version: str, rate: bytes
) -> None:
    move.run(f"REDISBLOOM={version}\n{START_REPLICA}")
    move.run(REPLICATE)
    move.old.client.execute_command("BF.RESERVE", "high", "0.5", 100)
    wait_until(lambda: caught_up(move.old.client, move.new))
    assert move.new.execute_command("BF.INFO", "high", "ERROR") == [rate]


def test_the_setting_for_redis_8_is_the_one_that_the_page_names(move: Move) -> None:
    move.run(START_REPLICA)
    (section,) = re.findall(r"^## From Redis 8\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    (name,) = set(re.findall(r"`(bf\.redisbloom-version)`", section))
    assert move.new.config_get(name) == {name: "2"}
    for value in ("auto", "8"):
        move.new.config_set(name, value)


def test_by_file_and_back(move: Move, tmp_path: Path) -> None:
    model = Model(move.old.client)
    add_to_cuckoo_filters(move.old.client, 0)
    move.run(BY_FILE)
    model.check(move.new)
    same(move.old.client, move.new, model)
    same_cuckoo_filters(move.old.client, move.new)
    for key in list(model.items):
        model.add(move.new, key, 500)
    add_to_cuckoo_filters(move.new, 3000)
    move.new.save()
    back = tmp_path / "back"
    back.mkdir()
    shutil.copy(move.new_dir / "dump.rdb", back)
    with running(REDISBLOOM, "--dir", str(back)) as server:
        model.check(server.client)
        same(server.client, move.new, model)
        same_cuckoo_filters(server.client, move.new)


def copy_chunks(source: redis.Redis, target: redis.Redis, key: str) -> None:
    iterator, data = source.execute_command("CF.SCANDUMP", key, 0)
    while iterator:
        target.execute_command("CF.LOADCHUNK", key, iterator, data)
        iterator, data = source.execute_command("CF.SCANDUMP", key, iterator)


def test_cuckoo_filters_move_chunk_by_chunk_and_by_dump_and_back(move: Move) -> None:
    old, new = move.old.client, move.new
    add_to_cuckoo_filters(old, 0)
    move.run(START_EMPTY)
    for source, target in ((old, new), (new, old)):
        for key in CUCKOO_KEYS:
            target.delete(key)
            copy_chunks(source, target, key)
        same_cuckoo_filters(source, target)
        for key in CUCKOO_KEYS:
            target.restore(key, 0, source.dump(key), replace=True)
        same_cuckoo_filters(source, target)
        add_to_cuckoo_filters(target, 3000)


def test_chunk_by_chunk_and_back(move: Move) -> None:
    model = Model(move.old.client)
    move.old.client.set("text", "value")
    move.run(INSTALL, START_EMPTY)
    assert "copied 4 filters" in move.run(COPY)
    model.check(move.new)
    same(move.old.client, move.new, model)
    assert move.new.dbsize() == 4

    # Another run copies what has changed since then.
    model.add(move.old.client, "reserved", 1000)
    assert "copied 1 filters" in move.run(COPY_AGAIN)
    model.check(move.new)
    same(move.old.client, move.new, model)

    with running(REDISBLOOM) as back:
        other_way = f"OLD_PORT={move.new_port} NEW_PORT={back.port}\n{COPY}"
        assert "copied 4 filters" in move.run(other_way)
        model.check(back.client)
        same(back.client, move.new, model)


def test_keys_that_cannot_move_are_listed(move: Move) -> None:
    old = move.old.client
    Model(old)
    assert move.run(FOREIGN).strip() == ""
    old.execute_command("CMS.INITBYDIM", "sketch", 10, 5)
    old.execute_command("TOPK.RESERVE", "top", 5)
    old.execute_command("TDIGEST.CREATE", "digest")
    assert sorted(move.run(FOREIGN).split()) == ["digest", "sketch", "top"]
    move.run(START_REPLICA)
    move.new.execute_command("BF.RESERVE", "native one", "0.01", 100, "LAYOUT", "native")
    move.new.execute_command("CF.RESERVE", "native two", 100, "LAYOUT", "native")
    move.new.execute_command("BF.ADD", "classic", "item")
    move.new.execute_command("CF.ADD", "classic cuckoo", "item")
    assert move.run(NATIVE_KEYS).split("\n")[:2] == ["native one", "native two"]


def test_the_page_can_be_pasted_from_top_to_bottom(move: Move, tmp_path: Path) -> None:
    """Runs all methods one after another: a replica that takes over, a server with the snapshot, and one with copies.
    Then goes back."""
    ports = [free_port() for _ in NEW_SERVERS]
    folders = [tmp_path / f"new {n}".replace(" ", "-") for n in range(len(ports))]
    page = with_settings(PAGE, move.settings(ports, folders))
    model = Model(move.old.client)
    clients = [redis.Redis(HOST, port, protocol=2) for port in ports]
    try:
        shown = [move.paste(page, block) for block in pages.blocks(page)]
        assert [text.count("copied 4 filters") for text in shown].count(1) == 1
        assert move.old.client.info("replication")["role"] == "master"
        for client in (move.old.client, *clients):
            model.check(client)
        for client in clients[1:]:
            same(move.old.client, client, model)
    finally:
        if move.shell:
            move.shell.close(*ports)
        for client in clients:
            client.close()


def test_all_waits_are_bounded() -> None:
    assert pasting.waits_are_bounded(PAGE)
