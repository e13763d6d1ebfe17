"""How a crawl that cannot start ends: with one line of the log, before the first request, and the exit code 1.

An exception from a scheduler or a duplicates filter would be reported several times over, with the traces of all parts of Scrapy
that cannot be closed because they were not opened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy import signals

from .compat import close_new_spider, slot_of

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_refused: WeakSet[Crawler] = WeakSet()


def refused(crawler: Crawler) -> bool:
    """Whether it is known already that a crawler cannot start."""
    return crawler in _refused


def refuse(crawler: Crawler, reason: object) -> None:
    """Says why a crawler cannot start, and ends it as soon as it is open. The first reason is enough."""
    if not refused(crawler):
        _refused.add(crawler)
        logger.error("The crawl cannot start: %s", reason)
        crawler.signals.connect(_close, signals.spider_opened)
        # The engine is not started, and so not stopped either.
        exit_with_failure(crawler, signals.spider_closed)


def _close(spider: Spider) -> None:
    """Keeps scrapy-redis's scheduler from deleting the queue, too, which may be that of a crawl at work."""
    slot_of(spider.crawler).scheduler.persist = True
    close_new_spider(spider.crawler, "bloomfilter_unusable")


def exit_with_failure(crawler: Crawler, end: object = signals.engine_stopped) -> None:
    """Makes the process exit with 1, as Scrapy does for a crawler that has no spider at the end."""
    crawler.signals.connect(_forget_spider, end)


def _forget_spider(sender: Crawler) -> None:
    sender.spider = None
