"""Servers without the module, with an older one, or with a library that cannot be loaded say what docs/operating.md
lists, for each row of its table."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pages
import pytest
import redis
from oxbloom._cli.rdb import type_id
from servers import (
    HOST,
    OXBLOOM,
    SERVER,
    WITHIN,
    Server,
    free_port,
    server_version,
    start,
    wait_until,
)

pytestmark = pytest.mark.skipif(
    server_version() < (7, 0), reason="quotes commands differently, and always allows MODULE LOAD"
)

ROWS = re.findall(
    r"^\| (`.*?) \|", pages.section(pages.page("operating.md"), "Without the module"), re.MULTILINE
)
MODULE = ("--loadmodule", str(Path(OXBLOOM).resolve()))


def exits(*options: object) -> str:
    """Returns the log of a server that does not start."""
    command = [SERVER, "--port", str(free_port()), "--save", "", *map(str, options)]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, text=True, timeout=WITHIN, errors="replace"
    )
    return done.stdout


def error_of(client: redis.Redis, *command: object) -> str:
    """Returns the error of a command, as redis-cli prints it."""
    with pytest.raises(redis.ResponseError) as error:
        client.execute_command(*command)
    return f"ERR {error.value}"


def of_a_later_version(file: bytes) -> bytes:
    """Returns an RDB file in which the version of the filter's type, the end of its ID, is another one."""
    last = file.index(type_id("oxbloom--").to_bytes(8, "big")[:6]) + 7
    return file[:last] + bytes([file[last] ^ 0x7F]) + file[last + 1 :]


def files_without_the_module(folder: Path, stack: ExitStack) -> Iterator[str]:
    """Yields the logs of servers that start with the files of a server that had the module."""
    for options in ([], ["prefix", "OX"]):
        server = Server(folder, None, "--rdbchecksum", "no", *MODULE, *options)
        stack.callback(server.client.close)
        stack.callback(server.kill)
        server.client.execute_command("OXBF.ADD" if options else "BF.ADD", "key", "item")
        server.client.save()
        server.kill()
        yield exits("--dir", folder)
    snapshot = folder / "dump.rdb"
    snapshot.write_bytes(of_a_later_version(snapshot.read_bytes()))
    yield exits("--dir", folder, *MODULE)
    snapshot.unlink()


def append_only_file_without_the_module(folder: Path, stack: ExitStack) -> Iterator[str]:
    as_commands = ["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]
    server = Server(folder, None, *as_commands, *MODULE)
    stack.callback(server.client.close)
    stack.callback(server.kill)
    server.client.execute_command("BF.ADD", "key", "item")
    server.client.bgrewriteaof()
    wait_until(lambda: server.client.info("persistence")["aof_rewrite_in_progress"] == 0)
    server.kill()
    yield exits("--dir", folder, *as_commands)


def peers_without_the_module(stack: ExitStack) -> Iterator[str]:
    """Yields what a replica and the target of a migration say."""
    master = start(stack, OXBLOOM, "--repl-diskless-sync-delay", "0")
    peer = start(stack, None)
    peer.client.replicaof(HOST, master.port)
    wait_until(lambda: peer.client.info("replication")["master_link_status"] == "up")
    master.client.execute_command("BF.ADD", "key", "item")
    wait_until(lambda: "'BF.ADD'" in peer.log.read_text())
    assert peer.client.info("replication")["master_link_status"] == "up"
    assert not peer.client.exists("key")
    yield peer.log.read_text()
    peer.client.replicaof("NO", "ONE")
    yield error_of(peer.client, "BF.ADD", "key", "item")
    yield error_of(peer.client, "RESTORE", "key", 0, master.client.dump("key"))
    yield error_of(master.client, "MIGRATE", HOST, peer.port, "key", 0, 10000)
    assert master.client.exists("key")
    yield error_of(master.client, "MODULE", "LOAD", "/nowhere.so")


def libraries_that_cannot_be_loaded(folder: Path, stack: ExitStack) -> Iterator[str]:
    server = start(stack, OXBLOOM, "--enable-module-command", "yes")
    yield error_of(server.client, "MODULE", "UNLOAD", "bf")
    yield error_of(server.client, "MODULE", "LOAD", "/nowhere.so")
    library = folder / "liboxbloom.so"
    library.write_bytes(b"")
    library.chmod(0o644)
    yield exits("--dir", folder, "--loadmodule", library)
    yield exits("--dir", folder, "--loadmodule", "/nowhere.so")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that the servers say."""
    with ExitStack() as stack:
        return "\n".join(
            [
                *files_without_the_module(tmp_path_factory.mktemp("rdb"), stack),
                *append_only_file_without_the_module(tmp_path_factory.mktemp("aof"), stack),
                *peers_without_the_module(stack),
                *libraries_that_cannot_be_loaded(tmp_path_factory.mktemp("library"), stack),
            ]
        )


@pytest.mark.parametrize("row", ROWS)
def test_a_server_says_one_of_the_texts_of_each_row(said: str, row: str) -> None:
    texts = re.findall("`([^`]*)`", row)
    patterns = (".*".join(map(re.escape, text.split("…"))) for text in texts)
    assert any(re.search(pattern, said) for pattern in patterns)


def test_no_row_is_left_out() -> None:
    assert len(ROWS) > 10
