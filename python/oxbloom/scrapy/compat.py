"""Hides the differences between the supported versions of Scrapy and redis-py from the rest of the package."""

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
    "is_in_shell",
    "without_retries",
]

SECONDS_BETWEEN_CHECKS = 0.05
"""The time between two checks of whether the engine runs."""


def engine_slot(crawler: Crawler) -> Any:
    """Returns the engine's slot, which has the scheduler and the requests in progress. Outside a crawl, it is None."""
    engine = _engine(crawler)
    if engine is None:
        return None
    return engine._slot if hasattr(engine, "_slot") else engine.slot  # before Scrapy 2.13


def is_in_shell(crawler: Crawler) -> bool:
    """Returns True in `scrapy shell`, which uses the engine without a crawl."""
    return _engine(crawler) is not None and not crawler.crawling


def _engine(crawler: Crawler) -> Any:
    try:
        return crawler.engine
    except RuntimeError:  # from Scrapy 2.19 on, instead of None
        return None


def close_spider(crawler: Crawler, reason: str) -> None:
    """Asks the engine to close the spider."""
    engine: Any = crawler.engine
    if hasattr(engine, "close_spider_async"):
        deferred_from_coro(engine.close_spider_async(reason=reason))
        return
    spider = crawler.spider

    def close() -> None:
        if engine_slot(crawler) is not None:
            engine.close_spider(spider, reason)

    if engine_slot(crawler).inprogress:
        close()
    else:
        # Before Scrapy 2.14, the engine would close the spider at once, and then go on with its first request.
        from twisted.internet import reactor

        later: Any = reactor
        later.callLater(0, close)


def close_new_spider(crawler: Crawler, reason: str) -> None:
    """Closes a spider before its first request. For handlers of `spider_opened`."""
    if version_info >= (2, 18):
        raise CloseSpider(reason)
    # Older engines can only close a spider while they run. Until then, the engine is paused and has no start requests.
    engine: Any = crawler.engine
    engine.pause()
    if hasattr(engine, "_start"):  # from Scrapy 2.13 on
        engine._start = None

    def close_if_running() -> None:
        if engine.running:
            waiting.stop()
            close_spider(crawler, reason)

    waiting = create_looping_call(close_if_running)
    waiting.start(SECONDS_BETWEEN_CHECKS)


def without_retries(client: Any) -> Any:
    """Disables the retries that a client with `Retry(NoBackoff(), 0)` would still make."""
    if hasattr(client, "cluster_error_retry_attempts"):  # for clusters, before redis-py 6
        client.cluster_error_retry_attempts = 0
    return client
