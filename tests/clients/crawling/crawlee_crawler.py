"""A crawler with Crawlee, in a process of its own: crawlee_crawler.py SERVER_URL QUEUE START_URL BLOCKED_SECONDS.

Follows all links to `/page`. If the queue exists, the crawler continues with it. A request that was taken from the
queue and not handled is available again after BLOCKED_SECONDS.
"""

import asyncio
import re
import sys
import warnings
from datetime import timedelta

from crawlee import ConcurrencySettings, Request
from crawlee.configuration import Configuration
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.storage_clients import RedisStorageClient
from crawlee.storage_clients._redis import _request_queue_client
from crawlee.storages import RequestQueue

warnings.filterwarnings("ignore", message="The RedisStorageClient is experimental")


async def main(url: str, queue: str, start: str, blocked: str) -> None:
    # Crawlee has no settings for these times.
    _request_queue_client.RedisRequestQueueClient._BLOCK_REQUEST_TIME = int(1000 * float(blocked))
    _request_queue_client.RedisRequestQueueClient._RECLAIM_INTERVAL = timedelta(seconds=1)
    client = RedisStorageClient(connection_string=url, queue_dedup_strategy="bloom")
    settings = Configuration(purge_on_start=False)
    requests = await RequestQueue.open(name=queue, storage_client=client, configuration=settings)
    crawler = HttpCrawler(
        request_manager=requests,
        storage_client=client,
        configuration=settings,
        concurrency_settings=ConcurrencySettings(desired_concurrency=4, max_concurrency=4),
        request_handler_timeout=timedelta(seconds=60),
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def follow(context: HttpCrawlingContext) -> None:
        body = (await context.http_response.read()).decode()
        root = start.partition("/page")[0]
        found = re.findall(r'href="(/page[^"]*)"', body)
        await context.add_requests([Request.from_url(root + link) for link in found])

    await crawler.run([start])


asyncio.run(main(*sys.argv[1:]))
