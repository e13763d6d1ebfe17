"""Bloom filters in this process, with the bits that they have on a Redis or Valkey server with oxbloom.

>>> from oxbloom import BloomFilter
>>> seen = BloomFilter(capacity=1_000_000, error_rate=0.001)
>>> seen.add("https://example.com/")  # True if it was there already
False
>>> "https://example.com/" in seen
True
"""

from importlib.metadata import version
from pathlib import Path

from oxbloom._oxbloom import BloomFilter, FilterFullError
from oxbloom._types import Info, Part

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
