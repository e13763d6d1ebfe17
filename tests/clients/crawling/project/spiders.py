"""The spiders that the tests run."""

import asyncio
import os
import pathlib
import re
import time

import scrapy
from oxbloom.scrapy import RFPDupeFilter
from scrapy_redis.spiders import RedisSpider

TICK = 0.05  # seconds


class Journal:
    """Writes an entry `<id>` for each crawled page to a file that the crawlers share. Entries are not buffered, so that
    they last when a crawler is killed."""

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.spider.journal)

    def __init__(self, journal):
        self.journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def process_item(self, item, spider=None):
        page = re.search(r"\bid=(\d+)", item["url"])[1]
        os.write(self.journal, f"<{page}>\n".encode())
        return item


class WithoutSeven(RFPDupeFilter):
    """A project's own filter. For it, page 7 is always a duplicate."""

    def request_seen(self, request):
        return bool(re.search(r"\bid=7\b", request.url)) or super().request_seen(request)


class Textbook(scrapy.Spider):
    """Requests 0 to 9, and then 0 to 99."""

    name = "textbook"

    def start_requests(self):  # before Scrapy 2.13
        for number in [*range(10), *range(100)]:
            yield scrapy.Request(f"{self.site}/item?id={number}")

    async def start(self):
        for request in self.start_requests():
            yield request

    def parse(self, response):
        yield {"url": response.url}


class Silent(scrapy.Spider):
    """Requests the page in `url`, if there is one, but has no callback."""

    name = "silent"
    url = ""

    def start_requests(self):  # before Scrapy 2.13
        return [scrapy.Request(self.url)] if self.url else []

    async def start(self):
        for request in self.start_requests():
            yield request


class Follow(scrapy.Spider):
    """Follows every link, once a file named `go` exists.

    When the spider is banned from a page, it requests the page again. Before, it forgets the page, unless `again` is
    `unforgotten`.
    """

    name = "follow"

    def start_requests(self):  # before Scrapy 2.13
        # Not a generator, since Scrapy would not start a generator before the queue of an earlier crawl is empty.
        self.say_ready()
        while not os.path.exists(self.go):
            time.sleep(0.01)
        return self.first_requests()

    async def start(self):
        self.say_ready()
        while not os.path.exists(self.go):
            await asyncio.sleep(0.01)
        for request in self.first_requests():
            yield request

    def say_ready(self):
        pathlib.Path(f"{self.go}-{os.getpid()}").touch()

    def first_requests(self):
        begin = os.stat(self.go).st_mtime + TICK
        for number, url in enumerate(self.urls.split()):
            # All crawlers of a crawl request the same page at the same moment. This blocks, so that nothing else
            # happens before.
            time.sleep(max(0, begin + number * TICK - time.time()))
            yield scrapy.Request(url)

    def parse(self, response):
        if "banned" in response.text:
            if self.again != "unforgotten":
                forgotten = RFPDupeFilter.of(self.crawler).forget(response.request)
                self.crawler.stats.inc_value(f"forgotten/{forgotten}")
            yield response.request.replace(dont_filter=False)
            return
        yield from response.follow_all(css="a")
        yield {"url": response.url}


class FollowAsync(Follow):
    """Follows every link, with an asynchronous callback."""

    name = "follow_async"

    async def parse(self, response):
        for each in super().parse(response):
            yield each


class Fed(RedisSpider):
    """Follows every link, from the URLs in a list in Redis. Ends when it has been idle for a while."""

    name = "fed"
    max_idle_time = 2

    def parse(self, response):
        yield from response.follow_all(css="a")
        yield {"url": response.url}
