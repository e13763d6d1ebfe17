"""All links between the pages of the project lead to existing files and headings."""

import re
from functools import cache
from pathlib import Path

import pytest
from servers import ROOT

# Built or installed files, and those of the fuzzers, are not checked.
ELSEWHERE = {"target", "node_modules", "corpus", ".git", ".venv"}
PAGES = sorted(
    page for page in ROOT.rglob("*.md") if not ELSEWHERE.intersection(page.relative_to(ROOT).parts)
)

FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]*)\)")


def links(page: Path) -> list[str]:
    """Returns the targets of a page's links, except links to other sites."""
    prose = CODE.sub("code", FENCE.sub("", page.read_text()))
    return [link for link in LINK.findall(prose) if not re.match(r"[a-z]+:", link)]


@cache
def anchors(page: Path) -> set[str]:
    """Returns the names that GitHub gives to the headings of a page."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        number = found[name] = found.get(name, -1) + 1
        names.add(f"{name}-{number}" if number else name)
    return names


def test_there_are_pages_and_links():
    assert len(PAGES) > 15
    assert sum(len(links(page)) for page in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page):
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        exists = target.exists() and target.is_relative_to(ROOT)
        if not exists or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
