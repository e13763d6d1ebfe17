"""Tests the dupefilter with a real server: the effects of its settings, and what it does when something fails."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import redis
from crawls import (
    ALL_SCHEDULERS,
    LASTING,
    PLAIN,
    SCHEDULERS_OF_QUEUES,
    SCRAPYS_OWN,
    crawl,
    thorough,
)
from oxbloom.scrapy import RFPDupeFilter
from proxy import proxy
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler
from servers import OXBLOOM, REDISBLOOM, Server, running
from website import site

KEY = "quotes:bloomfilter"
PAGE = Request("https://example.com/a?x=1&y=2")
SAME = Request("https://example.com/a?y=2&x=1#top")
OTHER = Request("https://example.com/b")


class Quotes(Spider):
    name = "quotes"


@pytest.fixture
def spider(server: Server) -> Callable[..., Spider]:
    def spider(**settings: Any) -> Spider:
        settings = {"REDIS_URL": server.url, "LOGSTATS_INTERVAL": 0, **settings}
        crawler = get_crawler(Quotes, settings)
        crawler.spider = Quotes.from_crawler(crawler)
        return crawler.spider

    return spider


@pytest.fixture
def dupefilter(spider: Callable[..., Spider]) -> Callable[..., RFPDupeFilter]:
    return lambda **settings: RFPDupeFilter.from_spider(spider(**settings))


def info(server: Server, field: str, key: str = KEY) -> Any:
    return server.client.execute_command("BF.INFO", key, field)[-1]


@pytest.mark.parametrize(
    ("settings", "capacity", "error_rate"),
    [
        ({}, 1_000_000, 1e-6),
        ({"BLOOMFILTER_CAPACITY": "5000"}, 5000, 1e-6),
        ({"BLOOMFILTER_ERROR_RATE": "0.001"}, 1_000_000, 0.001),
        # The textbook formula: m ln 2 / k items at the rate 2^-k.
        ({"BLOOMFILTER_BIT": 20, "BLOOMFILTER_HASH_NUMBER": 8}, 90_852, 1 / 256),
        ({"BLOOMFILTER_BIT": 10}, 118, 1 / 64),
        ({"BLOOMFILTER_HASH_NUMBER": 10}, 74_426_111, 1 / 1024),
        ({"BLOOMFILTER_BIT": 20, "BLOOMFILTER_CAPACITY": 7}, 7, 1 / 64),
        # Numbers as people write them.
        ({"BLOOMFILTER_CAPACITY": "2e6", "BLOOMFILTER_ERROR_RATE": "0.1%"}, 2_000_000, 0.001),
        ({"BLOOMFILTER_CAPACITY": 5e3, "BLOOMFILTER_ERROR_RATE": " 1 % "}, 5000, 0.01),
    ],
)
def test_the_filter_is_as_large_as_the_settings_say(
    server, dupefilter, settings, capacity, error_rate
):
    dupefilter(**settings)
    assert info(server, "CAPACITY") == capacity
    assert float(info(server, "ERROR")) == pytest.approx(error_rate, rel=1e-12)
    assert info(server, "LAYOUT") == b"native"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BLOOMFILTER_CAPACITY", 0),
        ("BLOOMFILTER_CAPACITY", "many"),
        ("BLOOMFILTER_CAPACITY", 2**63),
        ("BLOOMFILTER_CAPACITY", "inf"),
        ("BLOOMFILTER_ERROR_RATE", 0),
        ("BLOOMFILTER_ERROR_RATE", 1),
        ("BLOOMFILTER_ERROR_RATE", "nan"),
        ("BLOOMFILTER_BIT", 0),
        ("BLOOMFILTER_BIT", 1000),
        ("BLOOMFILTER_HASH_NUMBER", 0),
        ("BLOOMFILTER_SHARDS", 0),
        ("BLOOMFILTER_SHARDS", 16385),
        ("BLOOMFILTER_PATIENCE", -1),
        ("SCHEDULER_LEASE", 0),
    ],
)
def test_an_error_names_the_setting_that_makes_no_sense(server, spider, caplog, name, value):
    quotes = spider(**{name: value})
    unusable = RFPDupeFilter.from_spider(quotes)
    assert rejection(unusable, quotes.crawler, caplog).startswith(
        f"The crawl cannot start: {name} must be a number from "
    )
    assert server.client.dbsize() == 0


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SCHEDULER_DUPEFILTER_KEY", "%(name)s:seen", "a text in which %(spider)s"),
        ("SCHEDULER_DUPEFILTER_KEY", "100% seen", "a text in which %(spider)s"),
        ("SCHEDULER_DUPEFILTER_KEY", "%(spider)d", "a text in which %(spider)s"),
        ("SCHEDULER_DUPEFILTER_KEY", 7, "a text in which %(spider)s"),
        ("SCHEDULER_PERSIST", "maybe", "True or False"),
        ("SCHEDULER_FLUSH_ON_START", "maybe", "True or False"),
        ("DUPEFILTER_DEBUG", "maybe", "True or False"),
        ("BLOOMFILTER_COUNTING", "maybe", "True or False"),
        ("BLOOMFILTER_REFRESH", "maybe", "True or False"),
        ("BLOOMFILTER_WINDOW", "7 days", "a whole number of seconds"),
        ("REDIS_PARAMS", "localhost", "a dict"),
        ("REDIS_PARAMS", 6379, "a dict"),
        ("BLOOMFILTER_REDIS_PARAMS", ["localhost"], "a dict"),
    ],
)
@pytest.mark.parametrize(
    "create", [RFPDupeFilter.from_spider, lambda spider: RFPDupeFilter.from_crawler(spider.crawler)]
)
def test_an_error_names_the_setting_that_cannot_be_read(
    server, spider, caplog, name, value, says, create
):
    quotes = spider(**{name: value})
    unusable = create(quotes)
    assert rejection(unusable, quotes.crawler, caplog).startswith(
        f"The crawl cannot start: {name} must be {says}"
    )
    assert server.client.dbsize() == 0


def test_each_job_of_a_spider_has_its_own_filter_which_it_keeps_when_it_is_resumed(
    server, spider, tmp_path
):
    def job(name: str) -> RFPDupeFilter:
        return RFPDupeFilter.from_crawler(spider(JOBDIR=str(tmp_path / name)).crawler)

    first, second = job("first"), job("second")
    assert [each.request_seen(PAGE) for each in (first, second)] == [False, False]
    first.close("shutdown")
    assert [each.request_seen(PAGE) for each in (job("first"), job("third"))] == [True, False]


def test_a_jobdir_that_cannot_be_written_is_an_error(spider, tmp_path, caplog):
    (tmp_path / "file").touch()
    quotes = spider(JOBDIR=str(tmp_path / "file"))
    unusable = RFPDupeFilter.from_crawler(quotes.crawler)
    assert "JOBDIR must be a folder" in rejection(unusable, quotes.crawler, caplog)


def test_a_start_is_one_line_with_the_key_the_server_the_fill_and_the_rate(
    server, dupefilter, caplog
):
    caplog.set_level(logging.INFO, "oxbloom")
    dupefilter(BLOOMFILTER_CAPACITY=50, BLOOMFILTER_HASH_NUMBER=6).request_seen(PAGE)
    caplog.clear()
    dupefilter(BLOOMFILTER_CAPACITY=50, BLOOMFILTER_HASH_NUMBER=6)
    place = f"{server.url.removeprefix('redis://')} (REDIS_URL)"
    assert [record.message for record in caplog.records if record.name.startswith("oxbloom")] == [
        f"Bloom filter {KEY!r} on the server {place}: 1 requests, 2 % full, error rate 1.56 %"
    ]


def test_a_user_who_may_not_read_the_filter_gets_no_line(server, dupefilter, caplog):
    caplog.set_level(logging.INFO, "oxbloom")
    server.client.acl_setuser(
        "adder", enabled=True, nopass=True, keys="*", commands=["+@all", "-bf.info"]
    )
    assert not dupefilter(REDIS_PARAMS={"username": "adder", "password": "any"}).request_seen(PAGE)
    assert not [record for record in caplog.records if record.name.startswith("oxbloom")]
    server.client.acl_deluser("adder")


def test_a_missing_password_is_an_error_that_names_the_server_and_the_setting(
    server, spider, caplog
):
    server.client.config_set("requirepass", "secret")
    try:
        quotes = spider()
        unusable = RFPDupeFilter.from_spider(quotes)
        told = rejection(unusable, quotes.crawler, caplog)
    finally:
        redis.Redis.from_url(server.url, password="secret").config_set("requirepass", "")
    place = f"{server.url.removeprefix('redis://')} (REDIS_URL)"
    assert told.startswith(f"The crawl cannot start: the server {place} rejects the connection: ")


YEARS = timedelta(days=36_525)  # a hundred


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"BLOOMFILTER_WINDOW": 7 * 24 * 3600}, [604_800, 15, 0]),
        # A setting from the command line is a string.
        ({"BLOOMFILTER_WINDOW": "60", "BLOOMFILTER_REFRESH": "True"}, [60, 15, 1]),
        ({"BLOOMFILTER_WINDOW": "60", "BLOOMFILTER_SLICES": "64"}, [60, 64, 0]),
        ({"BLOOMFILTER_WINDOW": timedelta(days=1), "BLOOMFILTER_SLICES": 2}, [86_400, 2, 0]),
        ({"BLOOMFILTER_WINDOW": 0.5 * 24 * 3600, "BLOOMFILTER_REFRESH": False}, [43_200, 15, 0]),
        ({"BLOOMFILTER_WINDOW": 1, "BLOOMFILTER_SHARDS": 1}, [1, 15, 0]),
        ({"BLOOMFILTER_WINDOW": "7d"}, [604_800, 15, 0]),
        ({"BLOOMFILTER_WINDOW": "90 min"}, [5400, 15, 0]),
        ({"BLOOMFILTER_WINDOW": YEARS}, [3_155_760_000, 15, 0]),
        ({"BLOOMFILTER_REFRESH": False}, [None, None, 0]),
    ],
)
def test_the_filter_forgets_as_the_settings_say(server, dupefilter, settings, options):
    for seen in (dupefilter(**settings), dupefilter(**settings)):
        assert [info(server, field) for field in ("WINDOW", "SLICES", "REFRESH")] == options
        # The filter that replaces a cleared one has the same options.
        seen.clear()
        assert not seen.request_seen(PAGE)
        assert [info(server, field) for field in ("WINDOW", "SLICES", "REFRESH")] == options


WEEK = {"BLOOMFILTER_WINDOW": 604_800}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        *(
            (
                {"BLOOMFILTER_WINDOW": window},
                "BLOOMFILTER_WINDOW must be a whole number of seconds from 1 to 3155760000 (100 years), or a timedelta, not ",
            )
            for window in (
                *(0, -1, 1.5, True, "", "week", "1.5", float("inf"), float("nan"), [7]),
                *(timedelta(0), timedelta(seconds=1.5), YEARS + timedelta(seconds=1)),
            )
        ),
        *(
            (
                {**WEEK, "BLOOMFILTER_SLICES": slices},
                "BLOOMFILTER_SLICES must be a whole number from 2 to 64, not ",
            )
            for slices in (1, 65, 2.5, "many", True)
        ),
        (
            {**WEEK, "BLOOMFILTER_REFRESH": "often"},
            "BLOOMFILTER_REFRESH must be True or False, not 'often'",
        ),
        ({"BLOOMFILTER_SLICES": 8}, "BLOOMFILTER_SLICES needs BLOOMFILTER_WINDOW"),
        ({"BLOOMFILTER_REFRESH": True}, "BLOOMFILTER_REFRESH needs BLOOMFILTER_WINDOW"),
        (
            {**WEEK, "BLOOMFILTER_COUNTING": True},
            "BLOOMFILTER_WINDOW and BLOOMFILTER_COUNTING cannot be combined",
        ),
    ],
)
def test_a_window_that_makes_no_sense_is_reported(server, spider, caplog, settings, says):
    quotes = spider(**settings)
    unusable = RFPDupeFilter.from_spider(quotes)
    assert rejection(unusable, quotes.crawler, caplog).startswith(f"The crawl cannot start: {says}")
    assert server.client.dbsize() == 0


@pytest.mark.parametrize(
    ("there", "wanted", "says"),
    [
        ({}, WEEK, "no window, but a window of 604800 s (SLICES 15) was asked for"),
        (WEEK, {}, "a window of 604800 s (SLICES 15), but no window was asked for"),
        (
            WEEK,
            {"BLOOMFILTER_WINDOW": 86_400},
            "a window of 604800 s (SLICES 15), but a window of 86400 s (SLICES 15) was asked for",
        ),
        (
            WEEK,
            {**WEEK, "BLOOMFILTER_SLICES": 7},
            "a window of 604800 s (SLICES 15), but a window of 604800 s (SLICES 7) was asked for",
        ),
        (
            WEEK,
            {**WEEK, "BLOOMFILTER_REFRESH": True},
            "a window of 604800 s (SLICES 15), but a window of 604800 s (SLICES 15, REFRESH) was asked for",
        ),
        (WEEK, {"BLOOMFILTER_COUNTING": True}, "bits, but counters (COUNTING) was asked for"),
    ],
)
def test_a_filter_with_another_window_is_an_error(
    server, spider, dupefilter, caplog, there, wanted, says
):
    assert not dupefilter(**there).request_seen(PAGE)
    quotes = spider(**wanted)
    unusable = RFPDupeFilter.from_spider(quotes)
    told = rejection(unusable, quotes.crawler, caplog)
    assert f"the key {KEY!r} holds a filter with {says}. Use the same options, delete" in told
    assert dupefilter(**there).request_seen(PAGE)


@pytest.mark.parametrize(
    ("options", "wanted"), [(["WINDOW", 604_800, "ROLLING"], WEEK), (["ROLLING"], {})]
)
def test_a_filter_that_forgets_when_it_is_full_is_an_error(server, spider, caplog, options, wanted):
    server.client.execute_command("BF.RESERVE", KEY, 1e-6, 1000, *options)
    quotes = spider(**wanted)
    unusable = RFPDupeFilter.from_spider(quotes)
    assert "ROLLING), but " in rejection(unusable, quotes.crawler, caplog)


@ALL_SCHEDULERS
def test_a_crawl_with_a_wrong_window_is_one_clear_error_at_the_start(server, tmp_path, settings):
    there = {"SCHEDULER_DUPEFILTER_KEY": KEY}
    server.client.execute_command("BF.RESERVE", KEY, 1e-6, 1_000_000, "WINDOW", 60)
    for number, wrong in enumerate(
        [{"BLOOMFILTER_SLICES": 8}, {**WEEK, "BLOOMFILTER_COUNTING": True}, WEEK]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        with site() as pages, crawl(server, folder, **settings, **wrong, **there) as failed:
            crawler = failed.start("textbook", {"site": pages.root})
            assert crawler.finish(code=1)["finish_reason"] == "bloomfilter_unusable"
            assert crawler.text().count(" ERROR: ") == 1
            assert " ERROR: The crawl cannot start: " in crawler.text()
            assert "Traceback" not in crawler.text()
            assert pages.served == []
    assert server.client.exists(KEY)


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        thorough(PLAIN, "BLOOMFILTER_CAPACITY", "many"),
        (LASTING, "BLOOMFILTER_CAPACITY", "many"),
        thorough(SCRAPYS_OWN, "BLOOMFILTER_CAPACITY", "many"),
        (LASTING, "SCHEDULER_LEASE", -1),
        (LASTING, "SCHEDULER_QUEUE_CLASS", "spiders.Textbook"),
    ],
)
def test_a_wrong_setting_is_one_clear_error_at_the_start(server, tmp_path, settings, name, value):
    with site() as pages, crawl(server, tmp_path, **{**settings, name: value}) as failed:
        crawler = failed.start("textbook", {"site": pages.root})
        assert crawler.finish(code=1)["finish_reason"] == "bloomfilter_unusable"
        assert crawler.text().count(" ERROR: ") == 1
        assert f" ERROR: The crawl cannot start: {name} must be " in crawler.text()
        assert pages.served == []


def test_requests_are_the_same_as_for_scrapy(dupefilter):
    seen = dupefilter()
    assert [seen.request_seen(request) for request in (PAGE, SAME, OTHER)] == [False, True, False]
    assert not seen.request_seen(PAGE.replace(method="POST"))


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


def test_two_crawlers_start_with_one_filter(server, dupefilter):
    one, other = dupefilter(), dupefilter()
    assert not one.request_seen(PAGE)
    assert other.request_seen(PAGE)


def rejection(dupefilter: RFPDupeFilter, crawler: Crawler, caplog: pytest.LogCaptureFixture) -> str:
    """Checks that a filter that cannot be used closes the spider. Returns the error that it logged."""
    crawler.engine = SimpleNamespace(_slot=SimpleNamespace(scheduler=SimpleNamespace()))
    with patch("oxbloom.scrapy.failures.close_new_spider") as close:
        crawler.signals.send_catch_log(signals.spider_opened, spider=crawler.spider)
    close.assert_called_once_with(crawler, "bloomfilter_unusable")
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    caplog.clear()
    dupefilter.close()
    dupefilter.clear()
    return record.message


def test_a_filter_with_other_options_is_an_error(server, spider, dupefilter, caplog):
    dupefilter()
    for settings, says in [
        ({"BLOOMFILTER_ERROR_RATE": 0.01}, "an error rate of 1e-06, but 0.01 was asked for"),
        ({"BLOOMFILTER_COUNTING": True}, "bits, but counters (COUNTING) was asked for"),
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


def test_missing_rights_to_create_filters_are_reported_at_the_start(server, spider, caplog):
    server.client.acl_setuser("reader", enabled=True, nopass=True, keys="*", commands=["+@read"])
    quotes = spider(REDIS_PARAMS={"username": "reader", "password": "any"})
    unusable = RFPDupeFilter.from_spider(quotes)
    assert "no permissions" in rejection(unusable, quotes.crawler, caplog)
    server.client.acl_deluser("reader")


def test_a_cleared_filter_is_created_again_as_it_was(server, dupefilter):
    seen = dupefilter(BLOOMFILTER_CAPACITY=5000, BLOOMFILTER_COUNTING=True)
    assert not seen.request_seen(PAGE)
    seen.clear()
    assert server.client.dbsize() == 0
    assert not seen.request_seen(PAGE)
    assert info(server, "CAPACITY") == 5000
    assert info(server, "LAYOUT") == b"counting"


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


@pytest.mark.parametrize(("persist", "left"), [(True, [b"follow:bloomfilter"]), (False, [])])
@SCHEDULERS_OF_QUEUES
def test_with_a_scheduler_of_queues_the_filter_lasts_if_it_persists(
    server, tmp_path, settings, persist, left
):
    with site(20) as pages, crawl(server, tmp_path, **settings) as short:
        crawler = short.follow(pages.url(0), SCHEDULER_PERSIST=persist)
        short.go()
        crawler.finish()
    assert server.client.keys() == left


def test_every_duplicate_is_logged_with_dupefilter_debug(server, tmp_path):
    with site() as pages, crawl(server, tmp_path, **SCRAPYS_OWN) as textbook:
        crawler = textbook.start("textbook", {"site": pages.root}, DUPEFILTER_DEBUG=True)
        crawler.finish()
    assert crawler.text().count("Filtered duplicate request") == 10


@ALL_SCHEDULERS
def test_a_server_without_the_module_is_one_clear_error_at_the_start(tmp_path, settings):
    with running() as bare, site() as pages, crawl(bare, tmp_path, **settings) as failed:
        crawler = failed.start("textbook", {"site": pages.root})
        stats = crawler.finish(code=1)
        assert crawler.text().count(" ERROR: ") == 1
        assert (
            " ERROR: The crawl cannot start: the Redis or Valkey server has no BF.* commands"
            in crawler.text()
        )
        assert "Traceback" not in crawler.text()
        assert stats["finish_reason"] == "bloomfilter_unusable"
        assert pages.served == []
        assert bare.client.dbsize() == 0


@SCHEDULERS_OF_QUEUES
def test_a_crawler_that_cannot_start_leaves_the_crawl_of_others_alone(server, tmp_path, settings):
    server.client.execute_command("BF.RESERVE", "textbook:bloomfilter", 0.01, 1000)
    server.client.zadd("textbook:requests", {"a request": 0})
    with site() as pages, crawl(server, tmp_path, **settings) as failed:
        crawler = failed.start("textbook", {"site": pages.root})
        assert crawler.finish(code=1)["finish_reason"] == "bloomfilter_unusable"
    assert server.client.zcard("textbook:requests") == 1
    assert server.client.exists("textbook:bloomfilter")


@pytest.mark.parametrize("counting", [False, True])
def test_a_request_whose_reply_is_lost_is_crawled(server, dupefilter, counting):
    with proxy(server.port) as network:
        url = {"REDIS_URL": f"redis://127.0.0.1:{network.port}"}
        seen = dupefilter(BLOOMFILTER_COUNTING=counting, **url)
        network.lose.set()
        assert not seen.request_seen(PAGE)
        assert network.lost == 1
        assert seen.stats.get_value("bloomfilter/uncertain") == 1
        assert seen.request_seen(PAGE)
        # The same happens with redis-py's own retries.
        retrying = {"retry": Retry(NoBackoff(), 1), "retry_on_error": [redis.ConnectionError]}
        client = redis.Redis(port=network.port, **retrying)
        client.ping()
        network.lose.set()
        assert not client.execute_command("BF.ADD", KEY, "new")
        client.close()


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


class TestForgetting:
    @pytest.fixture
    def seen(self, dupefilter) -> RFPDupeFilter:
        seen = dupefilter(BLOOMFILTER_COUNTING=True)
        for request in (PAGE, OTHER):
            assert not seen.request_seen(request)
        return seen

    def test_a_request_that_is_forgotten_is_new_and_others_are_not(self, seen):
        for _ in range(3):
            assert seen.request_seen(SAME)
        assert seen.forget(SAME)
        assert seen.request_seen(OTHER)
        assert not seen.request_seen(PAGE)
        assert seen.request_seen(PAGE)

    def test_a_request_is_forgotten_once(self, seen, server):
        request = Request("https://example.com/c")
        assert not seen.request_seen(request)
        assert seen.forget(request)
        server.client.config_resetstat()
        assert not seen.forget(request)
        assert "cmdstat_bf.mdel" not in server.client.info("commandstats")

    def test_a_request_that_bypassed_the_filter_is_not_forgotten(self, seen):
        assert not seen.forget(Request(PAGE.url, dont_filter=True))
        assert seen.request_seen(PAGE)

    def test_a_retry_of_a_new_request_is_forgotten(self, seen):
        request = Request("https://example.com/c")
        assert not seen.request_seen(request)
        retry = request.replace(dont_filter=True)
        assert seen.forget(retry)
        assert not seen.request_seen(request)

    def test_the_target_of_a_redirect_that_bypassed_the_filter_is_not_forgotten(self, seen):
        request = Request("https://example.com/c")
        assert not seen.request_seen(request)
        redirected = request.replace(url=OTHER.url, dont_filter=True)
        assert not seen.forget(redirected)
        assert seen.request_seen(OTHER)

    def test_forgetting_takes_a_counting_filter(self, dupefilter, server):
        seen = dupefilter()
        assert not seen.request_seen(PAGE)
        with pytest.raises(ValueError, match="BLOOMFILTER_COUNTING"):
            seen.forget(PAGE)


def test_the_filter_can_be_in_a_module_with_a_prefix():
    with running(REDISBLOOM, "--loadmodule", OXBLOOM, "prefix", "OX") as server:
        settings = {"REDIS_URL": server.url, "BLOOMFILTER_PREFIX": "OX"}
        crawler = get_crawler(Quotes, settings)
        crawler.spider = Quotes.from_crawler(crawler)
        seen = RFPDupeFilter.from_spider(crawler.spider)
        assert not seen.request_seen(PAGE)
        assert seen.request_seen(SAME)
        assert server.client.execute_command("OXBF.CARD", KEY) == 1
        assert seen.addition(OTHER)[0] == "OXBF.INSERT"
