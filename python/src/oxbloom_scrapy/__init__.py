"""Scrapy's requests, seen or not, in one round trip; and Bloom filters spread over a cluster.

* `RFPDupeFilter`: for `DUPEFILTER_CLASS`, with scrapy-redis's scheduler or Scrapy's own;
* `Scheduler`: scrapy-redis's, from which a crawler that is killed takes nothing along;
* `ShardedFilter`, `AsyncShardedFilter`: one filter over the keys of several servers.

They need a Redis or Valkey server with the oxbloom module.
"""

from .dupefilter import RFPDupeFilter
from .errors import FilterError, FilterMismatchError, KeyTakenError, ModuleMissingError
from .filter import AsyncShardedFilter, Info, ShardedFilter
from .scheduler import Scheduler

__all__ = [
    "AsyncShardedFilter",
    "FilterError",
    "FilterMismatchError",
    "Info",
    "KeyTakenError",
    "ModuleMissingError",
    "RFPDupeFilter",
    "Scheduler",
    "ShardedFilter",
]
