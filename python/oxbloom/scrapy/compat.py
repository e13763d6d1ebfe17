"""The differences between the supported versions of Scrapy and redis-py. Nothing else in the package depends on a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import version_info
from scrapy.exceptions import CloseSpider
from scrapy.utils.defer import deferred_from_coro

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

try:
    from scrapy.utils.asyncio import create_looping_call
except ImportError:  # before Scrapy 2.14
    from twisted.internet import task

    create_looping_call = task.LoopingCall  # type: ignore[assignment]

__all__ = [
    "close_new_spider",
    "close_spider",
    "create_looping_call",
    "engine_slot",
    "without_retries",
]

ENGINE_STARTS_WITHIN = 0.05
"""Seconds between two looks at whether the engine runs."""


def engine_slot(crawler: Crawler) -> Any:
    """Returns the engine's slot, with the scheduler and the requests in progress; None before and after the crawl."""
    engine: Any = crawler.engine
    return engine._slot if hasattr(engine, "_slot") else engine.slot  # before Scrapy 2.13


def close_spider(crawler: Crawler, reason: str) -> None:
    """Asks the engine to close the spider."""
    engine: Any = crawler.engine
    if hasattr(engine, "close_spider_async"):
        deferred_from_coro(engine.close_spider_async(reason=reason))
    else:  # before Scrapy 2.14
        engine.close_spider(crawler.spider, reason)


def close_new_spider(crawler: Crawler, reason: str) -> None:
    """Closes a spider before its first request. For handlers of `spider_opened`."""
    if version_info >= (2, 18):
        raise CloseSpider(reason)
    # An older engine can close a spider only when it runs. It is paused, and has nothing to start with, until then.
    engine: Any = crawler.engine
    engine.pause()
    if hasattr(engine, "_start"):  # from Scrapy 2.13 on
        engine._start = None

    def close_if_running() -> None:
        if engine.running:
            waiting.stop()
            close_spider(crawler, reason)

    waiting = create_looping_call(close_if_running)
    waiting.start(ENGINE_STARTS_WITHIN)


def without_retries(client: Any) -> Any:
    """Keeps a client that was made with `Retry(NoBackoff(), 0)` from sending any command again."""
    if hasattr(client, "cluster_error_retry_attempts"):  # of clusters, before redis-py 6
        client.cluster_error_retry_attempts = 0
    return client
