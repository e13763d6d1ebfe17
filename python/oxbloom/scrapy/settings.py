"""Reads the options of the filter and the scheduler from a project's settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from oxbloom._sharded.filter import CAPACITY, ERROR_RATE
from oxbloom._sharded.window import Window

from .failures import cancel_on_error
from .retries import Retries

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

KEY = "%(spider)s:bloomfilter"
BIT = 30
HASH_NUMBER = 6
PATIENCE = 60.0
LEASE = 60


@dataclass(frozen=True)
class Options:
    """The options in the settings."""

    capacity: int = CAPACITY
    error_rate: float = ERROR_RATE
    counting: bool = False
    shards: int = 1
    retries: Retries = field(default_factory=lambda: Retries(PATIENCE))
    lease: int = LEASE
    """In seconds."""
    window: int | timedelta | None = None
    refresh: bool = False
    slices: int | None = None

    @classmethod
    def of(cls, crawler: Crawler) -> Self:
        """Returns the options in a crawler's settings. If they are invalid, cancels the crawl and returns defaults."""
        with cancel_on_error(crawler):
            return cls.from_settings(crawler.settings)
        return cls()

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        """Returns the options in some settings. Raises ValueError, with the setting's name, for an invalid value."""
        capacity, error_rate = equivalent(settings) or (CAPACITY, ERROR_RATE)
        counting = flag(settings, "BLOOMFILTER_COUNTING")
        window, slices = settings.get("BLOOMFILTER_WINDOW"), settings.get("BLOOMFILTER_SLICES")
        refresh = flag(settings, "BLOOMFILTER_REFRESH")
        Window.of(window, refresh=refresh, slices=slices, counting=counting, name=setting_for)
        return cls(
            number(settings, "BLOOMFILTER_CAPACITY", int, capacity, 1, 2**63 - 1),
            number(settings, "BLOOMFILTER_ERROR_RATE", float, error_rate, 1e-15, 1 - 1e-9),
            counting,
            number(settings, "BLOOMFILTER_SHARDS", int, 1, 1, 16384),
            Retries(number(settings, "BLOOMFILTER_PATIENCE", float, PATIENCE, 0, 1e9)),
            number(settings, "SCHEDULER_LEASE", int, LEASE, 1, 86_400),
            window,
            refresh,
            slices,
        )


def setting_for(argument: str) -> str:
    """Returns the setting for an argument of `ShardedFilter`."""
    return f"BLOOMFILTER_{argument.upper()}"


def equivalent(settings: BaseSettings) -> tuple[int, float] | None:
    """Returns the capacity and the error rate of a filter of scrapy-redis-bloomfilter with these settings.

    Such a filter has m = 2^BIT bits and k = HASH_NUMBER hash functions. It is at its optimum when half of its bits are
    set (Bloom 1970). This is after m ln 2 / k items, and the false-positive rate is then 2^-k.
    """
    if settings.get("BLOOMFILTER_BIT") is None and settings.get("BLOOMFILTER_HASH_NUMBER") is None:
        return None
    bits = 2 ** number(settings, "BLOOMFILTER_BIT", int, BIT, 1, 45)
    functions = number(settings, "BLOOMFILTER_HASH_NUMBER", int, HASH_NUMBER, 1, 40)
    return max(1, math.floor(bits * math.log(2) / functions)), 2.0**-functions


def flag(settings: BaseSettings, name: str) -> bool:
    """Returns a setting as True or False. Raises ValueError, with its name, if it is neither."""
    try:
        return settings.getbool(name)
    except ValueError:
        raise ValueError(f"{name} must be True or False, not {settings.get(name)!r}") from None


def number(
    settings: BaseSettings, name: str, kind: Any, default: Any, lowest: float, highest: float
) -> Any:
    """Returns a setting as an int or a float. Raises ValueError if it is not a number or is out of range."""
    value = settings.get(name)
    if value is None:
        return default
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not lowest <= number <= highest:
        raise ValueError(f"{name} must be a number from {lowest} to {highest}, not {value!r}")
    return number
