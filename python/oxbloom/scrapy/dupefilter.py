"""A duplicates filter for Scrapy: which requests were seen, kept in a Bloom filter that all crawlers share.

A request is asked for and added in one command, so of two crawlers that find a link at the same moment exactly one follows it.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any, Self

from scrapy.dupefilters import RFPDupeFilter as ScrapyDupeFilter

from oxbloom._sharded.filter import ShardedFilter

from .clients import filter_client
from .compat import engine_slot
from .failures import UNUSABLE, cancel_on_error, is_cancelled, stop
from .retries import Retries
from .settings import KEY, PATIENCE, Options

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector
    from scrapy.utils.request import RequestFingerprinterProtocol

logger = logging.getLogger(__name__)

LET_THROUGH = "bloomfilter"
"""Where a request's meta tells under which fingerprint a counting filter let it through; None once that is forgotten."""

SHORT_MEMORY = (
    "BLOOMFILTER_WINDOW is of use during this crawl only: the filter is deleted at its end, and the next crawl crawls every page. "
    "Set SCHEDULER_PERSIST = True to keep the filter"
)


class RFPDupeFilter(ScrapyDupeFilter):
    """Scrapy's duplicates filter (`DUPEFILTER_CLASS`), for one crawler or for many that share a Redis or Valkey server.

    It takes a request's fingerprint from `REQUEST_FINGERPRINTER_CLASS`, as Scrapy's own does.
    """

    def __init__(
        self,
        filter: ShardedFilter,
        *,
        debug: bool = False,
        persist: bool = True,
        retries: Retries | None = None,
        fingerprinter: RequestFingerprinterProtocol | None = None,
        stats: StatsCollector | None = None,
    ) -> None:
        """Talks to nobody yet. `persist`: whether `close` leaves the filter as it is."""
        super().__init__(debug=debug, fingerprinter=fingerprinter)
        self.filter = filter
        self.persist = persist
        self.retries = retries or Retries(PATIENCE)
        self.stats = stats
        self.usable = True
        self.crawler: Crawler | None = None
        """The crawler to stop when the filter cannot be used. Without one, and before it crawls, errors are raised."""

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Returns the filter of a crawl that runs, for `forget`."""
        dupefilter: Self = engine_slot(crawler).scheduler.df
        return dupefilter

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """For scrapy-redis's scheduler, which decides itself when to clear the filter."""
        lasts = spider.crawler.settings.getbool("SCHEDULER_PERSIST")
        return cls._for_key(spider.crawler, _named_key(spider.crawler), persist=True, lasts=lasts)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """For Scrapy's own scheduler.

        With SCHEDULER_PERSIST or JOBDIR the filter outlasts the crawl. Otherwise it is deleted when the crawl ends, and its key is
        the crawl's own, unless SCHEDULER_DUPEFILTER_KEY gives one: what a crawl that was killed left behind must not
        keep the next one from crawling.
        """
        settings = crawler.settings
        persist = settings.getbool("SCHEDULER_PERSIST") or bool(settings.get("JOBDIR"))
        key = _named_key(crawler)
        if not persist and not settings.get("SCHEDULER_DUPEFILTER_KEY"):
            key = f"{key}:{uuid.uuid4().hex}"
        return cls._for_key(crawler, key, persist=persist, lasts=persist)

    @classmethod
    def _for_key(cls, crawler: Crawler, key: str, *, persist: bool, lasts: bool) -> Self:
        """`persist`: whether `close` leaves the filter as it is. `lasts`: whether whoever ends the crawl does."""
        settings = crawler.settings
        options = Options.of(crawler)
        client: Any = None
        if not is_cancelled(crawler):
            with cancel_on_error(crawler):
                client = filter_client(settings, options.retries)
        filter = ShardedFilter(
            client,
            key,
            shards=options.shards,
            capacity=options.capacity,
            error_rate=options.error_rate,
            counting=options.counting,
            window=options.window,
            refresh=options.refresh,
            slices=options.slices,
        )
        dupefilter = cls(
            filter,
            debug=settings.getbool("DUPEFILTER_DEBUG"),
            persist=persist,
            retries=options.retries,
            fingerprinter=crawler.request_fingerprinter,
            stats=crawler.stats,
        )
        if not is_cancelled(crawler):
            with cancel_on_error(crawler):
                dupefilter._prepare(flush=settings.getbool("SCHEDULER_FLUSH_ON_START"))
        dupefilter.usable = not is_cancelled(crawler)
        if dupefilter.usable and filter.window and not lasts:
            logger.warning(SHORT_MEMORY)
        dupefilter.crawler = crawler
        return dupefilter

    def _prepare(self, *, flush: bool) -> None:
        """Creates the filter, or makes sure that it is as it should be."""
        if flush:
            self.clear()
        self.retries.until_answered(self.filter.reserve)

    def request_seen(self, request: Request) -> bool:
        """Whether the request was seen before, by whichever crawler; it is from now on. One round trip.

        If the server's answer was lost, and a second attempt finds the request there, nobody can tell whether the first one put
        it there. It is let through then: better a page is crawled twice than never. `bloomfilter/uncertain` counts these.
        """
        if not self.usable:
            return True  # the crawl stops
        fingerprint = self.request_fingerprint(request)
        try:
            answer = self.retries.until_answered(lambda: self.filter.add(fingerprint))
        except UNUSABLE as error:
            self._stop(error)
            return True
        if answer.value:
            self.mark(request)
        if not answer.value and not answer.certain and self.stats is not None:
            self.stats.inc_value("bloomfilter/uncertain")
        return not answer.value and answer.certain

    def addition(self, request: Request) -> tuple[Any, ...]:
        """The command that `request_seen` sends, for scripts that do more in the same step."""
        return self.filter.addition(self.request_fingerprint(request))

    def mark(self, request: Request) -> None:
        """Notes in a request that it is let through, for `forget`, wherever it travels before."""
        if self.filter.counting:
            request.meta[LET_THROUGH] = self.request_fingerprint(request)

    def forget(self, request: Request) -> bool:
        """Takes a request back, so that it is followed when it is found again; whether it was there.

        For requests that this filter let through, such as the one of a response that turned out to be a ban page. A request that
        was sent past the filter with `dont_filter` was never added, and is left alone, unless it is a retry of one that was.
        Needs `BLOOMFILTER_COUNTING`.
        """
        if not self.filter.counting:
            raise ValueError("forget needs BLOOMFILTER_COUNTING = True")
        fingerprint = self.request_fingerprint(request)
        let_through = request.meta.get(LET_THROUGH, None if request.dont_filter else fingerprint)
        if let_through != fingerprint:
            return False
        forgotten = self.filter.remove(fingerprint)
        request.meta[LET_THROUGH] = None
        return forgotten

    def clear(self) -> None:
        """Forgets all requests, of all crawlers that share the filter. What is there instead of a filter is left alone."""
        if self.usable:
            self.retries.until_answered(self.filter.clear)

    def close(self, reason: str = "") -> None:
        """Called by Scrapy's own scheduler at the end of a crawl."""
        if not self.persist:
            try:
                self.clear()
            except UNUSABLE as error:
                self._stop(error)

    def log(self, request: Request, spider: Spider) -> None:
        if self.usable:
            super().log(request, spider)
            spider.crawler.stats.inc_value("bloomfilter/filtered")

    def _stop(self, error: Exception) -> None:
        """Stops the crawl because of an error, or raises it."""
        if self.crawler is None or not self.crawler.crawling:
            raise error
        self.usable = False
        stop(self.crawler, error, "bloomfilter_unusable")


def _named_key(crawler: Crawler) -> str:
    assert crawler.spider is not None
    key: str = crawler.settings.get("SCHEDULER_DUPEFILTER_KEY") or KEY
    return key % {"spider": crawler.spider.name}
