"""Tests Crawlee for Python. With `queue_dedup_strategy="bloom"`, it keeps its queue in Redis and drops duplicates with
BF.* commands. Its storage client also needs RedisJSON.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import blocks, page
from servers import OXBLOOM, REDISBLOOM, ROOT, WITHIN, Server, happens, running, wait_until
from website import Site, site

CRAWLER = Path(__file__).with_name("crawlee_crawler.py")
JSON = os.environ.get("REDISJSON_MODULE", str(ROOT / "target/redisbloom/rejson.so"))
PAGES = 60
QUEUE = "pages"
FILTERS = [f"request_queues:{QUEUE}:{which}_bloom_filter" for which in ("added", "handled")]
BLOCKED = 2  # seconds until requests that a dead crawler took are available again


@pytest.fixture
def module() -> str:
    return OXBLOOM


@pytest.fixture
def server(module: str) -> Iterator[Server]:
    with running(module, "--loadmodule", str(Path(JSON).resolve())) as server:
        yield server


@pytest.fixture
def website() -> Iterator[Site]:
    with site(PAGES, delay=0.02) as website:
        yield website


class Crawlers:
    def __init__(self, server: Server, website: Site, folder: Path) -> None:
        self.command = [sys.executable, str(CRAWLER), server.url, QUEUE, website.url(0)]
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, blocked: float = 300) -> subprocess.Popen[bytes]:
        with (self.folder / f"{len(self.started)}.log").open("wb") as log:
            command = [*self.command, str(blocked)]
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        log = self.folder / f"{self.started.index(process)}.log"
        assert happens(lambda: process.poll() is not None), "the crawl does not end"
        assert process.returncode == 0, log.read_text()


@pytest.fixture
def crawlers(server: Server, website: Site, tmp_path: Path) -> Iterator[Crawlers]:
    crawlers = Crawlers(server, website, tmp_path)
    yield crawlers
    for process in crawlers.started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("module", [OXBLOOM, REDISBLOOM], ids=["oxbloom", "redisbloom"])
def test_a_crawl_visits_each_page_once_and_a_second_one_none(server, website, crawlers):
    crawlers.finish(crawlers.start())
    assert website.visits() == dict.fromkeys(range(PAGES), 1)
    for key in FILTERS:
        assert server.client.execute_command("BF.CARD", key) == PAGES
        # docs/crawling.md states this number.
        assert server.client.bf().info(key).capacity == 100_000
    crawlers.finish(crawlers.start())
    assert website.visits() == dict.fromkeys(range(PAGES), 1)


def test_the_example_on_the_page_crawls_with_bloom_filters(server, website, tmp_path):
    [example] = [code for code in blocks(page("crawling.md"), "python") if "crawlee" in code]
    crawl = f"""
import asyncio

@crawler.router.default_handler
async def handle(context):
    await context.add_requests([{website.url(1)!r}, {website.url(1)!r}])

asyncio.run(crawler.run([{website.url(0)!r}]))
"""
    code = example.replace("redis://127.0.0.1:6379", server.url) + crawl
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=WITHIN)
    assert website.visits() == {0: 1, 1: 1}
    [added] = server.client.scan_iter("request_queues:*:added_bloom_filter")
    assert server.client.execute_command("BF.CARD", added) == 2


def test_two_crawlers_share_the_pages(website, crawlers):
    pair = [crawlers.start(), crawlers.start()]
    for process in pair:
        crawlers.finish(process)
    assert website.visits() == dict.fromkeys(range(PAGES), 1)


def test_a_crawl_that_was_killed_is_completed(website, crawlers):
    killed = crawlers.start(BLOCKED)
    wait_until(lambda: len(website.served) > PAGES // 4)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(website.visits()) < PAGES
    crawlers.finish(crawlers.start(BLOCKED))
    visits = website.visits()
    assert set(visits) == set(range(PAGES))
    # At most four requests were in progress when the crawler died. Only they are repeated.
    assert sum(visits.values()) - PAGES <= 4
