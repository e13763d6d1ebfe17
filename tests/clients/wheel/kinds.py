"""Filters of all kinds, each with a number of items that fills it, or makes it grow. Their seeds are fixed, so that no
item has another one's hash by chance.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from oxbloom import BloomFilter


class Kind(NamedTuple):
    create: Callable[[], BloomFilter]
    items: int


DAY = timedelta(days=1)
KINDS = {
    "native": Kind(lambda: BloomFilter(1000, 0.01, seed=7), 900),
    "small": Kind(lambda: BloomFilter(3, 0.001, seed=7), 3),
    "grown": Kind(lambda: BloomFilter(100, 0.001, growing=True, seed=7), 5000),
    "linear": Kind(lambda: BloomFilter(100, 0.001, growing=1, seed=7), 300),
    "large": Kind(lambda: BloomFilter(10_000_000, 0.01, seed=7), 20_000),
    "counting": Kind(lambda: BloomFilter(1000, 0.01, counting=True, seed=7), 900),
    "growing counting": Kind(
        lambda: BloomFilter(100, 0.01, counting=True, growing=4, seed=7), 5000
    ),
    "window": Kind(lambda: BloomFilter(1000, 0.01, window=DAY, seed=7), 900),
    "growing window": Kind(lambda: BloomFilter(100, 0.01, window=DAY, growing=True, seed=7), 5000),
    "refreshed": Kind(
        lambda: BloomFilter(1000, 0.01, window=DAY, refresh=True, slices=4, seed=7), 900
    ),
    "rolling": Kind(lambda: BloomFilter(1000, 0.01, rolling=True, seed=7), 900),
    "classic": Kind(lambda: BloomFilter(1000, 0.01, classic=True), 900),
    "grown classic": Kind(lambda: BloomFilter(100, 0.01, classic=True, growing=2), 5000),
}


def items(count: int) -> list[str]:
    return [f"item {number}" for number in range(count)]


def filled(name: str) -> tuple[BloomFilter, list[str]]:
    kind = KINDS[name]
    filter = kind.create()
    members = items(kind.items)
    filter.add_all(members)
    return filter, members


ODD_KEYS = [
    b"plain",
    b"{tagged}:1",
    b"a{tagged}b}",
    b"{}empty tag",
    b"open{",
    b"closed}",
    b"}{",
    b"{",
    b"}",
    b"",
    b"line\nfeed\r\n",
    b"\0\xff\xfe",
    "фильтр".encode(),
]
"""Keys whose hash slots are hard to find."""
