"""Checks the pages for users against a server and the files of the project.

Commands that a page types into redis-cli get the reply that it shows. The Python code prints what its comments say,
also when it runs again. Figures, names and errors are compared with a server or a file where that is possible.

Other pages have tests of their own: `test_readme_page.py`, `test_pasted_pages.py`, `../dist/test_installing.py`, `test_operating.py`, `test_migrating.py`,
`test_beside_page.py`, `test_forgetting_page.py`, `test_pybloom_page.py`, `crawling/test_crawling_page.py`;
`node/pages.test.mjs` runs the code for node-redis.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest
from servers import OXBLOOM, ROOT, Server, running

README = "README.md"
CHOOSING = "docs/choosing.md"
CLIENTS = "docs/clients.md"
CONFIGURATION = "docs/configuration.md"
CONTRIBUTING = "CONTRIBUTING.md"
CUCKOO = "docs/cuckoo.md"
DIFFERENCES = "docs/differences.md"
MERGING = "docs/merging.md"
REMOVING = "docs/removing.md"
VERSIONS = "docs/versions.md"

# The languages of the code blocks of each page. Blocks in sh do not run here: see PASTED.
BLOCKS = {
    README: ["console", "console", "console", "python", "js", "console", "console"],
    CHOOSING: ["console"],
    CLIENTS: ["python", "js", "js", "js", "python", "js"],
    CONFIGURATION: ["text", "console"],
    CONTRIBUTING: ["console", "sh", "console", "sh", "sh", "console", "console"],
    CUCKOO: ["console", "console", "console"],
    DIFFERENCES: [],
    MERGING: ["console"],
    REMOVING: ["console", "console"],
    VERSIONS: [],
    "docs/benchmarks.md": [],
    "docs/measurements.md": [],
    "docs/testing.md": [],
    "benches/comparison/performance.md": [],
    "CHANGELOG.md": [],
    "SECURITY.md": [],
}


def text(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str, language: str) -> list[str]:
    return pages.blocks(text(page), language)


def session(page: str) -> list[tuple[str, str]]:
    """Returns the commands that a page types into redis-cli, and their replies."""
    return pages.typed(text(page))


@pytest.mark.parametrize("page", BLOCKS)
def test_each_block_of_a_page_is_known_here(page):
    fences = re.findall(r"^ *```(\w*)$", text(page), re.MULTILINE)
    assert [language for language in fences if language] == BLOCKS[page]
    assert len(fences) == 2 * len(BLOCKS[page])


# The pages with commands for a shell, each with the test that pastes it. The commands of CONTRIBUTING.md do not run:
# tests only check that the targets and folders that it names exist.
PASTED = {
    "docs/beside.md": "tests/clients/test_beside_page.py",
    "docs/commands/README.md": "tests/clients/test_command_pages.py",
    "docs/crawling.md": "tests/clients/crawling/test_crawling_page.py",
    "docs/forgetting.md": "tests/clients/test_pasted_pages.py",
    "docs/installing.md": "tests/dist/conftest.py",
    "docs/migrating-from-redisbloom.md": "tests/clients/test_migrating.py",
    "docs/operating.md": "tests/clients/test_operating.py",
    "docs/recipes.md": "tests/clients/test_pasted_pages.py",
    "docs/security.md": "tests/clients/test_security_page.py",
    "python/README.md": "tests/clients/wheel/test_readme.py",
}


def test_each_page_with_commands_for_a_shell_is_pasted_by_a_test():
    folders = ("", "docs/", "docs/commands/", "python/", "filter/")
    every = [
        str(file.relative_to(ROOT)) for folder in folders for file in (ROOT / folder).glob("*.md")
    ]
    assert {page for page in every if blocks(page, "sh")} - {CONTRIBUTING} == PASTED.keys()
    for page, test in PASTED.items():
        assert page.removeprefix("docs/") in text(test)


@pytest.mark.parametrize("page", [page for page in BLOCKS if session(page)])
def test_what_is_typed_gets_the_reply_that_is_shown(server, page):
    shown = session(page)
    assert len(shown) == text(page).count("\n127.0.0.1:6379> ")
    try:
        for command, reply in shown:
            assert pages.redis_cli(server, command) == reply, command
    finally:
        server.client.config_set("bf.initial-size", 100)
        server.client.config_set("bf.cf-layout", "native")


# CONTRIBUTING.md


def test_each_target_of_make_on_the_pages_is_there():
    named = {
        target
        for page in BLOCKS
        for target in re.findall(r"(?:`|\$ (?:sudo )?)make ([a-z-]+)", text(page))
    }
    rules = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    suites = text("tools/suites.py")
    rules |= {f"test-{name}" for name in re.findall(r'^    "([a-z-]+)": ', suites, re.MULTILINE)}
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


def prints(server: Server, code: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    pages.run_python(server, code)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("page", [README, CLIENTS])
def test_the_python_code_prints_what_its_comments_say_each_time(server, capsys, page):
    checked = 0
    for code in blocks(page, "python"):
        comments = re.findall(r"^print\(.*  # (.*)$", code, re.MULTILINE)
        parts = [comment.split("; when you run it again, ") for comment in comments]
        printed = [prints(server, code, capsys) for _ in range(2)]
        if comments:
            assert printed == [[part[0] for part in parts], [part[-1] for part in parts]]
            checked += 1
    assert checked == 1


def test_the_python_code_reads_each_field_that_redis_py_does_not(server, capsys):
    (code,) = (code for code in blocks(CLIENTS, "python") if "for field in" in code)
    for _ in range(2):
        printed = prints(server, code, capsys)
        fields = re.findall(r'"([A-Z]+)"', code.split("for field in")[1].split("]")[0])
        everything = server.client.execute_command("BF.INFO", "users", "ALL")
        facts = everything[1::2][5:]
        assert printed == [f"{field} {fact}" for field, fact in zip(fields, facts, strict=True)]
        assert printed[0] == "ERROR b'0.001'"
        for field, fact in zip(fields, facts, strict=True):
            assert server.client.execute_command("BF.INFO", "users", field) == [fact]


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
    header = (ROOT / "filter/src/stored/header.rs").read_text()
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
    assert error.removeprefix("ERR ") in pages.redis_cli(server, command)
