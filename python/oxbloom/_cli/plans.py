"""Predicts the memory and the false-positive rate of filters, for `oxbloom size` and its charts."""

from typing import Any

from oxbloom._oxbloom import plan
from oxbloom._types import Plan

# The exceptions for filters that are too large for any machine.
IMPOSSIBLE = (MemoryError, ValueError, IndexError)


def planned(items: int, capacity: int, error_rate: float, **kind: Any) -> Plan | None:
    """Returns the plan of a filter, or None if the filter is too large."""
    try:
        return plan(items, capacity, error_rate, **kind)
    except IMPOSSIBLE:
        return None
