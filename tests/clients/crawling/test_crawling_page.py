"""docs/crawling.md, followed to the letter: its commands are typed into one shell, as a reader types them.

Only the values that the reader is asked to set are others: a site on loopback, a free port; and the server keeps its files in a
temporary folder.
"""

import json
import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from servers import HOST, OXBLOOM, ROOT, WITHIN, free_port, wait_until
from website import Site, site

PAGE = (ROOT / "docs/crawling.md").read_text()
PACKAGE_PAGE = (ROOT / "python/README.md").read_text()
# So that a crawl is not over when the page has stopped it twice, however busy the machine.
PAGES = 200
DELAY = 0.4  # seconds
DONE = "### done"


def blocks(heading: str, language: str = "sh") -> list[str]:
    """The commands below a heading of the page, block by block."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section, heading
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", section[1], re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


SETTINGS, START, INSTALL = blocks("Before you start")
(FIRST,) = blocks("A first crawl")
LASTING, INTERRUPT, KILL, FINISH, ANEW = blocks("A crawl that can be stopped")
(MANY,) = blocks("Many crawlers")
(SIZES,) = blocks("How large a filter")
MOVE, FINGERPRINTS = blocks("Coming from another filter")


class Terminal:
    """A shell that a reader types into."""

    def __init__(self, folder: Path, settings: str) -> None:
        self.errors = folder / f"errors-{id(self)}"
        # What `make run` puts into the project's own folder otherwise.
        make = f"TARGET={folder / 'target'} MODULE={Path(OXBLOOM).resolve()}"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                ["bash", "-e"],
                cwd=ROOT,
                env={**os.environ, "MAKEFLAGS": make},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.begin(settings)

    def begin(self, commands: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(commands)
        self.process.stdin.flush()

    def type(self, commands: str) -> list[str]:
        """The lines that the commands print."""
        self.begin(f"{commands}\necho '{DONE}'\n")
        assert self.process.stdout
        lines = []
        for line in self.process.stdout:
            if line == f"{DONE}\n":
                return lines
            lines.append(line.rstrip())
        pytest.fail(f"{commands}\n{lines}\n{self.errors.read_text()[-5000:]}", pytrace=False)

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(WITHIN)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


class Reader:
    """Who follows the page, with a server running."""

    def __init__(self, folder: Path, pages: Site) -> None:
        self.folder, port = folder / "crawl", free_port()
        values = {"SITE": f"'{pages.url(0)}'", "PORT": str(port), "FOLDER": str(self.folder)}
        settings = SETTINGS
        for name, value in values.items():
            settings, count = re.subn(
                rf"^{name}=\S+", f"{name}={value}", settings, flags=re.MULTILINE
            )
            assert count == 1, name
        self.client = redis.Redis(HOST, port, decode_responses=True)
        self.servers, self.terminal = Terminal(folder, settings), Terminal(folder, settings)

    def start_server(self) -> None:
        self.servers.begin(START)
        wait_until(self.answers)

    def answers(self) -> bool:
        try:
            return self.client.ping()
        except redis.ConnectionError:
            return False

    def items(self) -> list[str]:
        """The URLs of the items in the server."""
        return sorted(json.loads(item)["url"] for item in self.client.lrange("pages:items", 0, -1))

    def close(self) -> None:
        for terminal in (self.terminal, self.servers):
            terminal.close()
        self.client.close()


@pytest.fixture
def pages() -> Iterator[Site]:
    with site(PAGES, DELAY) as pages:
        yield pages


@pytest.fixture
def reader(tmp_path: Path, pages: Site) -> Iterator[Reader]:
    reader = Reader(tmp_path, pages)
    try:
        yield reader
    finally:
        reader.close()


def test_the_page_can_be_followed(reader: Reader, pages: Site) -> None:
    client, terminal = reader.client, reader.terminal
    reader.start_server()
    terminal.type(INSTALL)

    assert terminal.type(FIRST) == [str(PAGES)]
    assert "'bloomfilter/filtered': " in terminal.errors.read_text()
    assert client.keys() == []

    terminal.type(LASTING)
    items, queued = map(int, terminal.type(INTERRUPT))
    assert 0 < items < PAGES
    assert queued > 0
    (in_flight,) = map(int, terminal.type(KILL))
    assert in_flight > 0
    assert len(reader.items()) > items
    items, *twice = terminal.type(FINISH)
    assert len(set(reader.items())) == PAGES
    assert int(items) == PAGES + len(twice)
    assert len(twice) <= in_flight
    assert terminal.type(
        "scrapy crawl pages -a site=$SITE; redis-cli -p $PORT LLEN pages:items"
    ) == [items]

    # The queue is empty, and so not there.
    assert terminal.type(ANEW) == ["2"]
    assert terminal.type(MANY) == [str(PAGES)]

    done, size, deleted, capacity, card = terminal.type(SIZES)
    assert (done, deleted, capacity) == ("OK", "1", "1000000")
    assert int(card) == client.execute_command("BF.CARD", "pages:bloomfilter") > PAGES
    assert f"| 100 million | 132 MB | 191 MB | 256 MB | {round(int(size) / 1e6)} MB |" in PAGE

    # A crawl with scrapy-redis's set, which goes on with a filter.
    terminal.type(ANEW)
    terminal.type("cp settings.py before.py")
    terminal.type(
        """echo 'DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"' >> settings.py"""
    )
    terminal.type("scrapy crawl pages -a site=$SITE")
    assert len(reader.items()) == PAGES
    terminal.type("mv before.py settings.py")
    seen = client.scard("pages:dupefilter")
    assert terminal.type(MOVE) == [f"{seen} of {seen}"]
    terminal.type(FINGERPRINTS)
    served = len(pages.served)
    terminal.type("scrapy crawl pages -a site=$SITE")
    assert len(pages.served) == served


def test_all_settings_are_in_the_packages_readme_and_all_that_pages_name_exist() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "python/src").rglob("*.py"))
    name = re.compile(r"\bBLOOMFILTER_[A-Z_]+[A-Z]|\bSCHEDULER_LEASE")
    known = set(re.findall(r'"(BLOOMFILTER_[A-Z_]+[A-Z]|SCHEDULER_LEASE)"', sources))
    assert len(known) >= 8
    assert set(name.findall(PACKAGE_PAGE)) == known
    assert set(name.findall(PAGE)) <= known


@pytest.mark.parametrize(
    "block", re.findall(r"^```python\n(.*?)^```", PAGE + PACKAGE_PAGE, re.DOTALL | re.MULTILINE)
)
def test_all_code_is_python(block: str) -> None:
    compile(textwrap.dedent(block), "page", "exec")
