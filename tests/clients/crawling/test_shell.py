"""`scrapy shell` works in a project with our dupefilter and scheduler, also without a server, and leaves nothing. A
crawl without new requests leaves nothing either.

With scrapy-redis's own scheduler, the shell hangs, whatever the dupefilter: it waits for the request object that it
scheduled, which never comes back from Redis.
"""

import subprocess
import sys
from typing import Any

import pytest
from crawls import (
    ALL_SCHEDULERS,
    HERE,
    LASTING,
    LOOKING_UP,
    SCRAPYS_OWN,
    crawl,
    environment,
    options,
)
from servers import HOST, WITHIN, free_port
from website import site

IN_SHELLS = pytest.mark.parametrize("settings", [LASTING, SCRAPYS_OWN], ids=["lasting", "scrapy"])

# Requests without `dont_filter` reach the dupefilter. A shell fetches them, however often.
AGAIN = "fetch(scrapy.Request(response.url))"


def shell(url: str, code: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Evaluates code in a shell that has fetched a URL for a spider without callbacks."""
    command = [sys.executable, "-m", "scrapy", "shell", "--spider", "silent", "-c", code, url]
    return subprocess.run(
        command + options({**settings, "ITEM_PIPELINES": {}}),
        cwd=HERE / "project",
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )


@IN_SHELLS
def test_a_shell_fetches_pages_and_leaves_nothing(server, settings):
    with site() as pages:
        settings = {**settings, **LOOKING_UP, "REDIS_URL": server.url, "SCHEDULER_PERSIST": True}
        done = shell(pages.url(0), f"{AGAIN} or {AGAIN} or response.status", **settings)
        assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr
        assert len(pages.served) == 3
    assert server.client.keys() == []


@IN_SHELLS
def test_a_shell_needs_no_server(settings):
    with site() as pages:
        url = f"redis://{HOST}:{free_port()}"
        done = shell(pages.url(0), "response.status", REDIS_URL=url, **settings)
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr
    assert "Traceback" not in done.stderr


@ALL_SCHEDULERS
def test_a_crawl_without_requests_leaves_nothing(server, tmp_path, settings):
    with crawl(server, tmp_path, **settings, SCHEDULER_PERSIST=True) as empty:
        assert empty.start("silent", {}).finish()["finish_reason"] == "finished"
    assert server.client.keys() == []


@ALL_SCHEDULERS
def test_a_spider_without_callbacks_ends_and_leaves_only_what_it_has_seen(
    server, tmp_path, settings
):
    with site() as pages, crawl(server, tmp_path, **settings, SCHEDULER_PERSIST=True) as silent:
        silent.start("silent", {"url": pages.url(0)}).finish()
        assert len(pages.served) == 1
    assert server.client.keys() == [b"silent:bloomfilter"]
