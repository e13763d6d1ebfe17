"""The README, taken at its word.

What is typed into redis-cli there is typed into it here, and replied to as shown. The code for redis-py runs. Each line of the table for those who know
pybloom is run on pybloom and on a server, and both answer as it says.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pages
import pybloom_live
import pytest
import redis
from pages import CLI
from servers import HOST, OXBLOOM, ROOT, Server, running

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        yield server


def redis_cli(server: Server, line: str) -> str:
    """What a line of shell prints, in which redis-cli has found the server."""
    script = f'{CLI}() {{ command {CLI} -h {HOST} -p {server.port} "$@"; }}\n{line}'
    command = ["bash", "-c", script]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.parametrize(("command", "reply"), pages.typed(README))
def test_what_is_typed_gets_the_reply_that_is_shown(server, command, reply):
    assert pages.redis_cli(server, command) == reply


def test_the_readme_shows_a_session():
    assert len(pages.typed(README)) > 20


def test_the_python_code_runs_as_typed_and_reads_the_fields_that_redis_py_does_not(
    server, capsys
):
    server.client.delete("users")
    programs = [code for code in pages.blocks(README, "python") if code.startswith("import redis\n")]
    assert len(programs) == 2
    for program in programs:
        pages.run_python(server, program)
    fields = re.findall(r"^\| `([A-Z]+)` \|", README, re.M)[-11:]
    facts = [server.client.execute_command("BF.INFO", "users", field)[0] for field in fields]
    expected = [f"{field} {fact}" for field, fact in zip(fields, facts, strict=True)]
    assert expected[0] == "ERROR b'0.001'"
    assert capsys.readouterr().out.splitlines() == expected


def test_redis_py_fails_on_a_single_field_once_bf_was_called_as_the_readme_says(server):
    server.client.execute_command("BF.INSERT", "users", "ITEMS", "alice")
    with redis.Redis(HOST, server.port) as client:
        client.bf()
        with pytest.raises(KeyError, match="^'Capacity'$"):
            client.execute_command("BF.INFO", "users", "FPR")


def test_the_rates_of_filled_filters_are_stated_as_they_are_tested():
    tested = re.search(r"for \(rate, factor\) in \[(.*?)\]", (ROOT / "filter/tests/promises/rates.rs").read_text())
    assert tested
    limits = {rate: factor for rate, factor in re.findall(r"\((\S+), (\S+)\)", tested[1])}
    stated = re.search(r"we measured (.*?)\.\s+\(The tests allow (.*?) times", README, re.S)
    assert stated
    measured = {rate: factor for factor, rate in re.findall(r"([\d.]+) times at ([\d.]+\d)", stated[1])}
    assert measured.keys() == limits.keys()
    assert all(float(factor) <= float(limits[rate]) for rate, factor in measured.items())
    assert re.findall(r"[\d.]+\d", stated[2]) == [limits[rate] for rate in measured]


def test_a_retried_merge_into_a_counting_filter_doubles_the_counts_without_replace(server):
    client = server.client
    client.execute_command("BF.RESERVE", "source", "0.01", 100, "COUNTING")
    for destination in ("without", "with"):
        client.execute_command("BF.RESERVE", destination, "LIKE", "source")
    client.execute_command("BF.ADD", "source", "item")
    for _ in range(2):
        client.execute_command("BF.MERGE", "without", 1, "source")
        client.execute_command("BF.MERGE", "with", 1, "source", "REPLACE")
    counts = [client.execute_command("BF.COUNT", key, "item") for key in ("without", "with")]
    assert counts == [2, 1]


def test_each_setting_is_in_the_table_and_explained(server):
    settings = re.findall(r"^\| `(bf\.[a-z-]+)` \| (\S+) \|", README, re.M)
    explained = re.findall(r"^# (bf\.[a-z-]+) (\S+)$", (ROOT / "redis.conf.example").read_text(), re.M)
    assert sorted(explained) == sorted(settings)
    assert {name for name, _ in settings} == server.client.config_get("bf.*").keys()


def lines() -> list[list[str]]:
    """The cells of the table, without their Markdown."""
    section = re.search(r"^## For those who know pybloom\n(.*?)^## ", README, re.S | re.M)
    assert section
    rows = re.findall(r"^\| (`.*) \|$", section[1], re.M)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]
    # What follows the first code of a cell explains it.
    code = re.compile(r"`([^`]*)`")
    return [
        [found[1].replace("\\|", "|") if (found := code.match(cell)) else "" for cell in row]
        for row in cells
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pybloom")


@pytest.fixture(scope="module")
def names() -> dict:
    """What Python has names for: for all lines, in their order."""
    return {name: getattr(pybloom_live, name) for name in ["BloomFilter", "ScalableBloomFilter"]}


def answer(code: str, names: dict) -> str:
    """What Python shows of an expression, or the exception that it raises; nothing of a statement."""
    try:
        return repr(eval(code, names))
    except SyntaxError:
        exec(code, names)
        return ""
    except IndexError as error:
        return type(error).__name__


# Files are left to Python to close, as pybloom's users do.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("pybloom", "answers", "oxbloom", "replies"), lines())
def test_both_answer_as_the_table_says(
    server, folder, names, monkeypatch, pybloom, answers, oxbloom, replies
):
    monkeypatch.chdir(folder)
    # With a seed that is always the same, so that none of a hundred items is now and then a false positive.
    oxbloom = re.sub(r"^BF\.RESERVE.*", r"\g<0> SEED 7", oxbloom)
    shown = answer(pybloom, names)
    assert shown == answers or not answers
    line = oxbloom if oxbloom.startswith(CLI) else f"{CLI} {oxbloom}"
    assert redis_cli(server, line).split() == replies.split()


def test_the_table_covers_what_pybloom_offers():
    offered = {
        name
        for kind in [pybloom_live.BloomFilter, pybloom_live.ScalableBloomFilter]
        for name in vars(kind)
        if not name.startswith("_") and name != "FILE_FMT"
    }
    offered |= {"capacity", "error_rate", "count", "len("}
    shown = " ".join(line[0] for line in lines())
    assert {name for name in offered if name not in shown} == set()
    assert len(lines()) > 25
