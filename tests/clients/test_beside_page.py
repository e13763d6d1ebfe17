"""Follows docs/beside.md: loads the module beside RedisBloom, imports two filters, compares them and goes live."""

import re
from pathlib import Path

import pages
import pytest
import redis
from pasting import Shell, waits_are_bounded, with_settings
from servers import HOST, OXBLOOM, REDISBLOOM, free_port, running, server_version

PAGE = pages.page("beside.md")


def test_the_page_can_be_pasted_from_top_to_bottom(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "PORT=6379": f"PORT={port}",
        "DIR=/var/lib/redis-beside": f"DIR={tmp_path / 'beside'}",
        "REDISBLOOM=/usr/local/lib/redis/modules/redisbloom.so": f"REDISBLOOM={Path(REDISBLOOM).resolve()}",
        "OXBLOOM=/usr/local/lib/redis/modules/liboxbloom.so": f"OXBLOOM={Path(OXBLOOM).resolve()}",
    }
    setting, start, fill, copy, compare, convert, live = pages.blocks(with_settings(PAGE, settings))
    with Shell(tmp_path, PAGE, directory=tmp_path, serves=[port]) as shell:
        shell.paste(setting, start, fill)
        verdicts = shell.paste(copy)
        assert verdicts.count("Items compared") == 2
        theirs, ours, *_ = shell.paste(compare)
        assert theirs == ours
        assert shell.paste(convert) == ["1"]
        assert shell.paste(live) == ["2"]
        with redis.Redis(HOST, port, decode_responses=True) as client:
            assert sorted(client.keys()) == ["cart:ox", "seen:ox"]
            assert client.type("seen:ox") == "oxclassBF"
            assert client.type("cart:ox") == "oxcuckoo-"
            assert client.execute_command("OXBF.EXISTS", "seen:ox", "url-50000")
            assert client.execute_command("OXCF.COUNT", "cart:ox", "item-5000") >= 1


@pytest.mark.skipif(server_version() < (7, 0), reason="no settings in CONFIG")
def test_the_table_has_the_names_on_the_server():
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| (`[^|]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) >= 6
    with running(REDISBLOOM, "--loadmodule", OXBLOOM, "prefix", "OX") as server:
        client = server.client
        assert {module[b"name"] for module in client.module_list()} == {b"bf", b"oxbf"}
        assert client.config_get("oxbf.error-rate")
        client.execute_command("OXBF.RESERVE", "bloom", 0.01, 100, "LAYOUT", "classic")
        client.execute_command("OXCF.RESERVE", "cuckoo", 100, "LAYOUT", "classic")
        for key in ("bloom", "cuckoo"):
            assert f"`{client.type(key).decode()}`" in PAGE


def test_all_waits_are_bounded():
    assert waits_are_bounded(PAGE)
