"""docs/migrating-from-redisbloom.md, followed to the letter: its commands are run as they stand there.

Only the values that the reader is asked to set are others: free ports, the module that was built, a temporary folder.
"""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from servers import HOST, OXBLOOM, REDISBLOOM, ROOT, Server, free_port, running, wait_until

PAGE = (ROOT / "docs/migrating-from-redisbloom.md").read_text()
LAYERED = 3000  # items in a filter that was made for 100
QUESTIONS = ["BF.INFO", "BF.DEBUG", "BF.CARD", "MEMORY USAGE", "DUMP"]


def blocks(heading: str) -> list[str]:
    """The commands below a heading of the page, block by block."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    assert section, heading
    return re.findall(r"^ *```sh\n(.*?)^ *```", section[1], re.S | re.M)


SETTINGS, FUNCTIONS, FOREIGN = blocks("Before you start")
START_REPLICA, REPLICATE, TAKE_OVER = blocks("By replica")
(BY_FILE,) = blocks("By file")
_INSTALL, COPY, COPY_AGAIN = blocks("Piece by piece")
NATIVE_KEYS, RETURN = blocks("Back")


class Move:
    """A reader at work."""

    def __init__(self, old: Server, folder: Path) -> None:
        self.old, self.new_dir, self.new_port = old, folder / "new", free_port()
        self.new = redis.Redis(HOST, self.new_port, protocol=2)
        values = {
            "OLD_HOST": HOST,
            "OLD_PORT": str(old.port),
            "NEW_HOST": HOST,
            "NEW_PORT": str(self.new_port),
            "OXBLOOM": str(Path(OXBLOOM).resolve()),
            "NEW_DIR": str(self.new_dir),
        }
        settings = SETTINGS
        for name, value in values.items():
            settings, count = re.subn(rf"\b{name}=\S+", f"{name}={value}", settings)
            assert count == 1, name
        # The page's python3 is the one with the packages that it installs.
        self.before = f'python3() {{ "{sys.executable}" "$@"; }}\n{settings}\n{FUNCTIONS}'

    def run(self, commands: str, directory: Path = ROOT) -> str:
        script = f"set -eo pipefail\n{self.before}\n{commands}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=directory, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    with running(REDISBLOOM, "--repl-diskless-sync-delay", "0") as old:
        move = Move(old, tmp_path)
        yield move
        try:
            move.new.shutdown(nosave=True)
        except redis.ConnectionError:
            pass
        move.new.close()


class Model:
    """Filters, and every item whose addition was acknowledged."""

    def __init__(self, client: redis.Redis) -> None:
        client.execute_command("BF.RESERVE", "reserved", "0.001", 5000, "EXPANSION", 4)
        client.execute_command("BF.RESERVE", "fixed", "0.01", 9000, "NONSCALING")
        client.execute_command("BF.RESERVE", "large", "0.01", 20_000_000)
        self.items: dict[str, int] = dict.fromkeys(["reserved", "fixed", "large", "added"], 0)
        for key in self.items:
            self.add(client, key, LAYERED)

    def add(self, client: redis.Redis, key: str, more: int) -> None:
        first = self.items.get(key, 0)
        client.execute_command("BF.MADD", key, *(b"item %d" % n for n in range(first, first + more)))
        self.items[key] = first + more

    def check(self, client: redis.Redis) -> None:
        for key, count in self.items.items():
            words = [b"item %d" % n for n in range(count)]
            assert all(client.execute_command("BF.MEXISTS", key, *words)), key


def same(one: redis.Redis, other: redis.Redis, model: Model) -> None:
    absent = [b"absent %d" % n for n in range(5000)]
    for key in model.items:
        for question in QUESTIONS:
            command = [*question.split(), key]
            assert one.execute_command(*command) == other.execute_command(*command), command
        answers = [side.execute_command("BF.MEXISTS", key, *absent) for side in (one, other)]
        assert answers[0] == answers[1], key


class Writer(threading.Thread):
    """Adds items to whichever server takes them, until it is told to stop."""

    def __init__(self, model: Model, *servers: redis.Redis) -> None:
        super().__init__()
        self.model, self.servers, self.stopped = model, servers, threading.Event()

    def run(self) -> None:
        # Also to filters that additions create.
        keys = ["reserved", "large", "added", *(f"live {n}" for n in range(50))]
        rounds = 0
        while not self.stopped.is_set():
            for server in self.servers:
                try:
                    self.model.add(server, keys[rounds % len(keys)], 7)
                    rounds += 1
                    break
                except redis.RedisError:  # a replica, or between two masters
                    pass

    def __enter__(self) -> "Writer":
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
    writing = [redis.Redis(HOST, port, protocol=2) for port in (move.old.port, move.new_port)]
    with Writer(model, *writing):
        move.run(START_REPLICA)
        move.run(REPLICATE)
        move.run(TAKE_OVER)
        wait_until(lambda: old.info("replication")["role"] == "slave")
        # The new one serves, the old one follows.
        count = model.items["large"]
        wait_until(lambda: model.items["large"] > count)
    wait_until(lambda: caught_up(new, old))
    assert len(model.items) > 10
    model.check(new)
    same(new, old, model)
    assert move.run(NATIVE_KEYS).strip() == ""

    with Writer(model, *writing):
        move.run(RETURN)
        count = model.items["large"]
        wait_until(lambda: model.items["large"] > count)
    wait_until(lambda: old.info("replication")["role"] == "master")
    wait_until(lambda: caught_up(old, new))
    model.check(old)
    same(old, new, model)
    for client in writing:
        client.close()


def test_what_redisbloom_sends_is_classic_whatever_the_layout_of_new_filters_is(move: Move) -> None:
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
def test_the_stream_is_read_as_the_redisbloom_sends_it_that_was_named(
    move: Move, version: str, rate: bytes
) -> None:
    move.run(f"REDISBLOOM={version}\n{START_REPLICA}")
    move.run(REPLICATE)
    move.old.client.execute_command("BF.RESERVE", "high", "0.5", 100)
    wait_until(lambda: caught_up(move.old.client, move.new))
    assert move.new.execute_command("BF.INFO", "high", "ERROR") == [rate]


def test_the_setting_for_redis_8_is_the_one_that_the_page_names(move: Move) -> None:
    move.run(START_REPLICA)
    (section,) = re.findall(r"^## From Redis 8\n(.*?)^## ", PAGE, re.S | re.M)
    (name,) = set(re.findall(r"`(bf\.redisbloom-version)`", section))
    assert move.new.config_get(name) == {name: "2"}
    for value in ("auto", "8"):
        move.new.config_set(name, value)


def test_by_file_and_back(move: Move, tmp_path: Path) -> None:
    model = Model(move.old.client)
    move.run(BY_FILE)
    model.check(move.new)
    same(move.old.client, move.new, model)
    for key in list(model.items):
        model.add(move.new, key, 500)
    move.new.save()
    back = tmp_path / "back"
    back.mkdir()
    shutil.copy(move.new_dir / "dump.rdb", back)
    with running(REDISBLOOM, "--dir", str(back)) as server:
        model.check(server.client)
        same(server.client, move.new, model)


def test_piece_by_piece_and_back(move: Move, tmp_path: Path) -> None:
    model = Model(move.old.client)
    move.old.client.set("text", "value")
    move.run(START_REPLICA)
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    assert "copied 4 filters" in move.run(COPY, tmp_path)
    model.check(move.new)
    same(move.old.client, move.new, model)
    assert move.new.dbsize() == 4

    # What has changed since is copied by the last run.
    model.add(move.old.client, "reserved", 1000)
    assert "copied 1 filters" in move.run(COPY_AGAIN, tmp_path)
    model.check(move.new)
    same(move.old.client, move.new, model)

    with running(REDISBLOOM) as back:
        other_way = f"OLD_PORT={move.new_port} NEW_PORT={back.port}\n{COPY}"
        assert "copied 4 filters" in move.run(other_way, tmp_path)
        model.check(back.client)
        same(back.client, move.new, model)


def test_what_has_to_stay_is_listed(move: Move) -> None:
    old = move.old.client
    Model(old)
    assert move.run(FOREIGN).strip() == ""
    old.execute_command("CF.ADD", "cuckoo", "item")
    old.execute_command("CMS.INITBYDIM", "sketch", 10, 5)
    old.execute_command("TOPK.RESERVE", "top", 5)
    old.execute_command("TDIGEST.CREATE", "digest")
    assert sorted(move.run(FOREIGN).split()) == ["cuckoo", "digest", "sketch", "top"]
    move.run(START_REPLICA)
    move.new.execute_command("BF.RESERVE", "native one", "0.01", 100, "LAYOUT", "native")
    move.new.execute_command("BF.ADD", "classic", "item")
    assert move.run(NATIVE_KEYS).strip() == "native one"
