"""Bloom filters in this process, and on Redis and Valkey servers with oxbloom. The bits are the same in both places.

>>> from oxbloom import BloomFilter
>>> seen = BloomFilter(capacity=1_000_000, error_rate=0.001)
>>> seen.add("https://example.com/")  # True if it was there already
False
>>> "https://example.com/" in seen
True

With redis-py or valkey-py, there are filters on servers: `RemoteFilter` in one key, `ShardedFilter` over several keys,
and `AsyncRemoteFilter` and `AsyncShardedFilter`. `LiveFilter` and `AsyncLiveFilter` are copies in this process that
follow a filter on a server. `pip install "oxbloom[scrapy]"` adds `oxbloom.scrapy`, a dupefilter and a scheduler for
Scrapy.
"""

from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oxbloom._oxbloom import BloomFilter, FilterFullError
from oxbloom._types import Info, Part

if TYPE_CHECKING:
    from oxbloom._live import AsyncLiveFilter as AsyncLiveFilter
    from oxbloom._live import LiveFilter as LiveFilter
    from oxbloom._live import StaleCopyError as StaleCopyError
    from oxbloom._sharded import AsyncRemoteFilter as AsyncRemoteFilter
    from oxbloom._sharded import AsyncShardedFilter as AsyncShardedFilter
    from oxbloom._sharded import FilterError as FilterError
    from oxbloom._sharded import FilterMismatchError as FilterMismatchError
    from oxbloom._sharded import KeyTakenError as KeyTakenError
    from oxbloom._sharded import ModuleMissingError as ModuleMissingError
    from oxbloom._sharded import RemoteFilter as RemoteFilter
    from oxbloom._sharded import ShardedFilter as ShardedFilter
    from oxbloom._sharded import ShardedInfo as ShardedInfo

__all__ = ["BloomFilter", "FilterFullError", "Info", "Part", "__version__", "module_path"]

__version__ = version("oxbloom")


def module_path() -> Path:
    """Returns the path of the server module in this package, for the server's loadmodule.

    Raises FileNotFoundError if the package was built without it.
    """
    path = Path(__file__).with_name("liboxbloom.so")
    if not path.is_file():
        raise FileNotFoundError(
            f"this build of the package has no server module: {path} is missing"
        )
    return path


# Not in `__all__`, so that programs that do not use them start faster.
_LIVE = {"AsyncLiveFilter", "LiveFilter", "StaleCopyError"}
_ON_SERVERS = {
    *_LIVE,
    "AsyncRemoteFilter",
    "AsyncShardedFilter",
    "FilterError",
    "FilterMismatchError",
    "KeyTakenError",
    "ModuleMissingError",
    "RemoteFilter",
    "ShardedFilter",
    "ShardedInfo",
}


def __getattr__(name: str) -> Any:
    """Imports the classes for servers when they are first used."""
    if name not in _ON_SERVERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("oxbloom._live" if name in _LIVE else "oxbloom._sharded"), name)


def __dir__() -> list[str]:
    """Returns the public names, for completion in shells. Those for servers are not imported."""
    return sorted({*__all__, *_ON_SERVERS})
