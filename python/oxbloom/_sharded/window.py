"""For how long a filter remembers its items: what can be asked for, the options that say it, and what BF.INFO says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

SLICES = 8
"""The slices of a window by default: an item is forgotten late by at most an eighth of the window."""

NONE = "no window"

FEWEST, MOST = 2, 64
LONGEST = 100 * 31_557_600
"""Seconds: a hundred years."""


@dataclass(frozen=True)
class Window:
    """Each item is remembered for so many seconds, and for one slice more at most."""

    seconds: int
    """0 if only the number of items counts, as in a filter that was created with ROLLING alone."""
    slices: int = SLICES
    refresh: bool = False
    """Whether the window begins anew whenever an item is added."""
    rolling: bool = False
    """Whether the oldest items are forgotten when there is no room. Only filters that others created do that."""

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
        """Returns the window that arguments or settings ask for. Raises ValueError, with the `name` of what makes no sense."""
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
        """Returns the window of a filter, from what `BF.INFO key ALL` says of it."""
        if facts["Slices"] is None:
            return None
        seconds, slices = facts["Window"] or 0, facts["Slices"]
        return cls(seconds, slices, bool(facts["Refresh"]), bool(facts["Rolling"]))

    @property
    def options(self) -> tuple[str | int, ...]:
        """The options of BF.RESERVE and BF.INSERT."""
        options = ("WINDOW", self.seconds, "SLICES", self.slices)
        return (*options, "REFRESH") if self.refresh else options

    def __str__(self) -> str:
        length = f"a window of {self.seconds} s" if self.seconds else NONE
        options = [f"SLICES {self.slices}"]
        options += ["REFRESH"] * self.refresh + ["ROLLING"] * self.rolling
        return f"{length} ({', '.join(options)})"


def _whole(value: Any) -> int | None:
    """Returns a whole number, the seconds of a time; None for anything else."""
    if isinstance(value, timedelta):
        value = value / timedelta(seconds=1)
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isinstance(value, str) or number == value else None
