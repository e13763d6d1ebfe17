"""Crawls whose filter forgets: a page is crawled again when its window is over, and not before.

One test waits for that, with a short window. The others set the module's clock with BF.CLOCK, a command for tests, so
that the results do not depend on the duration of a crawl.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from cluster import Cluster, running_cluster
from crawls import (
    ALL_SCHEDULERS,
    LASTING,
    LEASE,
    SCHEDULERS_OF_QUEUES,
    SCRAPYS_OWN,
    Crawl,
    crawl,
    pages_in_flight,
)
from oxbloom import ShardedFilter
from servers import OXBLOOM, OXBLOOM_WITH_CLOCK, ROOT, WITHIN, Server, running, wait_until
from website import Site, site

PAGE = (ROOT / "docs/crawling.md").read_text()

HOUR = timedelta(hours=1)
BEGIN = timedelta(seconds=1_800_000_000)
NOW = timedelta()
KEY = "follow:bloomfilter"
SHARDS = 16
PAGES = 20
CRAWLERS = 2


def settings_of_the_page() -> dict[str, Any]:
    """Returns the settings that docs/crawling.md gives for crawling pages again."""
    section = PAGE.split("## Crawl pages again")[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block
    settings: dict[str, Any] = {}
    exec(block[1], {}, settings)  # noqa: S102
    return settings


WEEKLY = settings_of_the_page()
WINDOW = timedelta(seconds=WEEKLY["BLOOMFILTER_WINDOW"])
REMEMBERED = WINDOW - HOUR
FORGOTTEN = WINDOW + WINDOW / 8 + HOUR


@pytest.fixture(scope="module")
def server_with_clock() -> Iterator[Server]:
    with running(OXBLOOM_WITH_CLOCK) as server:
        yield server


@pytest.fixture
def server(server_with_clock: Server) -> Server:
    server_with_clock.client.flushall()
    set_clock(server_with_clock, NOW)
    return server_with_clock


def set_clock(server: Server, ahead: timedelta, key: str = "any") -> None:
    """Stops the clock of forgetting filters at this time after BEGIN. In a cluster, the server must serve the key."""
    milliseconds = (BEGIN + ahead) // timedelta(milliseconds=1)
    assert server.client.execute_command("BF.CLOCK", key, milliseconds) == b"OK"


def crawled_by(crawl: Crawl, *urls: str, crawlers: int = 1, **settings: Any) -> Counter[int]:
    """Crawls from some pages with several crawlers, which start at the same moment. Returns how often they crawled each
    page."""
    before = crawl.crawled()
    crawl.flag.unlink(missing_ok=True)
    running = [crawl.follow(*urls, **settings) for _ in range(crawlers)]
    crawl.go()
    for crawler in running:
        crawler.finish()
    return crawl.crawled() - before


def once(pages: Site) -> Counter[int]:
    return Counter(range(pages.pages))


def every_url(pages: Site) -> list[str]:
    return [pages.url(page) for page in range(pages.pages)]


@ALL_SCHEDULERS
def test_a_page_is_crawled_again_after_the_window_and_not_before(server, tmp_path, settings):
    lasts = (
        {"JOBDIR": tmp_path / "job", "SCHEDULER_PERSIST": False} if settings is SCRAPYS_OWN else {}
    )
    with (
        site(PAGES) as pages,
        crawl(server, tmp_path, **{**WEEKLY, **settings, **lasts}) as weekly,
    ):
        urls = every_url(pages)
        assert crawled_by(weekly, *urls) == once(pages)
        set_clock(server, REMEMBERED)
        assert crawled_by(weekly, *urls) == Counter()
        set_clock(server, FORGOTTEN)
        assert crawled_by(weekly, *urls) == once(pages)
        # The last crawl has added the items again. Their new window begins there.
        set_clock(server, FORGOTTEN + REMEMBERED)
        assert crawled_by(weekly, *urls) == Counter()
        set_clock(server, 2 * FORGOTTEN)
        assert crawled_by(weekly, pages.url(0)) == once(pages)
        assert pages.visits() == weekly.crawled()


def test_a_page_is_crawled_again_after_a_short_window_by_the_servers_own_clock(tmp_path):
    def now() -> float:
        seconds, microseconds = server.client.time()
        return seconds + microseconds / 1e6

    settings = {**LASTING, "SCHEDULER_PERSIST": True}
    with running(OXBLOOM) as server, site(PAGES) as pages:
        urls = every_url(pages)
        # On any machine, two crawls take less time than one of these windows.
        for window in (10, 20, 40, 80, 160):
            server.client.flushall()
            folder = tmp_path / str(window)
            folder.mkdir()
            with crawl(server, folder, **settings, BLOOMFILTER_WINDOW=window) as short:
                began = now()
                crawls = [crawled_by(short, *urls) for _ in range(2)]
                if now() - began >= window:
                    continue
                assert crawls == [once(pages), Counter()]
                wait_until(lambda: server.client.execute_command("BF.CARD", KEY) == 0)
                assert began + window <= now() <= began + 1.125 * window + WITHIN
                assert set(crawled_by(short, *urls)) == set(range(PAGES))
                return
        pytest.fail("two crawls took longer than the longest window")


def test_pages_that_lead_to_the_others_can_be_crawled_each_time(server, tmp_path):
    with site(PAGES) as pages, crawl(server, tmp_path, **LASTING, **WEEKLY) as weekly:
        for when, expected in [
            (NOW, once(pages)),
            (REMEMBERED, Counter()),
            (FORGOTTEN, once(pages)),
        ]:
            set_clock(server, when)
            crawled = crawled_by(weekly, pages.url(0), always="yes")
            # The first request bypasses the filter, so it is crawled each time, and a link to its page is not a
            # duplicate of it.
            assert crawled == expected + Counter({0: 1})


@pytest.mark.parametrize("refresh", [False, True])
def test_with_refresh_a_page_is_crawled_again_when_it_was_not_met_for_a_window(
    server, tmp_path, refresh
):
    settings = {**LASTING, **WEEKLY, "BLOOMFILTER_REFRESH": refresh}
    with site(PAGES) as pages, crawl(server, tmp_path, **settings) as refreshed:
        urls = every_url(pages)
        met, others = set(range(0, PAGES, 2)), set(range(1, PAGES, 2))
        assert crawled_by(refreshed, *urls) == once(pages)
        set_clock(server, REMEMBERED)
        assert crawled_by(refreshed, *[urls[page] for page in met]) == Counter()
        set_clock(server, FORGOTTEN)
        assert crawled_by(refreshed, *urls) == Counter(others | (set() if refresh else met))
        # All pages are met once more.
        set_clock(server, FORGOTTEN + REMEMBERED)
        assert crawled_by(refreshed, *urls) == Counter()
        set_clock(server, FORGOTTEN + REMEMBERED + FORGOTTEN)
        assert crawled_by(refreshed, *urls) == once(pages)


@SCHEDULERS_OF_QUEUES
def test_crawlers_that_share_a_filter_crawl_each_page_once_a_window(server, tmp_path, settings):
    settings = {**settings, **WEEKLY, "BLOOMFILTER_SLICES": 2}
    forgotten = WINDOW + WINDOW / 2 + HOUR
    with site() as pages, crawl(server, tmp_path, **settings) as shared:
        urls = every_url(pages)[:20]
        for number in range(3):
            set_clock(server, number * forgotten)
            assert crawled_by(shared, *urls, crawlers=CRAWLERS) == once(pages)
            set_clock(server, number * forgotten + REMEMBERED)
            assert crawled_by(shared, *urls, crawlers=CRAWLERS) == Counter()
        assert pages.visits() == shared.crawled()


def test_a_crawler_that_is_killed_loses_nothing_and_crawls_nothing_twice_in_a_window(
    server, tmp_path
):
    settings = {**LASTING, **WEEKLY, "SCHEDULER_LEASE": LEASE}
    with site(delay=0.2) as pages, crawl(server, tmp_path, **settings) as killed:
        times: Counter[int] = Counter()
        for number in range(2):
            begin = 2 * number * FORGOTTEN
            set_clock(server, begin)
            killed.flag.unlink(missing_ok=True)
            crawler = killed.follow(pages.url(0))
            killed.go()
            wait_until(
                lambda: (
                    (killed.crawled() - times).total() > 0.3 * pages.pages  # noqa: B023
                    and pages.serving["page"] > 3
                )
            )
            crawler.kill()
            in_flight = pages_in_flight(server)
            assert in_flight
            assert len(killed.crawled() - times) < pages.pages

            set_clock(server, begin + REMEMBERED)
            crawled_by(killed, pages.url(0))
            crawled = killed.crawled() - times
            assert set(crawled) == set(range(pages.pages))
            assert {page for page, n in crawled.items() if n > 1} <= in_flight
            assert max(crawled.values()) <= 2
            times = killed.crawled()


def test_a_filter_over_a_cluster_forgets_wherever_its_shards_are(tmp_path):
    def set_all_clocks(cluster: Cluster, ahead: timedelta) -> None:
        for server in cluster.primaries():
            set_clock(server, ahead, next(cluster.tags_of(server)))

    with running_cluster(OXBLOOM_WITH_CLOCK) as cluster, site() as pages:
        settings = {
            "REDIS_URL": cluster.servers[0].url,
            "REDIS_PARAMS": {"redis_cls": "redis.cluster.RedisCluster"},
            "BLOOMFILTER_SHARDS": SHARDS,
        }
        seen = ShardedFilter(
            cluster.client(), KEY, shards=SHARDS, window=WEEKLY["BLOOMFILTER_WINDOW"]
        )
        with crawl(cluster.servers[0], tmp_path, **LASTING, **WEEKLY, **settings) as sharded:
            urls = every_url(pages)[:20]
            set_all_clocks(cluster, NOW)
            assert crawled_by(sharded, *urls, crawlers=CRAWLERS) == once(pages)
            assert seen.reserve() is False
            cluster.shuffle(seen.keys)
            set_all_clocks(cluster, REMEMBERED)
            assert crawled_by(sharded, *urls, crawlers=CRAWLERS) == Counter()
            set_all_clocks(cluster, FORGOTTEN)
            assert crawled_by(sharded, *urls, crawlers=CRAWLERS) == once(pages)
            assert seen.reserve() is False
            assert pages.visits() == sharded.crawled()


@pytest.mark.parametrize(
    ("lasts", "flushed"), [(False, False), (True, False), (True, True)], ids=str
)
@ALL_SCHEDULERS
def test_a_filter_that_does_not_outlast_a_crawl_causes_a_warning_and_one_that_is_flushed_is_created_again(
    server, tmp_path, settings, lasts, flushed
):
    how = {"SCHEDULER_PERSIST": lasts, "SCHEDULER_FLUSH_ON_START": flushed}
    with site(PAGES) as pages, crawl(server, tmp_path, **{**WEEKLY, **settings, **how}) as short:
        assert crawled_by(short, pages.url(0)) == once(pages)
        warning = "WARNING: BLOOMFILTER_WINDOW is of use during this crawl only"
        assert short.crawlers[0].text().count(warning) == (0 if lasts else 1)
        if lasts:
            (window,) = server.client.execute_command("BF.INFO", KEY, "WINDOW")
            assert window == WEEKLY["BLOOMFILTER_WINDOW"]
        else:
            assert server.client.keys() == []
        again = once(pages) if flushed or not lasts else Counter()
        assert crawled_by(short, pages.url(0)) == again
