"""A dupefilter and a scheduler for Scrapy, on a Redis or Valkey server with the oxbloom module.

* `RFPDupeFilter`: for `DUPEFILTER_CLASS`, with scrapy-redis's scheduler or Scrapy's own. It checks and adds a request
  in one round trip.
* `Scheduler`: for `SCHEDULER`. It is scrapy-redis's scheduler, except that a crawler that is killed loses no request.
"""

from oxbloom._extras import require

require("scrapy", "redis", "scrapy", "scrapy_redis")

from .dupefilter import RFPDupeFilter
from .scheduler import Scheduler

__all__ = ["RFPDupeFilter", "Scheduler"]
