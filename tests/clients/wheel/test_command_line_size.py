"""Compares what `oxbloom size` prints with filters and with a server."""

import itertools
import json
import os
from typing import Any

import pytest
from command_line import MILLION, fails, run
from oxbloom import BloomFilter
from servers import REDISBLOOM, Server, running


def sizes(*arguments: object) -> dict[str, dict[str, Any]]:
    rows = json.loads(run("size", "--json", *arguments).output)
    return {row["name"]: row | (row["plan"] or {}) for row in rows}


@pytest.mark.parametrize(("capacity", "rate"), [(1, 0.5), (100, 0.01), (12_345, 0.001)])
def test_sizes_are_those_of_filters(capacity: int, rate: float) -> None:
    """The library's tests compare all figures of a plan with filters, for all kinds."""
    rows, first = sizes("-c", capacity, "-e", rate), min(capacity, 100)
    for name, filter in {
        "fixed": BloomFilter(capacity, rate),
        "may grow": BloomFilter(capacity, rate, growing=True),
        f"grown from {first}": BloomFilter(first, rate, growing=True),
        "counting, fixed": BloomFilter(capacity, rate, counting=True),
        "RedisBloom, fixed": BloomFilter(capacity, rate, classic=True),
        "RedisBloom, may grow": BloomFilter(capacity, rate, classic=True, growing=True),
        f"RedisBloom, grown from {first}": BloomFilter(first, rate, classic=True, growing=True),
    }.items():
        numbers = itertools.count()
        while len(filter) < capacity:
            filter.add(f"item {next(numbers)}")
        tolerance = 0.1 if rows[name]["estimated"] else 0
        assert rows[name]["memory"] == pytest.approx(filter.memory, rel=tolerance, abs=0), name


def test_the_commands_create_such_filters(server: Server) -> None:
    with running(REDISBLOOM) as redisbloom:
        for name, row in sizes("-c", 5000, "-e", 0.01, "--slices", 4).items():
            theirs = name.startswith("RedisBloom")
            client = redisbloom.client if theirs else server.client
            client.flushall()
            assert client.execute_command(row["command"]) == b"OK"
            if name.startswith("cuckoo"):
                assert client.type("key") == b"oxcuckoo-"
                continue
            facts = json.loads(
                run("info", "key", "--json", "-s", redisbloom.url if theirs else server.url).output
            )
            kinds = {"counting": "counting", "window": "windowed", "last items": "windowed"}
            expected = [kind for text, kind in kinds.items() if text in name]
            assert facts["kind"] == (None if theirs else expected[0] if expected else "native"), (
                name
            )
            assert facts["slices"] == (4 if expected == ["windowed"] else None)
            assert (facts["growing"] is not None) == ("grow" in name), name
            assert facts["capacity"] == 5000 or "grown" in name
            if name in ("fixed", "may grow", "RedisBloom, fixed", "RedisBloom, may grow"):
                assert facts["memory"] == row["memory"]


@pytest.mark.parametrize("rate", [0.123_456_789, 1e-5, 7 / 3 / 10**6, 0.999])
def test_the_commands_have_the_exact_rate(server: Server, rate: float) -> None:
    for capacity in (1234, 98_765):
        row = sizes("-c", capacity, "-e", rate)["fixed"]
        server.client.flushall()
        assert server.client.execute_command(row["command"]) == b"OK"
        assert server.client.execute_command("BF.INFO", "key", "SIZE") == [row["memory"]]
        assert float(server.client.execute_command("BF.INFO", "key", "ERROR")[0]) == rate


def test_sizes_of_any_capacity_are_shown() -> None:
    text = run("size", "-c", "1e12", "-e", "1e-9").output.decode()
    assert "1,000,000,000,000 items at an error rate of 1e-09" in text
    assert "TB" in text
    huge = run("size", "-c", "9e18").output.decode()
    assert "too large" in huge
    assert "100 of" not in run("size", "-c", 1).output.decode()
    assert fails("size", "-c", 10, "--slices", 1) == "--slices must be from 2 to 64"


@pytest.mark.parametrize("what", ["rate", "memory"])
@pytest.mark.parametrize("capacity", [1, 50, 100, MILLION])
def test_a_chart_is_drawn(what: str, capacity: int) -> None:
    environment = os.environ | {"COLUMNS": "80"}
    text = run("size", "-c", capacity, "-e", "1%", "--chart", what, env=environment).output.decode()
    chart = text.split("\n\n", 2)[2]
    assert "(items)" in chart
    assert f"grown from {min(100, capacity)}" in chart
    assert max(map(len, chart.splitlines())) <= 80
    assert "\x1b" not in chart  # no colors, since the output is not a terminal
    assert chart.count("x") > 1
