"""Runs each line of the table in docs/pybloom.md on pybloom, on a server, and on our class. They reply as it says."""

import re

import pybloom_live
import pytest
from oxbloom import BloomFilter, FilterFullError
from pasting import Shell
from reader import CLI
from servers import ROOT

PAGE = (ROOT / "docs/pybloom.md").read_text()


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
def test_both_answer_as_the_table_says(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {name: getattr(pybloom_live, name) for name in ["BloomFilter", "ScalableBloomFilter"]}
    with Shell(tmp_path, "", directory=tmp_path, port=server.port) as shell:
        for pybloom, answers, oxbloom, replies in lines():
            assert answer(pybloom, names) == answers or not answers, pybloom
            # With this seed, none of a hundred items is a false positive.
            line = re.sub(r"^BF\.RESERVE.*", r"\g<0> SEED 7", oxbloom)
            line = line if line.startswith(CLI) else f"{CLI} {line}"
            assert " ".join(shell.paste(f"{line} || true")).split() == replies.split(), line


class Seeded:
    """Creates filters of our class. With this seed, none of a hundred items is a false positive."""

    fromfile = BloomFilter.fromfile

    def __new__(cls, capacity: int, error_rate: float) -> BloomFilter:  # type: ignore[misc]
        return BloomFilter(capacity, error_rate, seed=7)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_our_class_answers_as_the_table_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"BloomFilter": Seeded}
    shown = [(code, answers) for code, answers, _, _ in lines()]
    growing = next(i for i, (code, _) in enumerate(shown) if "ScalableBloomFilter" in code)
    assert growing > 15
    for code, answers in shown[:growing]:
        expected = answers.replace(IndexError.__name__, FilterFullError.__name__)
        assert answer(code, names) == expected or not answers, code


def test_the_differences_are_those_that_the_page_names():
    ours, theirs = BloomFilter(1000, 0.001), pybloom_live.BloomFilter(1000, 0.001)
    theirs.add(5)
    theirs.add(b"a")
    assert "5" in theirs
    assert "b'a'" in theirs
    ours.add(b"a")
    assert "a" in ours
    with pytest.raises(TypeError):
        ours.add(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed"):
        ours | BloomFilter(1000, 0.001)
    assert "a" in ours | ours.empty_like()
    with pytest.raises(TypeError):
        ours.add("a", skip_check=True)  # type: ignore[call-arg]
    assert issubclass(FilterFullError, IndexError)
    assert type("Seen", (pybloom_live.BloomFilter,), {})
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Seen", (BloomFilter,), {})


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
