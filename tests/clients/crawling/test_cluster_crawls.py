"""A crawl with a filter that is spread over a cluster forgets nothing while slots move.

`wheel/test_sharded_filter_connections.py` tests what such a filter has after a primary has died.
"""

from pathlib import Path

from cluster import running_cluster
from crawls import LASTING, crawl, every_page_once, settings_of_the_page
from oxbloom import ShardedFilter
from servers import wait_until
from website import site


def test_every_page_is_crawled_once_while_slots_move(tmp_path: Path):
    with running_cluster() as cluster, site(delay=0.02) as pages:
        settings = {**settings_of_the_page("More than one server"), "SCHEDULER_PERSIST": True}
        settings["REDIS_URL"] = cluster.servers[0].url
        settings["DUPEFILTER_CLASS"] = LASTING["DUPEFILTER_CLASS"]
        seen = ShardedFilter(cluster.client(), "follow:bloomfilter", shards=16)
        with crawl(cluster.servers[0], tmp_path, **settings) as crawled:
            for _ in range(2):
                crawled.follow(pages.url(0), pages.url(1))
            crawled.go()
            for share in (0.1, 0.3, 0.5, 0.7):
                wait_until(lambda: len(crawled.crawled()) > share * pages.pages)  # noqa: B023
                cluster.shuffle([*seen.keys, "follow:requests"])
            for crawler in crawled.crawlers:
                crawler.finish()
        every_page_once(crawled, pages)
        assert {cluster.primary_of(key) for key in seen.keys} == set(cluster.primaries())
        assert seen.card() > pages.pages
