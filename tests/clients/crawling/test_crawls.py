"""Real crawls of a real site with a real server: each page is crawled once, and none is missing."""

from collections.abc import Callable

import pytest
import website
from crawls import (
    ALL_SCHEDULERS,
    IN_FLIGHT,
    LASTING,
    LEASE,
    PLAIN,
    SCHEDULERS_OF_QUEUES,
    WITH_AND_WITHOUT_LOOK_UPS,
    Crawl,
    Crawler,
    crawl,
    every_page_once,
    pages_in_flight,
    thorough,
)
from servers import OXBLOOM, WITHIN, Server, running, wait_until
from website import Site, site

STARTS = 40  # pages that all crawlers of a crawl begin with
DURABLE = ["--appendonly", "yes", "--appendfsync", "always"]


def together(crawl: Crawl, site: Site, crawlers: int) -> list[dict]:
    """Starts crawlers at the same moment, from the same pages. Returns their stats."""
    urls = [site.url(page) for page in range(STARTS)]
    running = [crawl.follow(*urls) for _ in range(crawlers)]
    crawl.go()
    return [crawler.finish() for crawler in running]


@ALL_SCHEDULERS
def test_of_0_to_9_and_0_to_99_the_second_ten_are_filtered(server, tmp_path, settings):
    with site() as pages, crawl(server, tmp_path, **settings) as textbook:
        crawler = textbook.start("textbook", {"site": pages.root})
        stats = crawler.finish()
    assert stats["downloader/request_count"] == 100
    assert stats["bloomfilter/filtered"] == 10
    assert sorted(textbook.crawled().items()) == [(page, 1) for page in range(100)]
    assert crawler.text().count("Filtered duplicate request") == 1
    assert "no more duplicates will be shown" in crawler.text()


@SCHEDULERS_OF_QUEUES
@WITH_AND_WITHOUT_LOOK_UPS
def test_a_projects_own_filter_is_used(server, tmp_path, settings, links):
    own = {**settings, **links, "DUPEFILTER_CLASS": "spiders.WithoutSeven"}
    with site(pages=100) as pages, crawl(server, tmp_path, **own) as one:
        one.go()
        one.follow(pages.url(0)).finish()
        assert 7 not in one.crawled()
        assert set(one.crawled().values()) == {1}


@pytest.mark.parametrize("crawlers", [thorough(2), 4])
@SCHEDULERS_OF_QUEUES
@WITH_AND_WITHOUT_LOOK_UPS
def test_crawlers_of_one_queue_crawl_every_page_once(server, tmp_path, settings, links, crawlers):
    settings = {**settings, **links, "SCHEDULER_PERSIST": True}
    with site() as pages, crawl(server, tmp_path, **settings) as many:
        stats = together(many, pages, crawlers)
        every_page_once(many, pages)
    assert all(one["item_scraped_count"] > 0 for one in stats)
    assert server.client.execute_command("BF.CARD", "follow:bloomfilter") >= pages.pages


def test_nothing_is_lost_or_crawled_twice_when_a_crawl_is_stopped_and_resumed(server, tmp_path):
    persist = {"SCHEDULER_PERSIST": True, **PLAIN}
    with site(delay=0.2) as pages, crawl(server, tmp_path, **persist) as stopped:
        for share in (0.2, 0.5):
            crawler = stopped.follow(pages.url(0))
            stopped.go()
            wait_until(lambda: len(stopped.crawled()) > share * pages.pages)  # noqa: B023
            crawler.interrupt()
            assert crawler.finish()["finish_reason"] == "shutdown"
        assert len(stopped.crawled()) < pages.pages
        crawler = stopped.follow(pages.url(0))
        crawler.finish()
        assert "Resuming crawl" in crawler.text()
        every_page_once(stopped, pages)


def test_a_crawler_that_is_stopped_leaves_the_crawl_to_the_others(server, tmp_path):
    with site(delay=0.3) as pages, crawl(server, tmp_path, **LASTING) as shared:
        stopped, goes_on = (shared.follow(pages.url(0)) for _ in range(2))
        shared.go()
        wait_until(lambda: len(shared.crawled()) > 0.3 * pages.pages)
        stopped.interrupt()
        assert stopped.finish()["finish_reason"] == "shutdown"
        assert server.client.exists("follow:bloomfilter")
        assert goes_on.finish()["finish_reason"] == "finished"
        every_page_once(shared, pages)
        assert server.client.keys() == []


def until_pages_are_in_flight(crawl: Crawl, site: Site, share: float) -> None:
    """Waits until this share of the pages has been crawled, and more than three other pages are in flight."""
    wait_until(lambda: len(crawl.crawled()) > share * site.pages and site.serving["page"] > 3)


def test_nothing_is_lost_and_only_what_was_in_flight_is_crawled_twice_when_all_are_killed(tmp_path):
    settings = {**LASTING, "SCHEDULER_PERSIST": True, "SCHEDULER_LEASE": LEASE}
    with (
        running(OXBLOOM, *DURABLE) as server,
        site(delay=0.4) as pages,
        crawl(server, tmp_path, **settings) as killed,
    ):
        in_flight: list[set[int]] = []

        def run_until(share: float) -> Crawler:
            crawler = killed.follow(pages.url(0))
            killed.go()
            until_pages_are_in_flight(killed, pages, share)
            return crawler

        crawler = run_until(0.15)
        crawler.interrupt()
        wait_until(lambda: "Send again to force" in crawler.text())
        crawler.interrupt()
        crawler.process.wait(WITHIN)
        in_flight.append(pages_in_flight(server))

        crawler = run_until(0.4)
        crawler.kill()
        in_flight.append(pages_in_flight(server))

        run_until(0.6)
        server.kill()
        server.start()
        until_pages_are_in_flight(killed, pages, 0.75)
        killed.crawlers[-1].kill()
        in_flight.append(pages_in_flight(server))
        server.kill()
        server.start()

        killed.follow(pages.url(0)).finish()
        crawled = killed.crawled()
        assert all(in_flight), "no page was in flight when a crawler was killed"
        assert set(crawled) == set(range(pages.pages))
        often = {page: sum(page in pages for pages in in_flight) for page in crawled}
        assert {page: n for page, n in crawled.items() if n > 1 + often[page]} == {}
        assert server.client.exists(IN_FLIGHT) == 0


@SCHEDULERS_OF_QUEUES
def test_crawlers_that_are_fed_by_redis_share_what_they_have_seen(server, tmp_path, settings):
    with (
        site(pages=100) as pages,
        crawl(server, tmp_path, SCHEDULER_PERSIST=True, **settings) as fed,
    ):
        server.client.rpush(
            "fed:start_urls", *(f'{{"url": "{pages.url(page)}"}}' for page in (0, 1))
        )
        running = [fed.start("fed", {}) for _ in range(2)]
        for crawler in running:
            crawler.finish()
        # In scrapy-redis, URLs from the list bypass the filter. They may be crawled again when a link leads to them.
        times = fed.crawled()
        assert {times.pop(0), times.pop(1)} <= {1, 2}
        assert dict(times) == dict.fromkeys(range(2, pages.pages), 1)


# Faults that keep a crawler from storing requests.
FAULTS: dict[str, Callable[[Server], object]] = {
    "server away": Server.kill,
    "server full": lambda server: server.client.config_set("maxmemory", 1),
    "filter cannot grow": lambda server: server.client.config_set("bf.filter-memory-limit", 1),
}


def end_fault(server: Server) -> None:
    if server.ended():
        server.start()
    for setting in ("maxmemory", "bf.filter-memory-limit"):
        server.client.config_set(setting, 0)


@pytest.mark.parametrize(
    "elsewhere", [pytest.param(False, id="one step"), thorough(True, id="several steps")]
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_crawler_that_cannot_store_requests_stops_and_nothing_is_lost(
    tmp_path, monkeypatch, fault, elsewhere
):
    monkeypatch.setattr(website, "LINKS", 0)  # so that each page is linked to once
    impatient = {"BLOOMFILTER_PATIENCE": 1, "SCHEDULER_LEASE": LEASE}
    # The filter is small enough to grow, and its error rate too low for false positives.
    size = {"BLOOMFILTER_CAPACITY": 30, "BLOOMFILTER_SHARDS": 4, "BLOOMFILTER_ERROR_RATE": 1e-15}
    settings = {**LASTING, "SCHEDULER_PERSIST": True, **size, **impatient}
    with (
        running(OXBLOOM, *DURABLE) as server,
        site(delay=0.2) as pages,
        crawl(server, tmp_path, **settings) as stopped,
    ):
        if elsewhere:
            stopped.settings["BLOOMFILTER_REDIS_PARAMS"] = {"url": server.url}
        crawler = stopped.follow(pages.url(0))
        stopped.go()
        until_pages_are_in_flight(stopped, pages, 0.1)
        FAULTS[fault](server)
        assert crawler.error("queue_unusable").startswith("The crawler stops")
        end_fault(server)
        in_flight = pages_in_flight(server)
        assert in_flight
        stopped.follow(pages.url(0)).finish()
        crawled = stopped.crawled()
        assert set(crawled) == set(range(pages.pages))
        assert {page for page, times in crawled.items() if times > 1} <= in_flight
        assert server.client.exists(IN_FLIGHT) == 0


@pytest.mark.parametrize(("again", "missing"), [("now", set()), ("unforgotten", {7, 60, 61})])
@ALL_SCHEDULERS
@WITH_AND_WITHOUT_LOOK_UPS
def test_pages_that_are_forgotten_are_crawled_again(
    server, tmp_path, settings, links, again, missing
):
    settings = {**settings, **links, "BLOOMFILTER_COUNTING": True}
    with site(pages=100) as pages, crawl(server, tmp_path, **settings) as banned:
        pages.bans.update({7: 1, 60: 2, 61: 1})
        crawler = banned.follow(pages.url(0), again=again)
        banned.go()
        stats = crawler.finish()
        assert set(range(pages.pages)) - set(banned.crawled()) == missing
        assert set(banned.crawled().values()) == {1}
        assert stats.get("forgotten/True", 0) == (0 if missing else 4)
