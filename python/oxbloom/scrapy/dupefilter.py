"""A dupefilter for Scrapy. It stores the requests that were seen in a Bloom filter that all crawlers share.

It checks and adds a request with one command. If two crawlers find a link at the same moment, exactly one follows it.
The key is created just before the first request is added. So a crawl without requests leaves no key, however it ends,
and neither does `scrapy shell`, which needs no server.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from redis.exceptions import NoPermissionError
from scrapy.dupefilters import RFPDupeFilter as ScrapyDupeFilter

from oxbloom._sharded.errors import ModuleMissingError
from oxbloom._sharded.filter import ShardedFilter

from .clients import filter_client
from .compat import engine_slot, is_in_shell
from .failures import UNUSABLE, cancel_on_error, is_cancelled, stop
from .retries import Retries
from .settings import KEY, PATIENCE, Options, flag, key_for

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector
    from scrapy.utils.request import RequestFingerprinterProtocol

logger = logging.getLogger(__name__)

LET_THROUGH = "bloomfilter"
"""A key in a request's meta. Its value is the fingerprint with which a counting filter let the request through, or None
after `forget`."""

SHORT_MEMORY = (
    "BLOOMFILTER_WINDOW is of use during this crawl only: the filter is deleted when the crawl ends, and the next "
    "crawl crawls every page. Set SCHEDULER_PERSIST = True to keep the filter"
)


class RFPDupeFilter(ScrapyDupeFilter):
    """A dupefilter for `DUPEFILTER_CLASS`, for one crawler or for many that share a Redis or Valkey server.

    Like Scrapy's own, it gets a request's fingerprint from `REQUEST_FINGERPRINTER_CLASS`.
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
        """Sends nothing yet. `persist`: True if `close` keeps the filter."""
        super().__init__(debug=debug, fingerprinter=fingerprinter)
        self.filter = filter
        self.persist = persist
        self.retries = retries or Retries(PATIENCE)
        self.stats = stats
        self.usable = True
        self.in_shell = False
        self.created = False
        """True once this object has created the filter, or found that it exists and has the same options."""
        self.crawler: Crawler | None = None
        """The crawler that stops if the filter cannot be used. Without a running crawler, errors are raised."""
        self._found: WeakSet[Request] = WeakSet()
        """The requests that `look_up` has found. They are compared by identity."""

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Returns the dupefilter of a running crawl, for `forget`."""
        dupefilter: Self = engine_slot(crawler).scheduler.df
        return dupefilter

    @classmethod
    def from_spider(cls, spider: Spider) -> Self:
        """Creates the dupefilter for scrapy-redis's scheduler, which decides itself when to clear it."""
        crawler = spider.crawler
        if is_in_shell(crawler):
            return cls._for_shell(crawler)
        lasts = _flag(crawler, "SCHEDULER_PERSIST")
        return cls._for_key(crawler, _named_key(crawler, spider.name), persist=True, lasts=lasts)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Creates the dupefilter for Scrapy's own scheduler.

        With SCHEDULER_PERSIST or JOBDIR, the filter is kept after the crawl. Otherwise it is deleted when the crawl
        ends. Unless SCHEDULER_PERSIST or SCHEDULER_DUPEFILTER_KEY is set, each crawl or each job has its own key: the
        filter of another job, or of a crawl that was killed, must not keep this crawl from crawling.
        """
        if is_in_shell(crawler):
            return cls._for_shell(crawler)
        settings = crawler.settings
        shares = _flag(crawler, "SCHEDULER_PERSIST")
        key = _named_key(crawler, (crawler.spider or crawler.spidercls).name)
        job = settings.get("JOBDIR")
        if not shares and not settings.get("SCHEDULER_DUPEFILTER_KEY"):
            with cancel_on_error(crawler):
                key = f"{key}:{_job_id(job) if job else uuid.uuid4().hex}"
        persist = shares or bool(job)
        return cls._for_key(crawler, key, persist=persist, lasts=persist)

    @classmethod
    def _for_shell(cls, crawler: Crawler) -> Self:
        """Creates the dupefilter of `scrapy shell`. It lets all requests through, and has no server."""
        logger.info("This is no crawl, but a shell: no request is filtered, and no server is used")
        no_client: Any = None
        dupefilter = cls(
            ShardedFilter(no_client, KEY, shards=1), fingerprinter=crawler.request_fingerprinter
        )
        dupefilter.usable = False
        dupefilter.in_shell = True
        return dupefilter

    @classmethod
    def _for_key(cls, crawler: Crawler, key: str, *, persist: bool, lasts: bool) -> Self:
        """`persist`: True if `close` keeps the filter. `lasts`: True if the filter is kept after the crawl."""
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
            prefix=options.prefix,
        )
        dupefilter = cls(
            filter,
            debug=_flag(crawler, "DUPEFILTER_DEBUG"),
            persist=persist,
            retries=options.retries,
            fingerprinter=crawler.request_fingerprinter,
            stats=crawler.stats,
        )
        if client is not None:
            with cancel_on_error(crawler):
                flush = flag(settings, "SCHEDULER_FLUSH_ON_START")
                dupefilter._prepare(flush=flush, error_rate=options.error_rate)
        dupefilter.usable = client is not None and not is_cancelled(crawler)
        if dupefilter.usable and filter.window and not lasts:
            logger.warning(SHORT_MEMORY)
        dupefilter.crawler = crawler
        return dupefilter

    def _prepare(self, *, flush: bool, error_rate: float) -> None:
        """Checks the options of the filter if it exists. Logs what the crawl uses.

        Does nothing if the user of the server may not read the filter.
        """
        if flush:
            self.clear()
        try:
            info = self.retries.until_answered(self.filter.check).value
        except ModuleMissingError as error:
            # Another server may use the port, so the message has the address.
            raise ModuleMissingError(self.filter.prefix, self.retries.server) from error
        except NoPermissionError:
            return
        logger.info(
            "Bloom filter %r on %s: %d requests, %.3g %% full, error rate %.3g %%",
            self.filter.keys[0],
            self.retries.server,
            info.items,
            100 * info.items / info.capacity,
            100 * error_rate,
        )

    def request_seen(self, request: Request) -> bool:
        """Returns True if any crawler has seen the request before, and adds it otherwise.

        Takes one round trip, or none if `look_up` has just found the request.

        If the server's reply was lost, and a second attempt finds the request in the filter, the first attempt may have
        added it. Such a request is let through, because it is better to crawl a page twice than never. The statistic
        `bloomfilter/uncertain` counts these requests.
        """
        if not self.usable:
            return not self.in_shell  # the crawl stops
        if self.was_found(request):
            return True
        fingerprint = self.request_fingerprint(request)
        try:
            self._create()
            answer = self.retries.until_answered(lambda: self.filter.add(fingerprint))
        except UNUSABLE as error:
            self._stop(error)
            return True
        if not answer.value:
            self.mark(request)
        if answer.value and not answer.certain and self.stats is not None:
            self.stats.inc_value("bloomfilter/uncertain")
        return answer.value and answer.certain

    def look_up(self, requests: Sequence[Request]) -> None:
        """Checks with one command which requests the filter has. For these, `request_seen` then sends no command.

        This adds nothing. With a window that is refreshed, it does nothing: there, `request_seen` must send a command
        for each request, because the window of a request starts again when the request is added again.
        """
        self._found.difference_update(requests)
        if not self.usable or (self.filter.window and self.filter.window.refresh):
            return
        fingerprints = [self.request_fingerprint(request) for request in requests]
        try:
            answer = self.retries.until_answered(lambda: self.filter.contains_all(fingerprints))
        except UNUSABLE as error:
            self._stop(error)
            return
        self._found.update(compress(requests, answer.value))

    def was_found(self, request: Request) -> bool:
        """Returns True if `look_up` found the request, and only once: it may be forgotten and scheduled again."""
        if request not in self._found:
            return False
        self._found.discard(request)
        return True

    def addition(self, request: Request) -> tuple[Any, ...]:
        """Returns the command that `request_seen` sends, for scripts that do more in the same step."""
        self._create()
        return self.filter.addition(self.request_fingerprint(request))

    def _create(self) -> None:
        """Creates the filter, or checks the options of the existing one, before this object's first addition.

        Another crawler may have created it since the start. The addition itself would also create it, but would not
        notice other options.
        """
        if not self.created:
            self.retries.until_answered(self.filter.reserve)
            self.created = True

    def mark(self, request: Request) -> None:
        """Notes in a request's meta that it is let through, for `forget`. The note stays with it in the queue."""
        if self.filter.counting:
            request.meta[LET_THROUGH] = self.request_fingerprint(request)

    def forget(self, request: Request | None) -> bool:
        """Removes a request, so that it is followed when it is found again. Returns True if it was there.

        This is for requests that the filter let through, for example if the response was a ban page. It ignores
        requests that bypassed the filter with `dont_filter`, except retries of requests that the filter let through,
        and None, the request of a response that the engine did not make. Needs `BLOOMFILTER_COUNTING`.
        """
        if self.in_shell:
            return False
        if not self.filter.counting:
            raise ValueError("forget needs BLOOMFILTER_COUNTING = True")
        if request is None:
            return False
        fingerprint = self.request_fingerprint(request)
        let_through = request.meta.get(LET_THROUGH, None if request.dont_filter else fingerprint)
        if let_through != fingerprint:
            return False
        forgotten = self.filter.remove(fingerprint)
        request.meta[LET_THROUGH] = None
        return forgotten

    def clear(self) -> None:
        """Deletes the filter, for all crawlers that share it.

        Does nothing if the filter cannot be used, since its key may hold something else.
        """
        if self.usable:
            self.created = False
            self.retries.until_answered(self.filter.clear)

    def close(self, reason: str = "") -> None:
        """Deletes the filter unless it is kept. Scrapy's own scheduler calls this at the end of a crawl."""
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
        """Stops the crawl because of an error, or raises the error if no crawl is running."""
        if self.crawler is None or not self.crawler.crawling:
            raise error
        self.usable = False
        stop(self.crawler, error, "bloomfilter_unusable")


def _named_key(crawler: Crawler, spider: str) -> str:
    """Returns the key in the settings. If that is invalid, cancels the crawl and returns the default."""
    with cancel_on_error(crawler):
        return key_for(crawler.settings, "SCHEDULER_DUPEFILTER_KEY", KEY, spider)
    return KEY


def _flag(crawler: Crawler, name: str) -> bool:
    """Returns a setting as True or False. If it is neither, cancels the crawl and returns False."""
    with cancel_on_error(crawler):
        return flag(crawler.settings, name)
    return False


def _job_id(folder: str) -> str:
    """Returns the id of the job in a JOBDIR. It is stored there, so that it stays the same when the job is resumed."""
    path = Path(folder) / "bloomfilter.id"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = path.read_text().strip() if path.exists() else ""
        if not known:
            known = uuid.uuid4().hex
            path.write_text(known)
    except OSError as error:
        raise ValueError(
            f"JOBDIR must be a folder in which files can be written: {error}"
        ) from error
    return known
