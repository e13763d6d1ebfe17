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
    prefix: str = ""

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
        window, slices = written(settings, "BLOOMFILTER_WINDOW"), settings.get("BLOOMFILTER_SLICES")
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
            settings.get("BLOOMFILTER_PREFIX") or "",
        )


def setting_for(argument: str) -> str:
    """Returns the setting for an argument of `ShardedFilter`."""
    return f"BLOOMFILTER_{argument.upper()}"


def equivalent(settings: BaseSettings) -> tuple[int, float] | None:
    """Returns the capacity and the error rate of a filter of scrapy-redis-bloomfilter with these settings.

    Such a filter errs more often than its users expect: at the default of 6 functions, at 2^-6 or 1.56 %. It has m = 2^BIT bits and k = HASH_NUMBER hash functions. It is at its optimum when half of its bits are
    set (Bloom 1970). This is after m ln 2 / k items, and the false-positive rate is then 2^-k.
    """
    if settings.get("BLOOMFILTER_BIT") is None and settings.get("BLOOMFILTER_HASH_NUMBER") is None:
        return None
    bits = 2 ** number(settings, "BLOOMFILTER_BIT", int, BIT, 1, 45)
    functions = number(settings, "BLOOMFILTER_HASH_NUMBER", int, HASH_NUMBER, 1, 40)
    return max(1, math.floor(bits * math.log(2) / functions)), 2.0**-functions


def key_for(settings: BaseSettings, name: str, default: str, spider: str) -> str:
    """Returns the key of a spider's filter or queue. Raises ValueError if the setting is no text for the name."""
    template = settings.get(name) or default
    if not isinstance(template, str) or "%" in template.replace("%%", "").replace("%(spider)s", ""):
        raise ValueError(
            f"{name} must be a text in which %(spider)s stands for the spider's name, and %% for a percent sign, not "
            f"{template!r}"
        )
    return template % {"spider": spider}


def params(settings: BaseSettings, name: str) -> dict[str, Any]:
    """Returns a setting with the parameters of a client. Raises ValueError, with its name, if it is no dict."""
    try:
        return settings.getdict(name)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a dict, not {settings.get(name)!r}") from None


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
    number = _parsed(value, kind)
    if number is None or not lowest <= number <= highest:
        raise ValueError(f"{name} must be a number from {lowest} to {highest}, not {value!r}")
    return number


def written(settings: BaseSettings, name: str) -> Any:
    """Returns a setting, as a whole number if it is the text of one, such as `7d`."""
    value = settings.get(name)
    number = _parsed(value, int) if isinstance(value, str) else None
    return value if number is None else number


UNITS = {"%": 0.01, "s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""What a number is multiplied by if its unit follows, as in `0.1%` and `7d`."""


def _parsed(value: Any, kind: Any) -> Any:
    """Converts a number as people write it, such as `1e6`, `0.1%` or `7d`, to `kind`. Returns None if it is not one."""
    if isinstance(value, str):
        text = value.strip()
        unit = next((unit for unit in UNITS if text.endswith(unit)), "")
        number = _parsed(text.removesuffix(unit), float) if unit else None
        value = text if number is None else number * UNITS[unit]
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        number = float(value)
        return kind(number) if number == kind(number) else None
    except (TypeError, ValueError, OverflowError):
        return None
