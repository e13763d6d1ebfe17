"""Draws the charts of `oxbloom size`, with plotille."""

import argparse
import math
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import plotille

from oxbloom._cli import text
from oxbloom._cli.plans import planned
from oxbloom._types import Plan

POINTS = 60
HEIGHT = 16
MARGIN = 24  # for the axis and its labels
MIN_WIDTH, MAX_WIDTH = 30, 96


def of_rate(options: argparse.Namespace) -> str:
    """Returns a chart of the false-positive rate, for 1 item up to the capacity."""
    first, capacity, rate = smallest(options), options.capacity, options.error_rate
    curves = {
        f"fixed, for {capacity:,}": ({}, capacity, "o"),
        f"grown from {first:,}": ({"growing": True}, first, "x"),
    }
    items = [max(1, capacity * step // POINTS) for step in range(POINTS + 1)]
    figure = new_figure("items", "false-positive rate")
    for label, (kind, reserved, marker) in curves.items():
        plans = possible(items, reserved, rate, kind)
        draw(figure, label, marker, [(n, each["false_positive_rate"]) for n, each in plans])
    figure.set_x_limits(0, capacity)
    figure.set_y_limits(0, rate)
    label_axes(figure, x=lambda value: f"{value:.3g}", y=lambda value: f"{value:.2g}")
    return shown(figure)


def of_memory(options: argparse.Namespace) -> str:
    """Returns a chart of the memory of filters that grow. Both axes are logarithmic."""
    first, capacity, rate = smallest(options), options.capacity, options.error_rate
    curves = {
        f"oxbloom, grown from {first:,}": ({"growing": True}, "o"),
        f"RedisBloom, grown from {first:,}": ({"growing": True, "classic": True}, "x"),
    }
    ratio = max(capacity / first, 10.0)
    items = sorted({round(first * ratio ** (step / POINTS)) for step in range(POINTS + 1)})
    figure = new_figure("items", "memory")
    for label, (kind, marker) in curves.items():
        plans = possible(items, first, rate, kind)
        logs = [(math.log10(n), math.log10(each["memory"])) for n, each in plans]
        draw(figure, label, marker, logs)
    figure.set_x_limits(math.log10(items[0]), math.log10(items[-1]))
    label_axes(
        figure, x=lambda value: f"{10**value:.1e}", y=lambda value: text.size(round(10**value))
    )
    return shown(figure)


def smallest(options: argparse.Namespace) -> int:
    first: int = min(options.first, options.capacity)
    return first


def possible(items: list[int], capacity: int, rate: float, kind: Any) -> list[tuple[int, Plan]]:
    """Returns the plans for these numbers of items. Leaves out filters that are too large."""
    plans = ((number, planned(number, capacity, rate, **kind)) for number in items)
    return [(number, each) for number, each in plans if each is not None]


def draw(figure: Any, label: str, marker: str, points: list[tuple[float, float]]) -> None:
    if points:
        # Without colors, markers tell the curves apart.
        chosen = None if figure.with_colors else marker
        figure.plot(*zip(*points, strict=True), label=label, marker=chosen)


def new_figure(x: str, y: str) -> Any:
    figure = plotille.Figure()
    columns = shutil.get_terminal_size().columns
    figure.width, figure.height = min(max(columns - MARGIN, MIN_WIDTH), MAX_WIDTH), HEIGHT
    figure.with_colors = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    figure.origin = False
    figure.x_label, figure.y_label = x, y
    return figure


def label_axes(figure: Any, *, x: Callable[[float], str], y: Callable[[float], str]) -> None:
    def formatted(value: float, chars: int, delta: float, left: bool = False) -> str:
        # plotille sets `left` for labels of the x-axis.
        return x(value).ljust(chars) if left else y(value).rjust(chars)

    figure.register_label_formatter(float, formatted)


def shown(figure: Any) -> str:
    drawn: str = figure.show(legend=True)
    lines: str = drawn.replace("\u2800", " ")  # the Braille character without dots
    return "\n".join(line.rstrip() for line in lines.splitlines())
