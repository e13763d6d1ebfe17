"""What the tests of the dupefilter share."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from oxbloom.scrapy import RFPDupeFilter
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from servers import Server

KEY = "quotes:bloomfilter"
PAGE = Request("https://example.com/a?x=1&y=2")
SAME = Request("https://example.com/a?y=2&x=1#top")
OTHER = Request("https://example.com/b")


class Quotes(Spider):
    name = "quotes"


def info(server: Server, field: str, key: str = KEY) -> Any:
    return server.client.execute_command("BF.INFO", key, field)[-1]


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
