"""A reader follows each page from top to bottom, and each block prints what the page shows: see reader.py. A page is a
row, with what its reader needs.

`node/pages.test.mjs` runs the code for node-redis, and `cargo test --doc` that in Rust.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pages
import pytest
from reader import Reader
from servers import BESIDE, OXBLOOM, OXBLOOM_WITH_CLOCK, ROOT, running, server_version


class Row(NamedTuple):
    """A page, and what its reader needs."""

    page: str
    # The module that a server loads, and other options of the server.
    server: tuple[str, ...] = (OXBLOOM,)
    # Sections that tests of their own run.
    apart: tuple[str, ...] = ()
    # How often the page can be followed on one server.
    times: int = 1
    # Each block of Python code starts on a server without keys.
    is_fresh: bool = False
    # Keys, with bounds of the TTLs that they have at the end.
    ttls: tuple[tuple[str, int, int], ...] = ()


TTLS = (
    ("ad:17", 2_000_000, 3_000_000),
    ("visits:monday", 1_000_000, 3_000_000),
    ("visits:template", -1, -1),
)
COMMANDS = sorted(file.name for file in (ROOT / "docs/commands").glob("*f.*.md"))
ROWS = [
    Row("README.md", times=2),
    Row("docs/choosing.md"),
    Row("docs/clients.md", times=2),
    Row("docs/command-line.md"),
    Row("docs/configuration.md"),
    Row("docs/cuckoo.md"),
    Row("docs/forgetting.md", (OXBLOOM_WITH_CLOCK,)),
    Row("docs/live-copies.md"),
    Row("docs/merging.md"),
    Row("docs/recipes.md", ttls=TTLS),
    Row("docs/removing.md"),
    Row("docs/security.md"),
    Row("python/README.md", apart=("Install",), times=2),
    *(
        Row(
            f"docs/commands/{name}",
            BESIDE if name.startswith("ox") else (OXBLOOM,),
            apart=("Replies", "Errors"),
            is_fresh=True,
        )
        for name in COMMANDS
    ),
]
# The tests of pages that describe servers, crawls and machines. The commands of CONTRIBUTING.md do not run.
OTHERS = {
    "CONTRIBUTING.md": "tests/clients/test_pages.py",
    "docs/beside.md": "tests/clients/test_beside_page.py",
    "docs/commands/README.md": "tests/clients/test_command_pages.py",
    "docs/crawling.md": "tests/clients/crawling/test_crawling_page.py",
    "docs/installing.md": "tests/dist/conftest.py",
    "docs/kubernetes.md": "tests/dist/test_docker.py",
    "docs/migrating-from-redisbloom.md": "tests/clients/test_migrating.py",
    "docs/operating.md": "tests/clients/test_operating.py",
    "docs/scrapy.md": "tests/clients/crawling/test_crawling_page.py",
    "filter/README.md": "filter/src/lib.rs",
}
# The languages that a reader follows, and the pages with code for node-redis.
LANGUAGES = {"sh", "console", "python"}
JAVASCRIPT = {"README.md", "docs/clients.md", "docs/live-copies.md"}
PAGES = {
    str(page.relative_to(ROOT)): page.read_text()
    for folder in (".", "benches/comparison", "docs", "docs/commands", "filter", "python")
    for page in (ROOT / folder).glob("*.md")
}


@pytest.mark.skipif(server_version() < (7, 0), reason="the pages show the replies of later servers")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.page)
def test_each_block_of_the_page_prints_what_it_shows(row: Row, tmp_path: Path) -> None:
    text = PAGES[row.page]
    for heading in row.apart:
        text = text.replace(pages.section(text, heading), "")
    with running(*row.server) as server:
        for time in range(row.times):
            folder = tmp_path / str(time)
            folder.mkdir()
            with Reader(server, folder, text, is_again=time > 0, is_fresh=row.is_fresh) as reader:
                reader.follow()
        for key, least, most in row.ttls:
            assert least <= server.client.ttl(key) <= most, key


def test_no_block_of_any_page_is_left_out() -> None:
    followed = {row.page for row in ROWS}
    for page, text in PAGES.items():
        fences = re.findall(r"^ *```(\w*)$", text, re.MULTILINE)
        languages = set(fences) - {""}
        assert fences.count("") == len(fences) / 2, page
        assert page not in followed or languages & LANGUAGES, page
        left = languages - {"text"} - (LANGUAGES if page in followed else set())
        left -= {"js"} if page in JAVASCRIPT else set()
        assert bool(left) == (page in OTHERS), page
    for page, test in OTHERS.items():
        assert page.removeprefix("docs/").removeprefix("filter/") in (ROOT / test).read_text()


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if pages.blocks(text)])
def test_each_wait_of_the_page_is_bounded(page: str) -> None:
    """A page waits only with this function, which gives up after some time: see `test_page_functions.py`."""
    code = "\n".join(pages.blocks(PAGES[page]))
    assert "sleep" not in code
    assert code.count(". examples/wait_until.sh\n") == ("wait_until " in code)
