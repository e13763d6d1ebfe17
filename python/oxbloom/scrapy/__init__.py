"""A dupefilter and a scheduler for Scrapy, on a Redis or Valkey server with the oxbloom module.

* `RFPDupeFilter`: for `DUPEFILTER_CLASS`, with scrapy-redis's scheduler or Scrapy's own. It checks and adds a request
  in one round trip.
* `Scheduler`: for `SCHEDULER`. It is scrapy-redis's scheduler, except that a crawler that is killed loses no request.
* `LinksMiddleware`: for `SPIDER_MIDDLEWARES`. It looks up all links of a page with one command.
"""

from oxbloom._extras import require

require("scrapy", "redis", "scrapy", "scrapy_redis")

from .dupefilter import RFPDupeFilter
from .links import LinksMiddleware
from .scheduler import Scheduler

__all__ = ["LinksMiddleware", "RFPDupeFilter", "Scheduler"]
