"""scrapy-redis's scheduler, except that a crawler that is killed loses no request.

scrapy-redis loses pages when a crawler is killed. A request that was taken from the queue is only in the crawler's
memory. A request that was added to the filter, but not yet to the queue, is never crawled. With this scheduler, a
request stays in Redis until its callback and its items' pipelines are done. It is added to the filter and the queue in
one step, which also saves a round trip. `deliveries` describes how this works.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from redis.cluster import RedisCluster
from scrapy import signals
from scrapy.core.scheduler import Scheduler as ScrapyScheduler
from scrapy.exceptions import DontCloseSpider
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
from scrapy_redis.scheduler import Scheduler as ScrapyRedisScheduler

from oxbloom._slots import hash_slot

from .clients import queue_client
from .compat import create_looping_call, engine_slot, is_in_shell
from .deliveries import ORDERS, Deliveries, Order
from .dupefilter import RFPDupeFilter
from .failures import UNUSABLE, cancel, cancel_on_error, is_cancelled, stop
from .settings import Options, key_for

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

SIGNS_PER_LEASE = 3

T = TypeVar("T")


class Scheduler(ScrapyRedisScheduler):  # type: ignore[misc]
    """A scheduler for `SCHEDULER`. Its settings are those of scrapy-redis, and `SCHEDULER_LEASE`, in seconds.

    A crawler that gives no sign of life for this time counts as dead, and others take over its requests. So the lease
    must be longer than the longest time for which a callback blocks the event loop. No idle crawler exits while any
    crawler has requests in flight. Without SCHEDULER_PERSIST, queue and filter are deleted when the crawl is finished,
    or by the last crawler that is stopped.
    """

    queue_cls: Any

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        """Creates the scheduler. In `scrapy shell`, returns Scrapy's own.

        The shell waits for the very object that it schedules. One that went through the server would be another.
        """
        if is_in_shell(crawler):
            return ScrapyScheduler.from_crawler(crawler)
        return super().from_crawler(crawler)

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """Creates the scheduler. It connects in `open`, where it knows which crawler to stop if that fails."""
        params = {"redis_cls": _NoClient}
        scheduler: Self = super().from_settings(Settings({**settings, "REDIS_PARAMS": params}))
        return scheduler

    def open(self, spider: Spider) -> None:
        self.crawler = spider.crawler
        self.held: dict[Request, str] = {}
        self.failed = True
        options = Options.of(self.crawler)
        try:
            kind: Any = load_object(self.queue_cls)
        except (ImportError, NameError, TypeError, ValueError):
            kind = None
        if kind not in ORDERS:
            known = ", ".join(cls.__name__ for cls in ORDERS)
            wrong = f"must be scrapy-redis's {known}, not {self.queue_cls}"
            cancel(self.crawler, f"SCHEDULER_QUEUE_CLASS {wrong}")
        if not is_cancelled(self.crawler):
            with cancel_on_error(self.crawler):
                self._connect(spider, ORDERS[kind], options)
        if is_cancelled(self.crawler):
            return
        self.failed = False
        if isinstance(self.df, RFPDupeFilter):
            self.df.crawler = None  # this scheduler stops the crawler
        # Only then does the filter alone decide whether a request is new.
        own = getattr(type(self.df), "request_seen", None)
        self.plain = own is RFPDupeFilter.request_seen
        self.one_step = self._can_enqueue_in_one_step(
            self.crawler.settings.get("BLOOMFILTER_REDIS_PARAMS")
        )
        self.beats = create_looping_call(self._beat)
        self.beats.start(self.deliveries.lease / SIGNS_PER_LEASE)
        self.crawler.signals.connect(self._stay_while_others_work, signals.spider_idle)

    def _connect(self, spider: Spider, order: Order, options: Options) -> None:
        self.server = queue_client(self.crawler.settings, options.retries)
        options.retries.until_answered(self.server.ping)
        self.deliveries = Deliveries(
            self.server,
            key_for(spider.settings, "SCHEDULER_QUEUE_KEY", self.queue_key, spider.name),
            order,
            lease=options.lease,
            retries=options.retries,
        )
        super().open(spider)

    def has_pending_requests(self) -> bool:
        return self._unless_failed(self._pending, 0) > 0

    def enqueue_request(self, request: Request) -> bool:
        new = self._unless_failed(lambda: self._enqueue(request), None)
        if new is False:
            self.df.log(request, self.spider)
        if new and self.stats:
            self.stats.inc_value("scheduler/enqueued/redis")
        return bool(new)

    def look_up(self, requests: Sequence[Request]) -> None:
        """Checks with one command which requests the filter has, for `enqueue_request`."""
        self._unless_failed(lambda: self._look_up(requests), None)

    def next_request(self) -> Request | None:
        request = self._unless_failed(self._take, None)
        if request and self.stats:
            self.stats.inc_value("scheduler/dequeued/redis")
        return request

    def close(self, reason: str) -> None:
        self._unless_failed(lambda: self._leave(reason), None)

    def flush(self) -> None:
        super().flush()
        self.deliveries.clear()

    def _leave(self, reason: str) -> None:
        self._let_go()
        others = self.deliveries.leave()
        if reason == "finished" or not others:
            super().close(reason)
        self.beats.stop()

    def _pending(self) -> int:
        pending: int = self.deliveries.retries.until_answered(self.__len__).value
        return pending

    def _look_up(self, requests: Sequence[Request]) -> None:
        if isinstance(self.df, RFPDupeFilter):
            self.df.look_up(requests)

    def _enqueue(self, request: Request) -> bool:
        """Puts a request into the queue if it is new or must not be filtered. Returns True if it did."""
        if isinstance(self.df, RFPDupeFilter) and not request.dont_filter:
            if self.plain and self.df.was_found(request):
                return False
            self.df.mark(request)
        data = self.queue._encode_request(request)
        entry = b"%d %s" % (-request.priority, data.encode() if isinstance(data, str) else data)
        if self.one_step and not request.dont_filter:
            name, key, *arguments = self.df.addition(request)
            return self.deliveries.put_if_new(entry, key, [name, *arguments])
        token = self.deliveries.note(entry)
        if not request.dont_filter and self.df.request_seen(request):
            self.deliveries.done(token)
            return False
        self.deliveries.put(entry, token)
        return True

    def _take(self) -> Request | None:
        self._let_go()
        while taken := self.deliveries.take():
            token, data = taken
            try:
                request: Request = self.queue._decode_request(data)
            except Exception:
                logger.exception("Dropping a request that cannot be read: %r", data)
                self.deliveries.done(token)
                continue
            self.held[request] = token
            return request
        return None

    def _unless_failed(self, action: Callable[[], T], otherwise: T) -> T:
        """Returns the result of an action, or `otherwise` if queue or filter cannot be used."""
        if not self.failed:
            try:
                return action()
            except UNUSABLE as error:
                self._stop(error)
        return otherwise

    def _stop(self, error: Exception) -> None:
        """Stops as if killed: a page whose links could not be stored is not done, and is crawled again."""
        self.failed = True
        self.beats.stop()
        stop(self.crawler, error, "queue_unusable")

    def _can_enqueue_in_one_step(self, elsewhere: Any) -> bool:
        """Returns True if one script can access queue and filter, and no subclass changes `request_seen`."""
        if elsewhere or not self.plain:
            return False
        if not isinstance(self.server, RedisCluster):
            return True
        slots = {hash_slot(key.encode()) for key in (*self.deliveries.keys, *self.df.filter.keys)}
        return len(slots) == 1

    def _let_go(self) -> None:
        """Marks the requests that the engine has finished as done."""
        slot = engine_slot(self.crawler)
        if slot is None:
            return
        for request in [request for request in self.held if request not in slot.inprogress]:
            self.deliveries.done(self.held.pop(request))

    def _sign_of_life(self) -> int:
        """Extends the lease, and requeues requests that no crawler has. Returns the number of requests in flight."""
        self._let_go()
        back, in_flight = self.deliveries.sign_of_life()
        if back:
            logger.info("Put %d requests that no living crawler has back into the queue", back)
        return in_flight

    def _beat(self) -> int:
        return self._unless_failed(self._sign_of_life, 0)

    def _stay_while_others_work(self) -> None:
        if self._beat():
            raise DontCloseSpider


class _NoClient:
    """A placeholder for a client, until there is one."""

    def __init__(self, **params: Any) -> None:
        pass

    @classmethod
    def from_url(cls, url: str, **params: Any) -> Self:
        return cls()

    def ping(self) -> None:
        pass
