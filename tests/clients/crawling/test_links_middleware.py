"""Tests the middleware that looks up all links of a page with one command. `test_crawls.py` has more crawls with it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from crawls import ALL_SCHEDULERS, LOOKING_UP, crawl, every_page_once, thorough
from oxbloom.scrapy import LinksMiddleware, RFPDupeFilter
from oxbloom.scrapy.links import CHUNK
from scrapy import Request
from servers import WITHIN, Server
from website import site

ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
SELECT = "twisted.internet.selectreactor.SelectReactor"


def calls(server: Server) -> dict[str, int]:
    """Returns how often each command was called since the statistics were reset."""
    stats = server.client.info("commandstats")
    return {name.removeprefix("cmdstat_"): figures["calls"] for name, figures in stats.items()}


# ---- Crawls ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reactor", [ASYNCIO, thorough(SELECT)])
@pytest.mark.parametrize("spider", ["follow", "follow_async"])
@ALL_SCHEDULERS
def test_a_crawl_is_the_same_with_fewer_commands(server, tmp_path, settings, spider, reactor):
    stats, additions = [], []
    for number, more in enumerate([{}, LOOKING_UP]):
        server.client.flushall()
        server.client.config_resetstat()
        folder = tmp_path / str(number)
        folder.mkdir()
        with site() as pages, crawl(server, folder, **settings, **more) as one:
            one.go()
            crawler = one.follow(pages.url(0), spider=spider, TWISTED_REACTOR=reactor)
            stats.append(crawler.finish())
            every_page_once(one, pages)
        assert "Traceback" not in crawler.text()
        assert crawler.text().count("Filtered duplicate request") == 1
        additions.append(calls(server)["bf.insert"])
    same = ("bloomfilter/filtered", "dupefilter/filtered", "item_scraped_count", "finish_reason")
    assert [stats[0].get(name) for name in same] == [stats[1].get(name) for name in same]
    looked_up = calls(server).get("bf.existspacked", 0)
    if reactor == SELECT and not looked_up:
        # Without asyncio, asynchronous output is passed on as it is.
        assert additions[0] == additions[1]
    else:
        assert 0 < looked_up <= pages.pages
        assert additions[1] < 0.7 * additions[0]


def test_with_another_dupefilter_it_has_no_effect(server, tmp_path):
    with site() as pages, crawl(server, tmp_path, **LOOKING_UP) as one:
        one.go()
        crawler = one.follow(pages.url(0))
        crawler.finish()
        every_page_once(one, pages)
    assert "Traceback" not in crawler.text()


# ---- The dupefilter -------------------------------------------------------------------------------------------------


def page(number: int, **more: Any) -> Request:
    return Request(f"https://example.com/{number}", **more)


@pytest.mark.parametrize(
    "settings", [{}, {"BLOOMFILTER_COUNTING": True}, {"BLOOMFILTER_SHARDS": 4}], ids=str
)
def test_what_is_looked_up_is_not_added(server, dupefilter, settings):
    seen = dupefilter(**settings)
    seen.look_up([page(number) for number in range(50)])
    assert seen.filter.card() == 0
    assert sum(seen.request_seen(page(number)) for number in range(50)) == 0


def test_of_equal_links_one_is_new(dupefilter):
    seen = dupefilter()
    links = [page(1), page(2), page(1), page(1)]
    seen.look_up(links)
    assert [seen.request_seen(link) for link in links] == [False, False, True, True]


def test_links_that_are_found_cost_no_command(server, dupefilter):
    seen = dupefilter()
    links = [page(number) for number in range(50)]
    for link in links:
        seen.request_seen(link)
    server.client.config_resetstat()
    seen.look_up(links)
    assert sum(map(seen.request_seen, links)) == len(links)
    assert calls(server) == {"bf.existspacked": 1, "config|resetstat": 1}


def test_an_answer_is_used_once_and_only_for_the_same_request(dupefilter):
    seen = dupefilter(BLOOMFILTER_COUNTING=True)
    link = page(1)
    assert not seen.request_seen(link)
    again = link.copy()
    seen.look_up([again])
    assert seen.forget(link)
    assert not seen.request_seen(page(1))
    assert seen.request_seen(again)
    assert seen.forget(page(1))
    assert not seen.request_seen(again)


def test_a_look_up_replaces_an_earlier_one(dupefilter):
    seen = dupefilter(BLOOMFILTER_COUNTING=True)
    link = page(1)
    assert not seen.request_seen(link)
    seen.look_up([link])
    assert seen.forget(link)
    seen.look_up([link])
    assert not seen.request_seen(link)


def test_with_a_window_that_is_refreshed_every_link_is_added(server, dupefilter):
    seen = dupefilter(BLOOMFILTER_WINDOW=3600, BLOOMFILTER_REFRESH=True)
    links = [page(number) for number in range(10)]
    for link in links:
        seen.request_seen(link)
    server.client.config_resetstat()
    seen.look_up(links)
    assert sum(map(seen.request_seen, links)) == len(links)
    assert calls(server) == {"bf.insert": 10, "config|resetstat": 1}


# ---- The middleware -------------------------------------------------------------------------------------------------


class Recording(RFPDupeFilter):
    """Records what is looked up."""

    def __init__(self) -> None:
        self.looked_up: list[list[Request]] = []

    def look_up(self, requests: Any) -> None:
        self.looked_up.append(list(requests))


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.fixture
def middleware(recording: Recording) -> LinksMiddleware:
    slot = SimpleNamespace(scheduler=SimpleNamespace(df=recording))
    crawler: Any = SimpleNamespace(engine=SimpleNamespace(_slot=slot))
    return LinksMiddleware.from_crawler(crawler)


def outcome(
    middleware: LinksMiddleware, output: list[Any], *, is_async: bool, error: Exception | None
) -> list[Any]:
    """Returns what the middleware passes on, and the error that it raises."""
    passed: list[Any] = []

    def callback() -> Iterator[Any]:
        yield from output
        if error:
            raise error

    async def async_callback() -> AsyncIterator[Any]:
        for each in callback():
            yield each

    async def read() -> None:
        async for each in middleware.process_spider_output_async(None, async_callback()):
            passed.append(each)

    try:
        if is_async:
            asyncio.run(asyncio.wait_for(read(), WITHIN))
        else:
            passed.extend(middleware.process_spider_output(None, callback()))
    except ZeroDivisionError as raised:
        passed.append(raised)
    return passed


BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@BOTH
@pytest.mark.parametrize("error", [None, ZeroDivisionError()], ids=["whole", "failing"])
@pytest.mark.parametrize("size", [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_output_is_passed_on_in_order(middleware, recording, is_async, error, size):
    output = [{"item": number} if number % 5 == 3 else page(number) for number in range(size)]
    expected = [*output, error] if error else output
    assert outcome(middleware, output, is_async=is_async, error=error) == expected
    requests = [each for each in output if isinstance(each, Request)]
    looked_up = [each for chunk in recording.looked_up for each in chunk]
    # A last request that is alone is not looked up.
    assert looked_up in (requests, requests[:-1])
    assert all(2 <= len(chunk) <= CHUNK for chunk in recording.looked_up)


@BOTH
def test_requests_that_bypass_the_filter_are_not_looked_up(middleware, recording, is_async):
    output = [page(number, dont_filter=number % 2 == 0) for number in range(10)]
    assert outcome(middleware, output, is_async=is_async, error=None) == output
    assert recording.looked_up == [output[1::2]]


def test_a_callback_that_waits_is_not_held_back(middleware, recording):
    async def follow() -> None:
        arrived = asyncio.Event()
        output = [page(number) for number in range(4)]

        async def callback() -> AsyncIterator[Any]:
            for each in output[:3]:
                yield each
            await arrived.wait()
            yield output[3]

        passed = []
        async for each in middleware.process_spider_output_async(None, callback()):
            passed.append(each)
            if each is output[2]:
                arrived.set()
        assert passed == output
        assert recording.looked_up == [output[:3]]

    asyncio.run(asyncio.wait_for(follow(), WITHIN))


def test_a_callback_is_read_at_most_a_chunk_ahead(middleware):
    async def follow() -> None:
        yielded = 0

        async def callback() -> AsyncIterator[Any]:
            nonlocal yielded
            while True:
                yielded += 1
                yield page(yielded)

        output = middleware.process_spider_output_async(None, callback())
        for number in range(1, 5 * CHUNK):
            await anext(output)
            assert yielded <= number + 2 * CHUNK
        await output.aclose()

    asyncio.run(asyncio.wait_for(follow(), WITHIN))


def test_a_timeout_in_a_callback_works(middleware):
    async def follow() -> None:
        async def callback() -> AsyncIterator[Any]:
            yield page(1)
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                yield page(2)

        passed = middleware.process_spider_output_async(None, callback())
        assert [each.url async for each in passed] == [page(1).url, page(2).url]

    asyncio.run(asyncio.wait_for(follow(), WITHIN))
