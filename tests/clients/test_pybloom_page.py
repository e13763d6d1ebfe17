"""Runs each line of the table in docs/pybloom.md on pybloom and on a server. Both reply as the table says."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pybloom_live
import pytest
from servers import HOST, OXBLOOM, ROOT, Server, running

PAGE = (ROOT / "docs/pybloom.md").read_text()
CLI = "redis-cli"


def lines() -> list[list[str]]:
    """Returns the cells of the table, without their Markdown."""
    rows = re.findall(r"^\| (`.*) \|$", PAGE, re.MULTILINE)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]
    # The text after the first code of a cell explains it.
    code = re.compile(r"`([^`]*)`")
    return [
        [found[1].replace("\\|", "|") if (found := code.match(cell)) else "" for cell in row]
        for row in cells
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Starts one server for all lines, which run in the order of the page."""
    with running(OXBLOOM) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pybloom")


@pytest.fixture(scope="module")
def names() -> dict:
    """Returns the variables of Python, which all lines share."""
    return {name: getattr(pybloom_live, name) for name in ["BloomFilter", "ScalableBloomFilter"]}


def redis_cli(server: Server, line: str) -> str:
    """Returns what a shell command prints. Its redis-cli connects to the server."""
    script = f'{CLI}() {{ command {CLI} -h {HOST} -p {server.port} "$@"; }}\n{line}'
    command = ["bash", "-c", script]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout


def answer(code: str, names: dict) -> str:
    """Returns the value of an expression as Python shows it, or the name of its exception. A statement has no value."""
    try:
        return repr(eval(code, names))
    except SyntaxError:
        exec(code, names)  # noqa: S102
        return ""
    except IndexError as error:
        return type(error).__name__


# Like pybloom's users, the code does not close its files.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("pybloom", "answers", "oxbloom", "replies"), lines())
def test_both_answer_as_the_table_says(
    server, folder, names, monkeypatch, pybloom, answers, oxbloom, replies
):
    monkeypatch.chdir(folder)
    # With this seed, none of a hundred items is a false positive.
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
