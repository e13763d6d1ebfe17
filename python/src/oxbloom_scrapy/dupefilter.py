"""A duplicates filter for Scrapy: which requests were seen, kept in a Bloom filter that all crawlers share.

A request is asked for and added in one command, so of two crawlers that find a link at the same moment exactly one follows it.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy.dupefilters import RFPDupeFilter as ScrapyDupeFilter

from .filter import ShardedFilter
from .patience import Patience, client

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings
    from scrapy.statscollectors import StatsCollector
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

KEY = "%(spider)s:bloomfilter"
CAPACITY = 1_000_000
ERROR_RATE = 0.001
BIT = 30
HASH_NUMBER = 6
PATIENCE = 60.0

LET_THROUGH = "bloomfilter"
"""Where a request's meta tells under which fingerprint a counting filter let it through; None once that is forgotten."""


@dataclass(frozen=True)
class Options:
    """What the settings ask of the filter. Raises ValueError, with the setting's name, for what makes no sense."""

    capacity: int
    error_rate: float
    counting: bool
    shards: int
    patience: Patience

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        capacity, error_rate = _equivalent(settings) or (CAPACITY, ERROR_RATE)
        return cls(
            _number(settings, "BLOOMFILTER_CAPACITY", int, capacity, 1, 2**63 - 1),
            _number(settings, "BLOOMFILTER_ERROR_RATE", float, error_rate, 1e-15, 1 - 1e-9),
            settings.getbool("BLOOMFILTER_COUNTING"),
            _number(settings, "BLOOMFILTER_SHARDS", int, 1, 1, 16384),
            Patience(_number(settings, "BLOOMFILTER_PATIENCE", float, PATIENCE, 0, math.inf)),
        )


def _equivalent(settings: BaseSettings) -> tuple[int, float] | None:
    """Capacity and error rate of a filter of 2^BIT bits with HASH_NUMBER hash functions, where half of its bits are set.

    That is where it is used best (Bloom 1970): after m ln 2 / k items, when it is wrong with a probability of 2^-k. The settings are
    those of scrapy-redis-bloomfilter.
    """
    if settings.get("BLOOMFILTER_BIT") is None and settings.get("BLOOMFILTER_HASH_NUMBER") is None:
        return None
    bits = 2 ** _number(settings, "BLOOMFILTER_BIT", int, BIT, 1, 45)
    functions = _number(settings, "BLOOMFILTER_HASH_NUMBER", int, HASH_NUMBER, 1, 40)
    return max(1, math.floor(bits * math.log(2) / functions)), 2.0**-functions


def _number(
    settings: BaseSettings, name: str, kind: Any, default: Any, least: float, most: float
) -> Any:
    value = settings.get(name)
    if value is None:
        return default
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most:
        raise ValueError(f"{name} must be a number from {least} to {most}, not {value!r}")
    return number


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
        patience: Patience | None = None,
        fingerprinter: RequestFingerprinterProtocol | None = None,
        stats: StatsCollector | None = None,
    ) -> None:
        """Creates the filter on the server, or makes sure that it is as it should be.

        `persist`: whether `close` leaves the filter as it is. Raises `FilterError`: `ModuleMissingError`, `KeyTakenError` or `FilterMismatchError`.
        """
        super().__init__(debug=debug, fingerprinter=fingerprinter)
        self.filter = filter
        self.persist = persist
        self.patience = patience or Patience(PATIENCE)
        self.stats = stats
        self.patience.until_answered(filter.reserve)

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """For scrapy-redis's scheduler, which decides itself when to clear the filter."""
        return cls._for_key(spider.crawler, _named_key(spider.crawler), persist=True)

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
        return cls._for_key(crawler, key, persist=persist)

    @classmethod
    def _for_key(cls, crawler: Crawler, key: str, *, persist: bool) -> Self:
        settings = crawler.settings
        options = Options.from_settings(settings)
        filter = ShardedFilter(
            client(settings),
            key,
            shards=options.shards,
            capacity=options.capacity,
            error_rate=options.error_rate,
            counting=options.counting,
        )
        if settings.getbool("SCHEDULER_FLUSH_ON_START"):
            options.patience.until_answered(filter.clear)
        return cls(
            filter,
            debug=settings.getbool("DUPEFILTER_DEBUG"),
            persist=persist,
            patience=options.patience,
            fingerprinter=crawler.request_fingerprinter,
            stats=crawler.stats,
        )

    def request_seen(self, request: Request) -> bool:
        """Whether the request was seen before, by whichever crawler; it is from now on. One round trip.

        If the server's answer was lost, and a second attempt finds the request there, nobody can tell whether the first one put
        it there. It is let through then: better a page is crawled twice than never. `bloomfilter/uncertain` counts these.
        """
        fingerprint = self.request_fingerprint(request)
        answer = self.patience.until_answered(lambda: self.filter.add(fingerprint))
        if answer.value and self.filter.counting:
            request.meta[LET_THROUGH] = fingerprint
        if not answer.value and not answer.certain and self.stats is not None:
            self.stats.inc_value("bloomfilter/uncertain")
        return not answer.value and answer.certain

    def forget(self, request: Request) -> bool:
        """Takes a request back, so that it is followed when it is found again; whether it was there.

        For requests that this filter let through, such as the one of a response that turned out to be a ban page. A request that
        was sent past the filter with `dont_filter` was never added, and is left alone, unless it is a retry of one that was.
        Needs `BLOOMFILTER_COUNTING`.
        """
        fingerprint = self.request_fingerprint(request)
        let_through = request.meta.get(LET_THROUGH, None if request.dont_filter else fingerprint)
        if let_through != fingerprint:
            return False
        forgotten = self.filter.remove(fingerprint)
        request.meta[LET_THROUGH] = None
        return forgotten

    def clear(self) -> None:
        """Forgets all requests, of all crawlers that share the filter."""
        self.patience.until_answered(self.filter.clear)

    def close(self, reason: str = "") -> None:
        """Called by Scrapy's own scheduler at the end of a crawl."""
        if not self.persist:
            self.clear()

    def log(self, request: Request, spider: Spider) -> None:
        super().log(request, spider)
        spider.crawler.stats.inc_value("bloomfilter/filtered")


def _named_key(crawler: Crawler) -> str:
    assert crawler.spider is not None
    key: str = crawler.settings.get("SCHEDULER_DUPEFILTER_KEY") or KEY
    return key % {"spider": crawler.spider.name}
