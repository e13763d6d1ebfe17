"""A spider middleware that looks up all links of a page with one command.

Most links of a page are known, and without the middleware each of them costs a command. The middleware only checks
which requests the filter has. It adds none, so a request that is dropped later does not count as seen. The dupefilter
still adds each new request with a command of its own, exactly when the request is scheduled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from scrapy import Request

from .compat import engine_slot
from .dupefilter import RFPDupeFilter
from .scheduler import Scheduler

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

CHUNK = 100
"""The number of objects of a callback's output that are collected at most. Scrapy handles as many at once
(CONCURRENT_ITEMS). Their fingerprints block the event loop for about 10 ms."""


class LinksMiddleware:
    """A middleware for `SPIDER_MIDDLEWARES`, with a low number, so that it sees the requests that others let through.

    It passes on the output of callbacks unchanged and in order. It collects what is ready, and does not wait for more:
    when an asynchronous callback waits, what it has yielded is passed on. It has no effect with other dupefilters.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_spider_output(
        self, response: Response, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterator[Any]:
        """Passes on the output of a callback. Newer versions of Scrapy do not call this: all output is asynchronous."""
        output = iter(result)
        while True:
            chunk: list[Any] = []
            try:
                chunk.extend(islice(output, CHUNK))
            except Exception:
                # The list has what was yielded before the error.
                yield from self._looked_up(chunk)
                raise
            if not chunk:
                return
            yield from self._looked_up(chunk)

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        """Passes on the output of a callback. Without asyncio's event loop, looks nothing up."""
        if not _has_loop():
            async for each in result:
                yield each
            return
        ahead = _ReadAhead(result)
        try:
            while chunk := await ahead.chunk():
                for each in self._looked_up(chunk):
                    yield each
        finally:
            ahead.task.cancel()

    def _looked_up(self, chunk: list[Any]) -> list[Any]:
        """Returns a chunk whose requests have been looked up."""
        requests = [each for each in chunk if isinstance(each, Request) and not each.dont_filter]
        slot = engine_slot(self.crawler)
        # A look-up for a single request would save nothing.
        if len(requests) > 1 and slot is not None:
            scheduler = slot.scheduler
            ours = isinstance(scheduler, Scheduler)
            filter = scheduler if ours else getattr(scheduler, "df", None)
            if isinstance(filter, Scheduler | RFPDupeFilter):
                filter.look_up(requests)
        return chunk


class _ReadAhead:
    """Reads up to CHUNK objects ahead, in a task of its own.

    The task runs all of the callback, because timeouts in a callback (`asyncio.timeout`) interrupt the task that they
    began in.
    """

    def __init__(self, output: AsyncIterator[Any]) -> None:
        self.ready: list[Any] = []
        self.filled = asyncio.Event()
        self.emptied = asyncio.Event()
        self.task = asyncio.ensure_future(self._read(output))

    async def chunk(self) -> list[Any]:
        """Waits until something is ready, and returns all that is. At the end, returns [] or raises the error."""
        if not self.task.done():
            await self.filled.wait()
        self.filled.clear()
        chunk, self.ready = self.ready, []
        self.emptied.set()
        if not chunk:
            await self.task
        return chunk

    async def _read(self, output: AsyncIterator[Any]) -> None:
        try:
            async for each in output:
                self.ready.append(each)
                self.filled.set()
                if len(self.ready) >= CHUNK:
                    self.emptied.clear()
                    await self.emptied.wait()
        finally:
            self.filled.set()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
