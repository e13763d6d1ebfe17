"""Follows docs/crawling.md: its commands are typed into one shell.

Only the settings that readers choose are different, such as the folder and the site, which is on loopback.
"""

import json
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pages import blocks as blocks_of
from pages import page, section
from pasting import Shell
from servers import HOST, ONCE, OXBLOOM, ROOT, free_port
from website import Site, site

PAGE = page("crawling.md")
SETTINGS_PAGE = page("scrapy.md")
# The delay of a reply is so long that a crawl does not end before the commands have stopped it twice, however busy the
# machine is.
PAGES = 200
DELAY = 0.4  # seconds


def blocks(heading: str) -> list[str]:
    """Returns the blocks of commands below a heading of the page."""
    return blocks_of(section(PAGE, heading))


SETTINGS, START, INSTALL = blocks("Before you start")
(FIRST,) = blocks("A first crawl")
LASTING, INTERRUPT, KILL, FINISH, ANEW = blocks("A crawl that can be stopped")
(MANY,) = blocks("Many crawlers")
(SIZES,) = blocks("How large a filter")
MOVE, FINGERPRINTS = blocks("Coming from another filter")
(STOP,) = blocks("Stop the server")


class Reader:
    """A reader who follows the page in one shell."""

    def __init__(self, folder: Path, pages: Site) -> None:
        self.port = free_port()
        target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
        values = {
            "SITE=https://quotes.toscrape.com/": f"SITE='{pages.url(0)}'",
            "PORT=6379": f"PORT={self.port}",
            "FOLDER=~/crawl": f"FOLDER={folder / 'crawl'}",
            'OXBLOOM="$PWD/target/release/liboxbloom.so"': f"OXBLOOM={Path(OXBLOOM).resolve()}",
            'WHEELS="$PWD/target/wheels"': f"WHEELS={target / 'wheels'}",
        }
        self.client = redis.Redis(HOST, self.port, decode_responses=True, retry=ONCE)
        # Clears the flags of a `make` that runs these tests.
        self.shell = Shell(folder, PAGE, values, serves=[self.port], MAKEFLAGS="")

    def type(self, *commands: str) -> list[str]:
        """Types commands. Returns the lines that they print."""
        return self.shell.paste(*commands)

    def items(self) -> list[str]:
        """Returns the URLs of the items in the server."""
        return sorted(json.loads(item)["url"] for item in self.client.lrange("pages:items", 0, -1))


@pytest.fixture
def pages() -> Iterator[Site]:
    with site(PAGES, DELAY) as pages:
        yield pages


@pytest.fixture
def reader(tmp_path: Path, pages: Site) -> Iterator[Reader]:
    reader = Reader(tmp_path, pages)
    with reader.shell, reader.client:
        reader.type(reader.shell.blocks("Before you start")[0])
        yield reader


def test_the_page_can_be_followed(reader: Reader, pages: Site) -> None:
    client = reader.client
    reader.type(START)
    assert client.ping()
    reader.type(INSTALL)

    assert reader.type(FIRST) == [str(PAGES)]
    assert "'bloomfilter/filtered': " in reader.shell.errors.read_text()
    assert client.keys() == []

    reader.type(LASTING)
    items, queued = map(int, reader.type(INTERRUPT))
    assert 0 < items < PAGES
    assert queued > 0
    (in_flight,) = map(int, reader.type(KILL))
    assert in_flight > 0
    assert len(reader.items()) > items
    items, *twice = reader.type(FINISH)
    assert len(set(reader.items())) == PAGES
    assert int(items) == PAGES + len(twice)
    assert len(twice) <= in_flight
    assert reader.type("scrapy crawl pages -a site=$SITE; redis-cli -p $PORT LLEN pages:items") == [
        items
    ]

    # ANEW deletes two keys. The queue is empty, so it has no key.
    assert reader.type(ANEW) == ["2"]
    assert reader.type(MANY) == [str(PAGES)]

    done, size, deleted, capacity, card = reader.type(SIZES)
    assert (done, deleted, capacity) == ("OK", "1", "1000000")
    assert int(card) == client.execute_command("BF.CARD", "pages:bloomfilter") > PAGES
    assert f"| 100 million | 132 MB | 191 MB | 256 MB | {round(int(size) / 1e6)} MB |" in PAGE

    # Crawls with the set of scrapy-redis, then continues with a filter.
    reader.type(ANEW)
    reader.type("cp settings.py before.py")
    reader.type(
        """echo 'DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"' >> settings.py"""
    )
    reader.type("scrapy crawl pages -a site=$SITE")
    assert len(reader.items()) == PAGES
    reader.type("mv before.py settings.py")
    seen = client.scard("pages:dupefilter")
    assert reader.type(MOVE) == [f"{seen} of {seen}"]
    reader.type(FINGERPRINTS)
    served = len(pages.served)
    reader.type("scrapy crawl pages -a site=$SITE")
    assert len(pages.served) == served

    reader.type(STOP)
    with pytest.raises(redis.ConnectionError):
        client.ping()


def test_no_command_of_the_page_is_left_out() -> None:
    """The test above types all commands of the page, in their order."""
    typed = [SETTINGS, START, INSTALL, FIRST, LASTING, INTERRUPT, KILL, FINISH, ANEW]
    assert blocks_of(PAGE) == [*typed, MANY, SIZES, MOVE, FINGERPRINTS, STOP]


def test_all_settings_are_on_their_page_and_all_that_pages_name_exist() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "python/oxbloom/scrapy").rglob("*.py"))
    name = re.compile(r"\bBLOOMFILTER_[A-Z_]+[A-Z]|\bSCHEDULER_LEASE")
    known = set(re.findall(r'"(BLOOMFILTER_[A-Z_]+[A-Z]|SCHEDULER_LEASE)"', sources))
    assert len(known) >= 8
    assert set(name.findall(SETTINGS_PAGE)) == known
    assert set(name.findall(PAGE)) <= known


@pytest.mark.parametrize(
    "block", re.findall(r"^```python\n(.*?)^```", PAGE + SETTINGS_PAGE, re.DOTALL | re.MULTILINE)
)
def test_all_code_is_python(block: str) -> None:
    compile(textwrap.dedent(block), "page", "exec")
