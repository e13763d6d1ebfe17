"""Crawls with a filter that is spread over a cluster. It forgets nothing while slots move, and little when a primary
dies.

A cluster replicates asynchronously: the last writes that a primary acknowledged may not have reached its replica.
`WAIT` limits this loss. The test sends it to each primary after a write, so it returns once the replica has everything
up to that write. A request is added to the filter before it is queued, and queued before its page is served. Therefore,
all pages that were served before the `WAIT` are in the filter, and must not be crawled again. Later pages may be.
"""

import warnings
from pathlib import Path

from cluster import running_cluster
from crawls import LASTING, Crawl, crawl, every_page_once, settings_of_the_page
from oxbloom import ShardedFilter
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter
from servers import OXBLOOM, running, wait_until
from website import Site, site

SHARDS = 16
CRAWLERS = 2


def start(crawl: Crawl, pages: Site) -> None:
    for _ in range(CRAWLERS):
        crawl.follow(pages.url(0), pages.url(1))
    crawl.go()


def test_every_page_is_crawled_once_while_slots_move(tmp_path: Path):
    with running_cluster() as cluster, site(delay=0.02) as pages:
        settings = {**settings_of_the_page("More than one server"), "SCHEDULER_PERSIST": True}
        settings["REDIS_URL"] = cluster.servers[0].url
        seen = ShardedFilter(cluster.client(), "follow:bloomfilter", shards=SHARDS)
        with crawl(
            cluster.servers[0], tmp_path, DUPEFILTER_CLASS=LASTING["DUPEFILTER_CLASS"], **settings
        ) as crawled:
            start(crawled, pages)
            for share in (0.1, 0.3, 0.5, 0.7):
                wait_until(lambda: len(crawled.crawled()) > share * pages.pages)  # noqa: B023
                cluster.shuffle([*seen.keys, "follow:requests"])
            for crawler in crawled.crawlers:
                crawler.finish()
        every_page_once(crawled, pages)
        assert {cluster.primary_of(key) for key in seen.keys} == set(cluster.primaries())
        assert seen.card() > pages.pages


def test_pages_that_were_crawled_before_a_wait_are_not_crawled_again_when_a_primary_is_killed(
    tmp_path: Path,
):
    with (
        running_cluster() as cluster,
        running(OXBLOOM) as queue,
        site(delay=0.02) as pages,
    ):
        filter = {"url": cluster.servers[0].url, "redis_cls": "redis.cluster.RedisCluster"}
        settings = {"BLOOMFILTER_REDIS_PARAMS": filter, "BLOOMFILTER_SHARDS": SHARDS}
        seen = ShardedFilter(cluster.client(), "follow:bloomfilter", shards=SHARDS)
        with crawl(queue, tmp_path, SCHEDULER_PERSIST=True, **LASTING, **settings) as crawled:
            start(crawled, pages)
            wait_until(lambda: len(pages.visits()) > 0.3 * pages.pages)
            cluster.shuffle(seen.keys[:4])
            before = set(pages.visits())
            assert cluster.wait_all()
            killed = cluster.kill_primary_of(seen.keys[0])
            cluster.start_again(killed)
            stats = [crawler.finish() for crawler in crawled.crawlers]

        assert set(crawled.crawled()) == set(range(pages.pages))
        twice = {page for page, times in pages.visits().items() if times > 1}
        # If a reply is lost, it is not known whether the request is new. Then it is crawled.
        uncertain = sum(one.get("bloomfilter/uncertain", 0) for one in stats)
        assert len(twice & before) <= uncertain < len(before) / 4
        assert len(before) < pages.pages
        # Scrapy 2.11 warns about its default.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fingerprint = RequestFingerprinter().fingerprint
        requests = (Request(pages.url(page)) for page in before)
        assert all(seen.contains_all(fingerprint(request).hex() for request in requests))
