"""Ends a crawl that cannot start or cannot continue, with one error in the log and the exit code 1.

A crawl that cannot start is cancelled before its first request. If a scheduler or a dupefilter raised an exception
instead, Scrapy would report it several times. It would also log a traceback for each part that was never opened, since
it cannot close such parts.
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
"""The exceptions that commands to a filter or a queue raise."""

_cancelled: WeakSet[Crawler] = WeakSet()


def is_cancelled(crawler: Crawler) -> bool:
    """Returns whether the crawl was cancelled."""
    return crawler in _cancelled


def cancel(crawler: Crawler, reason: object) -> None:
    """Logs why the crawl cannot start, and closes its spider as soon as it is open. Only the first reason is logged."""
    if not is_cancelled(crawler):
        _cancelled.add(crawler)
        logger.error("The crawl cannot start: %s", reason)
        crawler.signals.connect(_close, signals.spider_opened)
        # The engine does not start, so it does not send `engine_stopped`.
        exit_with_failure(crawler, signals.spider_closed)


@contextmanager
def cancel_on_error(crawler: Crawler) -> Iterator[None]:
    """Cancels the crawl if a setting is invalid, or if the filter or the queue cannot be used."""
    try:
        yield
    except (*UNUSABLE, ValueError) as error:
        cancel(crawler, error)


def stop(crawler: Crawler, error: Exception, reason: str) -> None:
    """Logs why the crawl stops, and stops it. `reason`: the finish reason."""
    logger.error("The crawler stops: queue or filter cannot be used: %s", error)
    _keep_queue(crawler)
    exit_with_failure(crawler)
    close_spider(crawler, reason)


def _close(spider: Spider) -> None:
    _keep_queue(spider.crawler)
    close_new_spider(spider.crawler, "bloomfilter_unusable")


def _keep_queue(crawler: Crawler) -> None:
    """Keeps scrapy-redis's scheduler from deleting the queue, which another crawler may use."""
    engine_slot(crawler).scheduler.persist = True


def exit_with_failure(crawler: Crawler, end: object = signals.engine_stopped) -> None:
    """Makes the process exit with 1. Scrapy does this if a crawler has no spider at the end."""
    crawler.signals.connect(_forget_spider, end)


def _forget_spider(sender: Crawler) -> None:
    sender.spider = None
