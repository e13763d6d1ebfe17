"""Crawls whose filter forgets: a page is crawled again when its window is over, and not before.

The tests set the module's clock with BF.CLOCK, a command for tests, so that the results do not depend on the duration
of a crawl.
"""

from collections import Counter
from collections.abc import Iterator

import pytest
from crawls import ALL_SCHEDULERS, SCRAPYS_OWN, Crawl, crawl, settings_of_the_page
from servers import OXBLOOM_WITH_CLOCK, Server, running, set_clock
from website import Site, site

KEY = "follow:bloomfilter"
PAGES = 20
WEEKLY = settings_of_the_page("Crawl pages again")
WINDOW = WEEKLY["BLOOMFILTER_WINDOW"]
# Times in seconds, by the server's clock. A page is forgotten at most one of eight slices late.
HOUR = 3600
BEGIN = 1_800_000_000
REMEMBERED = WINDOW - HOUR
FORGOTTEN = WINDOW + WINDOW // 8 + HOUR


@pytest.fixture(scope="module")
def server_with_clock() -> Iterator[Server]:
    with running(OXBLOOM_WITH_CLOCK) as server:
        yield server


@pytest.fixture
def server(server_with_clock: Server) -> Server:
    server_with_clock.client.flushall()
    set_clock(server_with_clock, BEGIN)
    return server_with_clock


def crawled_by(crawl: Crawl, *urls: str) -> Counter[int]:
    """Crawls from some pages. Returns how often each page was crawled."""
    before = crawl.crawled()
    crawl.go()
    crawl.follow(*urls).finish()
    return crawl.crawled() - before


def once(pages: Site) -> Counter[int]:
    return Counter(range(pages.pages))


@ALL_SCHEDULERS
def test_a_page_is_crawled_again_after_the_window_and_not_before(server, tmp_path, settings):
    lasts = (
        {"JOBDIR": tmp_path / "job", "SCHEDULER_PERSIST": False} if settings is SCRAPYS_OWN else {}
    )
    with (
        site(PAGES) as pages,
        crawl(server, tmp_path, **{**WEEKLY, **settings, **lasts}) as weekly,
    ):
        urls = list(map(pages.url, range(PAGES)))
        assert crawled_by(weekly, *urls) == once(pages)
        set_clock(server, BEGIN + REMEMBERED)
        assert crawled_by(weekly, *urls) == Counter()
        set_clock(server, BEGIN + FORGOTTEN)
        assert crawled_by(weekly, *urls) == once(pages)
        # The last crawl has added the items again. Their new window begins there.
        set_clock(server, BEGIN + FORGOTTEN + REMEMBERED)
        assert crawled_by(weekly, *urls) == Counter()
        set_clock(server, BEGIN + 2 * FORGOTTEN)
        assert crawled_by(weekly, pages.url(0)) == once(pages)
        assert pages.visits() == weekly.crawled()


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
            assert window == WINDOW
        else:
            assert server.client.keys() == []
        again = once(pages) if flushed or not lasts else Counter()
        assert crawled_by(short, pages.url(0)) == again
