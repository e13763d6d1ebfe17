"""Checks the window of a filter, converts it to options of commands, and reads it from BF.INFO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

SLICES = 15
"""The default number of slices: an item is forgotten at most a 15th of the window late."""

NONE = "no window"

FEWEST, MOST = 2, 64
LONGEST = 100 * 31_557_600
"""A hundred years, in seconds."""


@dataclass(frozen=True)
class Window:
    """The time for which items are remembered. It has slices: an item is forgotten at most one slice late."""

    seconds: int
    """0 if items are forgotten only by their number, as in a filter that was created with ROLLING alone."""
    slices: int = SLICES
    refresh: bool = False
    """True if an item's window starts again when the item is added again."""
    rolling: bool = False
    """True if a full filter forgets the oldest items. This package does not create such filters on servers."""

    @classmethod
    def of(
        cls,
        window: object,
        *,
        refresh: bool,
        slices: object,
        counting: bool,
        name: Callable[[str], str] = str,
    ) -> Window | None:
        """Returns the window for some arguments or settings.

        Raises ValueError for invalid ones. `name` converts an argument's name to the one in the message.
        """
        if window is None:
            for what, given in (("refresh", refresh), ("slices", slices is not None)):
                if given:
                    raise ValueError(
                        f"{name(what)} needs {name('window')}: without a window, nothing is forgotten"
                    )
            return None
        if counting:
            raise ValueError(
                f"{name('window')} and {name('counting')} cannot be combined: leave one of them out"
            )
        seconds = _whole(window)
        if seconds is None or not 1 <= seconds <= LONGEST:
            raise ValueError(
                f"{name('window')} must be a whole number of seconds from 1 to {LONGEST} (100 years), or a timedelta, "
                f"not {window!r}"
            )
        parts = SLICES if slices is None else _whole(slices)
        if parts is None or not FEWEST <= parts <= MOST:
            raise ValueError(
                f"{name('slices')} must be a whole number from {FEWEST} to {MOST}, not {slices!r}"
            )
        return cls(seconds, parts, refresh)

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Window | None:
        """Returns the window of a filter, from the fields of `BF.INFO key ALL`."""
        if facts["Slices"] is None:
            return None
        seconds, slices = facts["Window"] or 0, facts["Slices"]
        return cls(seconds, slices, bool(facts["Refresh"]), bool(facts["Rolling"]))

    @property
    def options(self) -> tuple[str | int, ...]:
        """The options of BF.RESERVE and BF.INSERT for this window."""
        options = ("WINDOW", self.seconds, "SLICES", self.slices)
        return (*options, "REFRESH") if self.refresh else options

    def __str__(self) -> str:
        length = f"a window of {self.seconds} s" if self.seconds else NONE
        options = [f"SLICES {self.slices}"]
        options += ["REFRESH"] * self.refresh + ["ROLLING"] * self.rolling
        return f"{length} ({', '.join(options)})"


def _whole(value: Any) -> int | None:
    """Converts a number, a text or a timedelta to a whole number (of seconds). Returns None if it is not one."""
    if isinstance(value, timedelta):
        value = value / timedelta(seconds=1)
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isinstance(value, str) or number == value else None
