"""Follows docs/crawling.md: its commands are typed into one shell.

Only the settings that readers choose are different, such as the folder and the site, which is on loopback.
"""

import json
import os
import re
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


@pytest.fixture
def pages() -> Iterator[Site]:
    with site(PAGES, DELAY) as pages:
        yield pages


@pytest.fixture
def shell(tmp_path: Path, pages: Site) -> Iterator[Shell]:
    """Starts a shell with the settings of the page."""
    port, target = free_port(), ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    values = {
        "SITE=https://quotes.toscrape.com/": f"SITE='{pages.url(0)}'",
        "PORT=6379": f"PORT={port}",
        "FOLDER=~/crawl": f"FOLDER={tmp_path / 'crawl'}",
        'OXBLOOM="$PWD/target/release/liboxbloom.so"': f"OXBLOOM={Path(OXBLOOM).resolve()}",
        'WHEELS="$PWD/target/wheels"': f"WHEELS={target / 'wheels'}",
    }
    # Clears the flags of a `make` that runs these tests.
    with Shell(tmp_path, PAGE, values, serves=[port], MAKEFLAGS="") as shell:
        shell.paste(shell.blocks("Before you start")[0])
        yield shell


@pytest.fixture
def client(shell: Shell) -> Iterator[redis.Redis]:
    with redis.Redis(HOST, *shell.serves, decode_responses=True, retry=ONCE) as client:
        yield client


def items(client: redis.Redis) -> list[str]:
    """Returns the URLs of the items in the server."""
    return [json.loads(item)["url"] for item in client.lrange("pages:items", 0, -1)]


def test_the_page_can_be_followed(shell: Shell, client: redis.Redis, pages: Site) -> None:
    shell.paste(START)
    assert client.ping()
    shell.paste(INSTALL)

    assert shell.paste(FIRST) == [str(PAGES)]
    assert "'bloomfilter/filtered': " in shell.errors.read_text()
    assert client.keys() == []

    shell.paste(LASTING)
    stored, queued = map(int, shell.paste(INTERRUPT))
    assert 0 < stored < PAGES
    assert queued > 0
    (in_flight,) = map(int, shell.paste(KILL))
    assert in_flight > 0
    assert len(items(client)) > stored
    lines, *twice = shell.paste(FINISH)
    assert len(set(items(client))) == PAGES
    assert int(lines) == PAGES + len(twice)
    assert len(twice) <= in_flight
    again = shell.paste("scrapy crawl pages -a site=$SITE; redis-cli -p $PORT LLEN pages:items")
    assert again == [lines]

    # ANEW deletes two keys. The queue is empty, so it has no key.
    assert shell.paste(ANEW) == ["2"]
    assert shell.paste(MANY) == [str(PAGES)]

    done, size, deleted, capacity, card = shell.paste(SIZES)
    assert (done, deleted, capacity) == ("OK", "1", "1000000")
    assert int(card) == client.execute_command("BF.CARD", "pages:bloomfilter") > PAGES
    assert f"| 100 million | 132 MB | 191 MB | 256 MB | {round(int(size) / 1e6)} MB |" in PAGE

    # Crawls with the set of scrapy-redis, then continues with a filter.
    shell.paste(ANEW)
    shell.paste("cp settings.py before.py")
    shell.paste(
        """echo 'DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"' >> settings.py"""
    )
    shell.paste("scrapy crawl pages -a site=$SITE")
    assert len(items(client)) == PAGES
    shell.paste("mv before.py settings.py")
    seen = client.scard("pages:dupefilter")
    assert shell.paste(MOVE) == [f"{seen} of {seen}"]
    shell.paste(FINGERPRINTS)
    served = len(pages.served)
    shell.paste("scrapy crawl pages -a site=$SITE")
    assert len(pages.served) == served

    shell.paste(STOP)
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
