"""Tests the settings of the dupefilter with a real server: their effects, and the errors of those that make no sense."""

import logging
from datetime import timedelta
from typing import Any

import pytest
import redis
from crawls import LASTING, PLAIN, SCRAPYS_OWN, crawl, thorough
from dupefilters import KEY, PAGE, info, rejection
from oxbloom.scrapy import RFPDupeFilter
from website import site


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
    seen = dupefilter(**settings)
    # The filter that replaces a cleared one has the same options.
    for _ in range(2):
        assert server.client.keys() == []
        assert not seen.request_seen(PAGE)
        assert info(server, "CAPACITY") == capacity
        assert float(info(server, "ERROR")) == pytest.approx(error_rate, rel=1e-12)
        assert info(server, "LAYOUT") == b"native"
        seen.clear()


WEEK = {"BLOOMFILTER_WINDOW": 604_800}
YEARS = timedelta(days=36_525)  # a hundred
WRONG: list[tuple[str, list[Any], str]] = [
    ("BLOOMFILTER_CAPACITY", [0, "many", 2**63, "inf"], "a number from "),
    ("BLOOMFILTER_ERROR_RATE", [0, 1, "nan"], "a number from "),
    ("BLOOMFILTER_BIT", [0, 1000], "a number from "),
    ("BLOOMFILTER_HASH_NUMBER", [0], "a number from "),
    ("BLOOMFILTER_SHARDS", [0, 16385], "a number from "),
    ("BLOOMFILTER_PATIENCE", [-1], "a number from "),
    ("SCHEDULER_LEASE", [0], "a number from "),
    ("SCHEDULER_DUPEFILTER_KEY", ["%(name)s:seen", "100% seen", 7], "a text in which %(spider)s"),
    ("SCHEDULER_PERSIST", ["maybe"], "True or False"),
    ("SCHEDULER_FLUSH_ON_START", ["maybe"], "True or False"),
    ("DUPEFILTER_DEBUG", ["maybe"], "True or False"),
    ("BLOOMFILTER_COUNTING", ["maybe"], "True or False"),
    ("BLOOMFILTER_REFRESH", ["maybe"], "True or False"),
    ("REDIS_PARAMS", ["localhost", 6379], "a dict"),
    ("BLOOMFILTER_REDIS_PARAMS", [["localhost"]], "a dict"),
    (
        "BLOOMFILTER_WINDOW",
        [0, 1.5, True, "", "1.5", "7 days", float("inf"), [7], timedelta(0), YEARS * 2],
        "a whole number of seconds from 1 to 3155760000 (100 years), or a timedelta, not ",
    ),
    ("BLOOMFILTER_SLICES", [1, 65, 2.5, "many", True], "a whole number from 2 to 64, not "),
]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        *(
            ({**WEEK, name: value}, f"{name} must be {says}")
            for name, values, says in WRONG
            for value in values
        ),
        ({"BLOOMFILTER_SLICES": 8}, "BLOOMFILTER_SLICES needs BLOOMFILTER_WINDOW"),
        ({"BLOOMFILTER_REFRESH": True}, "BLOOMFILTER_REFRESH needs BLOOMFILTER_WINDOW"),
        (
            {**WEEK, "BLOOMFILTER_COUNTING": True},
            "BLOOMFILTER_WINDOW and BLOOMFILTER_COUNTING cannot be combined",
        ),
    ],
)
@pytest.mark.parametrize(
    "create", [RFPDupeFilter.from_spider, lambda spider: RFPDupeFilter.from_crawler(spider.crawler)]
)
def test_an_error_names_the_setting_that_makes_no_sense(
    server, spider, caplog, settings, says, create
):
    quotes = spider(**settings)
    unusable = create(quotes)
    assert rejection(unusable, quotes.crawler, caplog).startswith(f"The crawl cannot start: {says}")
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
    dupefilter(BLOOMFILTER_CAPACITY=50, BLOOMFILTER_HASH_NUMBER=6)
    place = f"{server.url.removeprefix('redis://')} (REDIS_URL)"
    start = f"Bloom filter {KEY!r} on the server {place}"
    assert [record.message for record in caplog.records if record.name.startswith("oxbloom")] == [
        f"{start}: 0 requests, 0 % full, error rate 1.56 %",
        f"{start}: 1 requests, 2 % full, error rate 1.56 %",
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
        # The filter that replaces a cleared one has the same options.
        for _ in range(2):
            seen.clear()
            assert not seen.request_seen(PAGE)
            assert [info(server, field) for field in ("WINDOW", "SLICES", "REFRESH")] == options


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
        error = crawler.error("bloomfilter_unusable")
        assert error.startswith(f"The crawl cannot start: {name} must be ")
        assert pages.served == []
