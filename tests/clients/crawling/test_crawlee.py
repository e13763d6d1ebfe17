"""Runs the example for Crawlee on docs/crawling.md. With `queue_dedup_strategy="bloom"`, Crawlee keeps its queue in
Redis and drops duplicates with BF.* commands. Its storage client also needs RedisJSON.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from pages import blocks, page
from servers import OXBLOOM, ROOT, WITHIN, running
from website import site

JSON = os.environ.get("REDISJSON_MODULE", str(ROOT / "target/redisbloom/rejson.so"))
PAGES = 60
CRAWL = """
import asyncio, re, sys

site = sys.argv[1]

@crawler.router.default_handler
async def follow(context):
    body = (await context.http_response.read()).decode()
    await context.add_requests([site + link for link in re.findall('href="(/page[^"]*)"', body)])

asyncio.run(crawler.run([site + "/page?id=0&lang=en"]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="RedisJSON's library is only for x86-64")
def test_the_example_crawls_each_page_once_with_bloom_filters(tmp_path):
    [example] = [code for code in blocks(page("crawling.md"), "python") if "crawlee" in code]
    with (
        running(OXBLOOM, "--loadmodule", str(Path(JSON).resolve())) as server,
        site(PAGES, delay=0.02) as pages,
    ):
        code = example.replace("redis://127.0.0.1:6379", server.url) + CRAWL
        command = [sys.executable, "-c", code, pages.root]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=WITHIN)
        assert pages.visits() == dict.fromkeys(range(PAGES), 1)
        for which in ("added", "handled"):
            [key] = server.client.scan_iter(f"request_queues:*:{which}_bloom_filter")
            assert server.client.execute_command("BF.CARD", key) == PAGES
            # The page states this number.
            assert server.client.bf().info(key).capacity == 100_000
