"""Bloom filters on servers, in one key or spread over many, for clients of redis-py and valkey-py."""

from .commands import ShardedInfo as ShardedInfo
from .errors import FilterError as FilterError
from .errors import FilterMismatchError as FilterMismatchError
from .errors import KeyTakenError as KeyTakenError
from .errors import ModuleMissingError as ModuleMissingError
from .filter import AsyncRemoteFilter as AsyncRemoteFilter
from .filter import AsyncShardedFilter as AsyncShardedFilter
from .filter import RemoteFilter as RemoteFilter
from .filter import ShardedFilter as ShardedFilter
