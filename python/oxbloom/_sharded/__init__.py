"""Bloom filters that are spread over many keys: `ShardedFilter` and `AsyncShardedFilter`, for clients of redis-py."""

from oxbloom._extras import require

require("redis", "redis")

from .errors import FilterError as FilterError
from .errors import FilterMismatchError as FilterMismatchError
from .errors import KeyTakenError as KeyTakenError
from .errors import ModuleMissingError as ModuleMissingError
from .filter import AsyncShardedFilter as AsyncShardedFilter
from .filter import ShardedFilter as ShardedFilter
from .filter import ShardedInfo as ShardedInfo
