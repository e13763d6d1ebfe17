"""Follows docs/beside.md: loads the module beside RedisBloom, imports two filters, compares them and goes live. Then
imports all others, and goes back to RedisBloom."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pages
import pytest
import redis
from pasting import Shell
from servers import (
    BESIDE,
    HOST,
    OXBLOOM,
    REDISBLOOM,
    SERVER,
    WITHIN,
    Server,
    free_port,
    skip_without_redisbloom,
    wait_until,
)

PAGE = pages.page("beside.md")
BOTH = ("--loadmodule", *BESIDE)
WITHOUT_PREFIX = ("--loadmodule", OXBLOOM)
ONLY_REDISBLOOM = ("--loadmodule", REDISBLOOM)


def test_the_page_can_be_pasted_from_top_to_bottom(tmp_path: Path) -> None:
    skip_without_redisbloom(REDISBLOOM)
    port = free_port()
    settings = {
        "PORT=6379": f"PORT={port}",
        "DIR=/var/lib/redis-beside": f"DIR={tmp_path / 'beside'}",
        "REDISBLOOM=/usr/local/lib/redis/modules/redisbloom.so": f"REDISBLOOM={Path(REDISBLOOM).resolve()}",
        "OXBLOOM=/usr/local/lib/redis/modules/liboxbloom.so": f"OXBLOOM={Path(OXBLOOM).resolve()}",
    }
    with Shell(tmp_path, PAGE, settings, directory=tmp_path, serves=[port]) as shell:
        setting, start, fill, copy, compare, convert, live, rename, *loops = pages.blocks(
            shell.page
        )
        all_filters, theirs, not_theirs = loops
        shell.paste(setting, start, fill)
        verdicts = shell.paste(copy)
        assert verdicts.count("Items compared") == 2
        (found,) = set(shell.paste(compare)[:2])
        assert f"find the same {found} of them" in PAGE
        assert int(found) > 0
        assert shell.paste(convert) == ["1"]
        assert shell.paste(live) == ["2"]
        with redis.Redis(HOST, port, decode_responses=True) as client:
            assert sorted(client.keys()) == ["cart:ox", "seen:ox"]
            assert client.type("seen:ox") == "oxclassBF"
            assert client.type("cart:ox") == "oxcuckoo-"
            assert client.execute_command("OXBF.EXISTS", "seen:ox", "url-50000")
            assert client.execute_command("OXCF.COUNT", "cart:ox", "item-5000") >= 1
            assert shell.paste(rename) == ["OK"]
            replies_of_redisbloom_to_our_filter_are_as_stated(client, "seen", "url-50000")
            client.execute_command("BF.ADD", "two words", "item")
            client.execute_command("CF.ADD", "cuckoo", "item")
            client.execute_command("TOPK.RESERVE", "top", 5)
            assert shell.paste(all_filters) == []
            assert client.execute_command("OXBF.EXISTS", "two words:ox", "item")
            assert client.execute_command("OXCF.EXISTS", "cuckoo:ox", "item")
        assert shell.paste(theirs) == ["two words", "cuckoo", "top"]
        assert shell.paste(not_theirs) == ["cart:ox"]


def replies_of_redisbloom_to_our_filter_are_as_stated(
    client: redis.Redis, key: str, item: str
) -> None:
    (silent,) = re.findall(r"For a key of ours, (.*?) reply 0", PAGE, re.DOTALL)
    commands = re.findall("`([^`]+)`", silent)
    assert len(commands) == 5
    for command in commands:
        assert client.execute_command(command, key, item) in (0, [0]), command
    for command in ("BF.ADD", "BF.MADD", "CF.ADD", "CF.ADDNX"):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.execute_command(command, key, item)


@contextmanager
def server_in(folder: Path, *options: str) -> Iterator[redis.Redis]:
    """Starts a server with an append-only file in a folder."""
    server = Server(folder, None, "--appendonly", "yes", *options)
    try:
        yield server.client
    finally:
        server.client.close()
        server.kill()


def rewrite(client: redis.Redis, *, as_commands: bool) -> None:
    """Rewrites the append-only file, as the page says."""
    client.config_set("aof-use-rdb-preamble", "no" if as_commands else "yes")
    wait_until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
    client.bgrewriteaof()
    wait_until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)


def log_of_exit(folder: Path, *options: str) -> str:
    """Returns the log of a server that does not start with the append-only file in a folder."""
    skip_without_redisbloom(*options)
    command = [SERVER, "--port", str(free_port()), "--dir", folder, "--appendonly", "yes", *options]
    return subprocess.run(
        command, check=False, stdout=subprocess.PIPE, text=True, timeout=WITHIN
    ).stdout


def test_the_way_back_loses_what_the_page_says_and_nothing_else(tmp_path: Path) -> None:
    lines = [line for block in pages.blocks(PAGE, "text")[1:] for line in block.splitlines()]
    no_such_type, critical = lines
    with server_in(tmp_path, *BOTH) as client:
        client.execute_command("TOPK.RESERVE", "top", 5)
        rewrite(client, as_commands=False)
    assert no_such_type in log_of_exit(tmp_path, *WITHOUT_PREFIX)
    with server_in(tmp_path, *BOTH) as client:
        client.delete("top")
        for command in (
            "OXBF.RESERVE classic 0.01 100 LAYOUT classic",
            "OXCF.RESERVE cuckoo 100 LAYOUT classic",
            "OXCF.RESERVE converted 100 LAYOUT classic",
            "OXBF.RESERVE native 0.01 100",
            "OXBF.RESERVE counting 0.01 100 COUNTING",
            "OXBF.RESERVE window 0.01 100 WINDOW 1000",
            "OXBF.ADD classic item",
            "OXCF.ADD cuckoo item",
            "OXCF.CONVERT converted",
        ):
            client.execute_command(*command.split())
        rewrite(client, as_commands=True)
    assert "nknown command 'OX" in log_of_exit(tmp_path, *WITHOUT_PREFIX)
    with server_in(tmp_path, *BOTH) as client:
        rewrite(client, as_commands=False)
    assert re.search("no matching module (type )?'ox", log_of_exit(tmp_path, *ONLY_REDISBLOOM))
    with server_in(tmp_path, *WITHOUT_PREFIX) as client:
        assert len(client.keys()) == 6
        rewrite(client, as_commands=True)
    with server_in(tmp_path, *ONLY_REDISBLOOM) as client:
        assert sorted(client.keys()) == [b"classic", b"cuckoo"]
        assert client.execute_command("BF.EXISTS", "classic", "item")
        assert client.execute_command("CF.EXISTS", "cuckoo", "item")
        assert critical in (tmp_path / "server.log").read_text()
    with server_in(tmp_path, *WITHOUT_PREFIX) as client:
        client.execute_command("BF.RESERVE", "valkey", "0.01", 100, "LAYOUT", "valkey")
        rewrite(client, as_commands=True)
    assert "'BF.LOAD'" in log_of_exit(tmp_path, *ONLY_REDISBLOOM)
