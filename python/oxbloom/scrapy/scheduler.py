"""scrapy-redis's scheduler, from which a crawler that is killed takes nothing along.

scrapy-redis loses pages in two places when a process dies: a request that was taken from the queue is nowhere but in the crawler's
memory until its page has been dealt with, and one that has been added to the filter, but not yet to the queue, is never crawled.
Here a request stays in Redis until its callbacks and item pipelines are through with it, and is added to filter and queue in one
step, which is one round trip less as well. See `deliveries` for how.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from redis.cluster import RedisCluster
from scrapy import signals
from scrapy.exceptions import DontCloseSpider
from scrapy.settings import Settings
from scrapy.utils.misc import load_object
from scrapy_redis.scheduler import Scheduler as ScrapyRedisScheduler

from oxbloom._slots import hash_slot

from .clients import queue_client
from .compat import create_looping_call, engine_slot
from .deliveries import ORDERS, Deliveries, Order
from .dupefilter import RFPDupeFilter
from .failures import UNUSABLE, cancel, cancel_on_error, is_cancelled, stop
from .settings import Options

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

SIGNS_PER_LEASE = 3

T = TypeVar("T")


class Scheduler(ScrapyRedisScheduler):  # type: ignore[misc]
    """For `SCHEDULER`. The settings are scrapy-redis's, and `SCHEDULER_LEASE`, in seconds.

    A crawler that gives no sign of life for that long is taken for dead, and its requests are taken up by others: make it longer than
    a callback may keep the event loop busy. While requests are in flight anywhere, no crawler ends for lack of work. Without
    SCHEDULER_PERSIST, queue and filter are deleted when the crawl is finished, or by the last crawler that is stopped.
    """

    queue_cls: Any

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """Leaves it to `open` to connect, which knows the crawler that has to stop if that fails."""
        params = {"redis_cls": _NoClient}
        scheduler: Self = super().from_settings(Settings({**settings, "REDIS_PARAMS": params}))
        return scheduler

    def open(self, spider: Spider) -> None:
        self.crawler = spider.crawler
        self.held: dict[Request, str] = {}
        self.failed = True
        options = Options.of(self.crawler)
        kind: Any = load_object(self.queue_cls)
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
        self.one_step = self._is_beside_the_filter(
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
            self.queue_key % {"spider": spider.name},
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

    def _enqueue(self, request: Request) -> bool:
        """Whether the request was put into the queue, because it is new or was not to be filtered."""
        if isinstance(self.df, RFPDupeFilter) and not request.dont_filter:
            self.df.mark(request)
        data = self.queue._encode_request(request)
        entry = b"%d %s" % (-request.priority, data.encode() if isinstance(data, str) else data)
        if self.one_step and not request.dont_filter:
            _, key, *addition = self.df.addition(request)
            return self.deliveries.put_if_new(entry, key, addition)
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
        """What an action comes to, as long as queue and filter can be used."""
        if not self.failed:
            try:
                return action()
            except UNUSABLE as error:
                self._stop(error)
        return otherwise

    def _stop(self, error: Exception) -> None:
        """Ends as if killed: a page whose links could not be stored is not done, and will be crawled again."""
        self.failed = True
        self.beats.stop()
        stop(self.crawler, error, "queue_unusable")

    def _is_beside_the_filter(self, elsewhere: Any) -> bool:
        """Whether one script can do what the filter does, and reach the queue."""
        own = getattr(type(self.df), "request_seen", None)
        if elsewhere or own is not RFPDupeFilter.request_seen:
            return False
        if not isinstance(self.server, RedisCluster):
            return True
        slots = {hash_slot(key.encode()) for key in (*self.deliveries.keys, *self.df.filter.keys)}
        return len(slots) == 1

    def _let_go(self) -> None:
        """Lets go of the requests that the engine is through with."""
        slot = engine_slot(self.crawler)
        if slot is None:
            return
        for request in [request for request in self.held if request not in slot.inprogress]:
            self.deliveries.done(self.held.pop(request))

    def _sign_of_life(self) -> int:
        """Extends the lease, and takes up what the dead were at; how many requests are in flight."""
        self._let_go()
        back, in_flight = self.deliveries.sign_of_life()
        if back:
            logger.info("Taking up %d requests of crawlers that are gone", back)
        return in_flight

    def _beat(self) -> int:
        return self._unless_failed(self._sign_of_life, 0)

    def _stay_while_others_work(self) -> None:
        if self._beat():
            raise DontCloseSpider


class _NoClient:
    """Stands where a client is expected, until there is one."""

    def __init__(self, **params: Any) -> None:
        pass

    @classmethod
    def from_url(cls, url: str, **params: Any) -> Self:
        return cls()

    def ping(self) -> None:
        pass
