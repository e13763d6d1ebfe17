"""A Bloom filter spread over many keys: `ShardedFilter` and `AsyncShardedFilter`, on a client of redis-py."""

from oxbloom._extras import require

require("redis", "redis")

from .errors import FilterError, FilterMismatchError, KeyTakenError, ModuleMissingError
from .filter import AsyncShardedFilter, ShardedFilter, ShardedInfo

__all__ = [
    "AsyncShardedFilter",
    "FilterError",
    "FilterMismatchError",
    "KeyTakenError",
    "ModuleMissingError",
    "ShardedFilter",
    "ShardedInfo",
]
