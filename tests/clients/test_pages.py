"""Compares figures, names and errors on the pages with a server and with the files of the project.

`test_following_pages.py` runs the code on the pages.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest
from reader import redis_cli
from servers import OXBLOOM, ROOT, Server, running

CHOOSING = "docs/choosing.md"
CLIENTS = "docs/clients.md"
CONFIGURATION = "docs/configuration.md"
CONTRIBUTING = "CONTRIBUTING.md"
CUCKOO = "docs/cuckoo.md"
DIFFERENCES = "docs/differences.md"
SECURITY = "docs/security.md"
VERSIONS = "docs/versions.md"


def text(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str, language: str) -> list[str]:
    return pages.blocks(text(page), language)


# CONTRIBUTING.md


def test_each_target_of_make_on_the_pages_is_there():
    # docs/operating.md names targets of other projects.
    own = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("[!o]*.md"), *(ROOT / "python").glob("*.md")]
    named = {
        target
        for page in own
        for target in re.findall(r"(?:`|\$ (?:sudo )?)make ([a-z0-9-]+)", page.read_text())
    }
    rules = set(re.findall(r"^([a-z0-9-]+):", text("Makefile"), re.MULTILINE))
    assert named - rules == set()
    assert len(named) > 10


def test_the_targets_for_fuzzing_and_the_folders_of_tests_are_there():
    page = text(CONTRIBUTING)
    (listed,) = re.findall(r"^The targets are (.*?)\. ", page, re.DOTALL | re.MULTILINE)
    targets = {file.stem for file in (ROOT / "fuzz/fuzz_targets").glob("*.rs")}
    assert set(re.findall("`([a-z]+)`", listed)) == targets
    folders = set(re.findall(r"`((?:tests|benches|filter|python)/[a-z/_]+)`", page))
    assert len(folders) > 10
    assert {folder for folder in folders if not (ROOT / folder).is_dir()} == set()


# Python and JavaScript


def test_the_python_code_reads_each_field_that_redis_py_does_not(server):
    (code,) = (code for code in blocks(CLIENTS, "python") if "for field in" in code)
    fields = re.findall(r'"([A-Z]+)"', code.split("for field in")[1].split("]")[0])
    client = server.client
    client.execute_command("BF.ADD", "users", "alice")
    everything = client.execute_command("BF.INFO", "users", "ALL")
    further = [[fact] for fact in everything[1::2][5:]]
    assert [client.execute_command("BF.INFO", "users", field) for field in fields] == further


# Error rate and capacity


def size(server: Server, *create: object) -> int:
    server.client.delete("key")
    server.client.execute_command("BF.RESERVE", "key", *create)
    return server.client.execute_command("BF.INFO", "key", "SIZE")[0]


def test_the_table_of_memory_has_the_sizes_that_a_server_reports(server):
    rows = re.findall(
        r"^\| (0\.\d+) \| 1 in .*? \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) (KB|MB) \| (\d+) MB \|$",
        text(CHOOSING),
        re.MULTILINE,
    )
    assert len(rows) == 7
    million, units = 10**6, {"KB": 10**3, "MB": 10**6}
    for rate, fixed, growing, amount, unit, large in rows:
        bits = 8 / million * size(server, rate, million, "NONSCALING")
        assert f"{bits:.1f}" == fixed
        taken = size(server, rate, million)
        assert f"{8 / million * taken:.1f}" == growing
        digits = 1 if "." in amount else 0
        assert f"{taken / units[unit]:.{digits}f}" == amount
        assert f"{size(server, rate, 100 * million) / 10**6:.0f}" == large


# The memory of a growing filter depends on the number of items. These filters get 10^5 items.
@pytest.mark.parametrize(
    ("filter_of_a_line", "options", "capacity"),
    [
        ("has grown, from 100 items to 10^4, or up to 10^7", [], 100),
        ("[deletes](removing.md) (`COUNTING`), NONSCALING", ["COUNTING", "NONSCALING"], 100_000),
        ("deletes, growing", ["COUNTING"], 100),
    ],
)
def test_other_filters_take_the_bits_that_are_stated(server, filter_of_a_line, options, capacity):
    line = re.search(
        rf"^\| {re.escape(filter_of_a_line)} \| ([\d.]+) to ([\d.]+) \|",
        text(CHOOSING),
        re.MULTILINE,
    )
    assert line
    client = server.client
    client.execute_command("BF.RESERVE", "key", "0.01", capacity, *options)
    for first in range(0, 100_000, 1000):
        client.execute_command("BF.MADD", "key", *range(first, first + 1000))
    items = client.execute_command("BF.CARD", "key")
    bits = 8 * client.execute_command("BF.INFO", "key", "SIZE")[0] / items
    assert float(line[1]) - 0.05 <= bits <= float(line[2]) + 0.05


# Cuckoo filters


@pytest.mark.parametrize(
    ("line", "create"),
    [
        ("created by CF.ADD", []),
        ("`CF.RESERVE key 1000000`", [1_000_000]),
        ("`CF.RESERVE key 1000000 BUCKETSIZE 4`", [1_000_000, "BUCKETSIZE", 4]),
        ("`CF.RESERVE key 1000000 EXPANSION 0`", [1_000_000, "EXPANSION", 0]),
        ("`CF.RESERVE key 1000000 ERROR 0.001`", [1_000_000, "ERROR", 0.001]),
    ],
)
def test_native_cuckoo_filters_have_the_figures_that_are_stated(server, line, create):
    row = re.search(
        rf"^\| {re.escape(line)} \| .* \| ([\d.]+) %, ([\d.]+) \|$", text(CUCKOO), re.MULTILINE
    )
    assert row
    client = server.client
    if create:
        client.execute_command("CF.RESERVE", "key", *create, "SEED", 7)
    for first in range(0, 1_000_000, 1000):
        added = client.execute_command("CF.INSERT", "key", "ITEMS", *range(first, first + 1000))
        assert all(added)
    assert 8e-6 * client.memory_usage("key") == pytest.approx(float(row[2]), abs=0.3)
    found = sum(
        sum(client.execute_command("CF.MEXISTS", "key", *range(first, first + 1000)))
        for first in range(1_000_000, 1_200_000, 1000)
    )
    assert found / 200_000 == pytest.approx(float(row[1]) / 100, rel=0.2, abs=0.0002)


# How it works


def shape(server: Server, rate: str, *options: str) -> tuple[str, str, str]:
    """Returns the blocks per item, the probes, and the bits per item of a filter for a million items."""
    size(server, rate, 1_000_000, *options)
    described = server.client.execute_command("BF.DEBUG", "key")[-1].decode()
    facts = dict(fact.split(":") for fact in described.split())
    return facts["blocks"], facts["hashes"], f"{int(facts['bits']) / 1e6:.1f}"


def test_the_table_has_the_shapes_that_a_server_chooses(server):
    row = r"^\| (0\.\d+) \| (\d), (\d+), ([\d.]+) \| (\d), (\d+), ([\d.]+) \|$"
    rows = re.findall(row, text("docs/how-it-works.md"), re.MULTILINE)
    assert len(rows) == 5
    for rate, *stated in rows:
        assert stated == [*shape(server, rate), *shape(server, rate, "NONSCALING")]


# Configuration and versions


def test_each_setting_is_in_the_table_and_explained(server):
    settings = re.findall(r"^\| `(bf\.[a-z-]+)` \| (\S+) \|", text(CONFIGURATION), re.MULTILINE)
    explained = re.findall(
        r"^# (bf\.[a-z-]+) (\S+)$", (ROOT / "redis.conf.example").read_text(), re.MULTILINE
    )
    assert sorted(explained) == sorted(settings)
    assert {name for name, _ in settings} == server.client.config_get("bf.*").keys()


@pytest.fixture
def configured() -> Iterator[Server]:
    """Starts a server with the arguments of `loadmodule` that the page shows."""
    (line,) = blocks(CONFIGURATION, "text")
    name, _, *arguments = line.split()
    assert name == "loadmodule"
    with running(None, "--loadmodule", str(Path(OXBLOOM).resolve()), *arguments) as server:
        yield server


def test_the_arguments_of_loadmodule_are_understood(configured):
    client = configured.client
    client.execute_command("BF.ADD", "key", "item")
    facts = [client.execute_command("BF.INFO", "key", field)[0] for field in ("ERROR", "CAPACITY")]
    assert facts == [b"0.001", 10_000]


def test_the_versions_are_those_of_the_files_and_of_the_server(server):
    stated = dict(re.findall(r"^\| (.*?) \| (.*?) \| .* \|$", text(VERSIONS), re.MULTILINE))
    module, library = (
        dict(re.findall(r'^([a-z-]+) = "(.*)"$', (ROOT / file).read_text(), re.MULTILINE))
        for file in ("Cargo.toml", "filter/Cargo.toml")
    )
    for manifest in ("Cargo.toml", "filter/Cargo.toml", "python/Cargo.toml"):
        assert "\nversion.workspace = true\n" in (ROOT / manifest).read_text()
    header = (ROOT / "filter/src/codec/own/header.rs").read_text()
    classic = (ROOT / "filter/src/codec/classic.rs").read_text()
    version = r"const VERSION: \w+ = (\d+);"
    info = server.client.info("bf")
    (listed,) = server.client.module_list()
    assert stated["the module"] == info["bf_version"] == module["version"]
    assert f"`ver {listed[b'ver']}`" in text(VERSIONS)
    assert stated["the Rust library `oxbloom-filter`"] == module["version"]
    assert stated["the Python package `oxbloom`"] == module["version"]
    assert stated["the oldest Rust"] == module["rust-version"] == library["rust-version"]
    oldest = stated["the oldest Python"]
    assert f'requires-python = ">={oldest}"' in (ROOT / "python/pyproject.toml").read_text()
    assert re.findall(version, header) == [stated["oxbloom's own file format"]]
    assert re.findall(version, classic) == [stated["classic file format"]]


def test_the_checklist_for_operators_names_the_tested_servers():
    table = re.search(r"^\| \| (Redis .*) \|$", text(VERSIONS), re.MULTILINE)
    answer = re.search(r"^1\. .*?^2\. ", text(SECURITY), re.DOTALL | re.MULTILINE)
    assert table
    assert answer
    tested = [server.split()[-1] for server in table[1].split(" | ")]
    assert re.findall(r"\d\.\d", answer[0]) == tested


# Security


def test_digests_are_of_one_length_and_keyed():
    (code,) = blocks(SECURITY, "python")
    names: dict = {}
    exec(code, names)  # noqa: S102
    one, other = (names["digest"](b"item", key * 16) for key in (b"a", b"b"))
    assert len(one) == len(other) == 16
    assert one != other


# Differences from other servers


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("BF.INSERT key CAPACITY 1000", "wrong number of arguments"),
        ("BF.RESERVE other 1 100", "ERR (0 < error rate range < 1) "),
    ],
)
def test_options_of_valkey_bloom_and_redis_8_get_the_errors_that_are_stated(server, command, error):
    server.client.execute_command("BF.RESERVE", "key", "0.01", 100)
    assert f"`{error}`" in text(DIFFERENCES)
    assert error.removeprefix("ERR ") in redis_cli(server, command)
