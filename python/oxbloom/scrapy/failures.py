"""How a crawl that cannot start ends: with one line of the log, before the first request, and the exit code 1.

An exception from a scheduler or a duplicates filter would be reported several times over, with the traces of all parts of Scrapy
that cannot be closed because they were not opened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from redis.exceptions import RedisClusterException, RedisError
from scrapy import signals

from oxbloom._sharded.errors import FilterError

from .compat import close_new_spider, close_spider, engine_slot

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

UNUSABLE = (FilterError, RedisError, RedisClusterException)
"""What commands to a filter or a queue raise."""

_cancelled: WeakSet[Crawler] = WeakSet()


def is_cancelled(crawler: Crawler) -> bool:
    """Whether it is known already that a crawler cannot start."""
    return crawler in _cancelled


def cancel(crawler: Crawler, reason: object) -> None:
    """Says why a crawler cannot start, and ends it as soon as it is open. The first reason is enough."""
    if not is_cancelled(crawler):
        _cancelled.add(crawler)
        logger.error("The crawl cannot start: %s", reason)
        crawler.signals.connect(_close, signals.spider_opened)
        # The engine is not started, and so not stopped either.
        exit_with_failure(crawler, signals.spider_closed)


@contextmanager
def cancel_on_error(crawler: Crawler) -> Iterator[None]:
    """Cancels a crawl if a setting makes no sense, or if filter or queue cannot be used."""
    try:
        yield
    except (*UNUSABLE, ValueError) as error:
        cancel(crawler, error)


def stop(crawler: Crawler, error: Exception, reason: str) -> None:
    """Says why a crawler stops, and stops it. `reason`: the finish reason."""
    logger.error("The crawler stops: queue or filter cannot be used: %s", error)
    _keep_queue(crawler)
    exit_with_failure(crawler)
    close_spider(crawler, reason)


def _close(spider: Spider) -> None:
    _keep_queue(spider.crawler)
    close_new_spider(spider.crawler, "bloomfilter_unusable")


def _keep_queue(crawler: Crawler) -> None:
    """Keeps scrapy-redis's scheduler from deleting the queue, which may be that of a crawl at work."""
    engine_slot(crawler).scheduler.persist = True


def exit_with_failure(crawler: Crawler, end: object = signals.engine_stopped) -> None:
    """Makes the process exit with 1, as Scrapy does for a crawler that has no spider at the end."""
    crawler.signals.connect(_forget_spider, end)


def _forget_spider(sender: Crawler) -> None:
    sender.spider = None
