"""Bloom filters: in this process, with the bits that they have on a server with oxbloom, and on such servers.

>>> from oxbloom import BloomFilter
>>> seen = BloomFilter(capacity=1_000_000, error_rate=0.001)
>>> seen.add("https://example.com/")  # True if it was there already
False
>>> "https://example.com/" in seen
True

With redis-py (`pip install "oxbloom[redis]"`), `ShardedFilter` and `AsyncShardedFilter` are filters on a server, spread over
several keys. With Scrapy (`pip install "oxbloom[scrapy]"`), `oxbloom.scrapy` is a dupefilter.
"""

from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oxbloom._oxbloom import BloomFilter, FilterFullError
from oxbloom._types import Info, Part

if TYPE_CHECKING:
    from oxbloom._sharded import AsyncShardedFilter as AsyncShardedFilter
    from oxbloom._sharded import FilterError as FilterError
    from oxbloom._sharded import FilterMismatchError as FilterMismatchError
    from oxbloom._sharded import KeyTakenError as KeyTakenError
    from oxbloom._sharded import ModuleMissingError as ModuleMissingError
    from oxbloom._sharded import ShardedFilter as ShardedFilter
    from oxbloom._sharded import ShardedInfo as ShardedInfo

__all__ = ["BloomFilter", "FilterFullError", "Info", "Part", "__version__", "module_path"]

__version__ = version("oxbloom")


def module_path() -> Path:
    """Returns where the server module is that comes with this package, for the server's loadmodule.

    Raises FileNotFoundError if the package was built without it.
    """
    path = Path(__file__).with_name("liboxbloom.so")
    if not path.is_file():
        raise FileNotFoundError(
            f"this build of the package has no server module: {path} is missing"
        )
    return path


# Not in `__all__`, so that `from oxbloom import *` works without redis-py.
_ON_SERVERS = {
    "AsyncShardedFilter",
    "FilterError",
    "FilterMismatchError",
    "KeyTakenError",
    "ModuleMissingError",
    "ShardedFilter",
    "ShardedInfo",
}


def __getattr__(name: str) -> Any:
    """Imports what needs redis-py when it is first used."""
    if name not in _ON_SERVERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("oxbloom._sharded"), name)
