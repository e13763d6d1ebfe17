"""The fixtures of the tests of the dupefilter: they create spiders and dupefilters with settings."""

from collections.abc import Callable
from typing import Any

import pytest
from dupefilters import Quotes
from oxbloom.scrapy import RFPDupeFilter
from scrapy import Spider
from scrapy.utils.test import get_crawler
from servers import Server


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
