"""Tests the dupefilter with a real server: what it does with requests, and when something fails."""

import asyncio
import logging
import threading
import time

import pytest
import redis
from crawls import ALL_SCHEDULERS, LASTING, SCHEDULERS_OF_QUEUES, SCRAPYS_OWN, crawl
from dupefilters import KEY, OTHER, PAGE, SAME, Quotes, info, rejection
from gates import opened
from oxbloom import FilterMismatchError
from oxbloom.scrapy import RFPDupeFilter, Scheduler
from scrapy import Request
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from servers import HOST, OXBLOOM, REDISBLOOM, running
from website import site


def test_requests_are_the_same_as_for_scrapy(dupefilter):
    seen = dupefilter()
    assert [seen.request_seen(request) for request in (PAGE, SAME, OTHER)] == [False, True, False]
    assert not seen.request_seen(PAGE.replace(method="POST"))


def test_they_can_be_created_before_the_crawler_has_its_spider(server):
    """Tests of projects, and those of scrapy-redis, do this."""
    settings = {"REDIS_URL": server.url, "SCHEDULER_PERSIST": True, **LASTING}
    spider = Quotes.from_crawler(get_crawler(Quotes, settings))
    for seen in (RFPDupeFilter.from_spider(spider), RFPDupeFilter.from_crawler(spider.crawler)):
        seen.clear()
        assert [seen.request_seen(PAGE) for _ in range(2)] == [False, True]
        assert seen.filter.keys == [KEY]

    async def schedule() -> None:
        scheduler = Scheduler.from_crawler(spider.crawler)
        scheduler.open(spider)
        assert [scheduler.enqueue_request(request) for request in (PAGE, OTHER)] == [False, True]
        assert scheduler.next_request().url == OTHER.url
        scheduler.close("finished")

    asyncio.run(schedule())


def test_the_projects_own_fingerprints_are_used(dupefilter):
    class Hosts:
        def fingerprint(self, request: Request) -> bytes:
            return request.url.split("/")[2].encode()

    seen = dupefilter(REQUEST_FINGERPRINTER_CLASS=Hosts)
    assert [seen.request_seen(request) for request in (PAGE, OTHER)] == [False, True]


@pytest.mark.parametrize("counting", [False, True])
def test_a_request_costs_one_command(server, dupefilter, counting):
    seen = dupefilter(BLOOMFILTER_COUNTING=counting)
    server.client.config_resetstat()
    for _ in range(2):
        for number in range(50):
            seen.request_seen(Request(f"https://example.com/{number}"))
    calls = {name: stats["calls"] for name, stats in server.client.info("commandstats").items()}
    assert {name: n for name, n in calls.items() if n > 2} == {"cmdstat_bf.insert": 100}


def test_a_filter_can_have_shards_and_a_server_of_its_own(server, dupefilter, spider):
    with running() as queue:
        elsewhere = {"REDIS_URL": queue.url, "BLOOMFILTER_REDIS_PARAMS": {"url": server.url}}
        seen = dupefilter(BLOOMFILTER_SHARDS=4, **elsewhere)
        assert not seen.request_seen(PAGE)
        assert seen.request_seen(SAME)
        assert queue.client.dbsize() == 0
    assert {key.decode() for key in server.client.scan_iter()} == set(seen.filter.keys)
    assert len(seen.filter.keys) == 4


def test_a_filter_with_other_options_is_an_error(server, spider, dupefilter, caplog):
    before, late = dupefilter(), dupefilter(BLOOMFILTER_ERROR_RATE=0.01)
    assert not before.request_seen(PAGE)
    # Both crawlers began before there was a filter.
    with pytest.raises(FilterMismatchError, match="an error rate of 1e-06"):
        late.request_seen(OTHER)
    with pytest.raises(FilterMismatchError):
        late.addition(OTHER)
    assert info(server, "ITEMS") == 1
    for settings, says in [
        ({"BLOOMFILTER_ERROR_RATE": 0.01}, "an error rate of 1e-06, but 0.01 was asked for"),
        ({"BLOOMFILTER_COUNTING": True}, "bits, but counters (COUNTING) was asked for"),
        (
            {"BLOOMFILTER_WINDOW": 60, "BLOOMFILTER_SLICES": 7, "BLOOMFILTER_REFRESH": True},
            "no window, but a window of 60 s (SLICES 7, REFRESH) was asked for",
        ),
    ]:
        quotes = spider(**settings)
        unusable = RFPDupeFilter.from_spider(quotes)
        assert says in rejection(unusable, quotes.crawler, caplog)
    assert server.client.exists(KEY)


@pytest.mark.parametrize(
    "left", [["SETBIT", KEY, 1, 1], ["SADD", KEY, "fingerprint"]], ids=["bitmap", "set"]
)
def test_another_value_at_the_key_is_an_error_unless_flushing_is_set(
    server, spider, dupefilter, caplog, left
):
    server.client.execute_command(*left)
    quotes = spider()
    unusable = RFPDupeFilter.from_spider(quotes)
    assert f"{KEY!r} holds no Bloom filter" in rejection(unusable, quotes.crawler, caplog)
    assert server.client.exists(KEY)
    assert not dupefilter(SCHEDULER_FLUSH_ON_START=True).request_seen(PAGE)


@ALL_SCHEDULERS
def test_missing_rights_to_create_filters_are_an_error_before_a_page_is_requested(
    server, tmp_path, settings
):
    server.client.acl_setuser(
        "reader", enabled=True, nopass=True, keys="*", commands=["+@all", "-bf.reserve"]
    )
    user = {"username": "reader", "password": "any"}
    reason = "queue_unusable" if settings is LASTING else "bloomfilter_unusable"
    with site() as pages, crawl(server, tmp_path, **settings, REDIS_PARAMS=user) as failed:
        crawler = failed.start("textbook", {"site": pages.root})
        assert "no permissions" in crawler.error(reason)
        assert pages.served == []
    server.client.acl_deluser("reader")


@pytest.mark.parametrize(
    ("settings", "key", "kept"),
    [
        ({}, None, False),
        ({"SCHEDULER_PERSIST": True}, "quotes:bloomfilter", True),
        ({"JOBDIR": "job", "SCHEDULER_PERSIST": True}, "quotes:bloomfilter", True),
        ({"SCHEDULER_DUPEFILTER_KEY": "seen:%(spider)s"}, "seen:quotes", False),
        (
            {"SCHEDULER_DUPEFILTER_KEY": "seen:%(spider)s", "SCHEDULER_PERSIST": True},
            "seen:quotes",
            True,
        ),
    ],
)
def test_with_scrapys_scheduler_the_filter_lasts_as_long_as_it_is_needed(
    server, spider, tmp_path, monkeypatch, settings, key, kept
):
    monkeypatch.chdir(tmp_path)
    one, other = (RFPDupeFilter.from_crawler(spider(**settings).crawler) for _ in range(2))
    assert not one.request_seen(PAGE)
    # If the settings do not determine the key, it is unique.
    assert other.request_seen(PAGE) is (key is not None)
    if key:
        assert one.filter.keys == [key]
    one.close("finished")
    assert bool(server.client.exists(*one.filter.keys)) is kept


def test_every_duplicate_is_logged_with_dupefilter_debug(server, tmp_path):
    with site() as pages, crawl(server, tmp_path, **SCRAPYS_OWN) as textbook:
        crawler = textbook.start("textbook", {"site": pages.root}, DUPEFILTER_DEBUG=True)
        crawler.finish()
    assert crawler.text().count("Filtered duplicate request") == 10


@ALL_SCHEDULERS
def test_a_server_without_the_module_is_one_clear_error_at_the_start(tmp_path, settings):
    with running() as bare, site() as pages, crawl(bare, tmp_path, **settings) as failed:
        crawler = failed.start("textbook", {"site": pages.root})
        assert crawler.error("bloomfilter_unusable").startswith(
            f"The crawl cannot start: the server {HOST}:{bare.port} (REDIS_URL) has no BF.* commands"
        )
        assert pages.served == []
        assert bare.client.dbsize() == 0


@SCHEDULERS_OF_QUEUES
def test_a_crawler_that_cannot_start_leaves_the_crawl_of_others_alone(server, tmp_path, settings):
    server.client.execute_command("BF.RESERVE", "textbook:bloomfilter", 0.01, 1000)
    server.client.zadd("textbook:requests", {"a request": 0})
    with site() as pages, crawl(server, tmp_path, **settings) as failed:
        failed.start("textbook", {"site": pages.root}).error("bloomfilter_unusable")
    assert server.client.zcard("textbook:requests") == 1
    assert server.client.exists("textbook:bloomfilter")


@pytest.mark.parametrize("counting", [False, True])
def test_a_request_whose_reply_is_lost_is_crawled(server, dupefilter, counting):
    with opened(server) as network:
        seen = dupefilter(BLOOMFILTER_COUNTING=counting, REDIS_URL=network.url)
        network.lose_a_reply()
        assert not seen.request_seen(OTHER)
        assert seen.stats.get_value("bloomfilter/uncertain") is None
        network.lose_a_reply()
        assert not seen.request_seen(PAGE)
        assert network.lost == 2
        assert seen.stats.get_value("bloomfilter/uncertain") == 1
        assert seen.request_seen(PAGE)


def test_it_waits_for_a_server_that_is_away(dupefilter, server, caplog, monkeypatch):
    seen = dupefilter(BLOOMFILTER_PATIENCE=0.5)
    server.kill()
    try:
        with pytest.raises(redis.ConnectionError), caplog.at_level(logging.WARNING):
            seen.request_seen(PAGE)
        assert caplog.text.count("does not answer") == 1
        # It waits and logs a line only once, since a page has many links.
        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", lambda _: pytest.fail("it waits again"))
            for _ in range(100):
                with pytest.raises(redis.ConnectionError):
                    seen.request_seen(PAGE)
                with pytest.raises(redis.ConnectionError):
                    seen.look_up([PAGE, OTHER])
    finally:
        server.start()
    assert not seen.request_seen(PAGE)


def test_a_request_that_did_not_reach_the_server_is_not_uncertain(dupefilter, server):
    seen = dupefilter()
    assert not seen.request_seen(PAGE)
    restart = threading.Timer(0.3, server.start)
    server.client.save()
    server.kill()
    restart.start()
    assert seen.request_seen(PAGE)
    restart.join()
    assert seen.stats.get_value("bloomfilter/uncertain") is None


@pytest.fixture
def counting(dupefilter) -> RFPDupeFilter:
    seen = dupefilter(BLOOMFILTER_COUNTING=True)
    for request in (PAGE, OTHER):
        assert not seen.request_seen(request)
    return seen


def test_a_request_is_forgotten_once_and_others_are_not(counting, server):
    request = SAME.copy()
    for _ in range(3):
        assert counting.request_seen(request)
    server.client.config_resetstat()
    assert counting.forget(request)
    assert not counting.forget(request)
    assert server.client.info("commandstats")["cmdstat_bf.mdel"]["calls"] == 1
    assert counting.request_seen(OTHER)
    assert not counting.request_seen(PAGE)
    assert counting.request_seen(PAGE)


def test_only_requests_that_the_filter_let_through_are_forgotten(counting):
    assert not counting.forget(Request(PAGE.url, dont_filter=True))
    assert counting.request_seen(PAGE)
    request = Request("https://example.com/c")
    assert not counting.request_seen(request)
    redirected = request.replace(url=OTHER.url, dont_filter=True)
    assert not counting.forget(redirected)
    assert counting.request_seen(OTHER)
    retry = request.replace(dont_filter=True)
    assert counting.forget(retry)
    assert not counting.forget(Response(PAGE.url).request)
    assert not counting.request_seen(request)


def test_forgetting_takes_a_counting_filter(dupefilter):
    seen = dupefilter()
    assert not seen.request_seen(PAGE)
    with pytest.raises(ValueError, match="BLOOMFILTER_COUNTING"):
        seen.forget(PAGE)


def test_the_filter_can_be_in_a_module_with_a_prefix(dupefilter):
    with running(REDISBLOOM, "--loadmodule", OXBLOOM, "prefix", "OX") as server:
        seen = dupefilter(REDIS_URL=server.url, BLOOMFILTER_PREFIX="OX")
        assert not seen.request_seen(PAGE)
        assert seen.request_seen(SAME)
        assert server.client.execute_command("OXBF.CARD", KEY) == 1
        assert seen.addition(OTHER)[0] == "OXBF.INSERT"
