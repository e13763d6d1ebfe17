"""Interrupts a command that blocks the event loop, at Ctrl-C or SIGTERM.

Scrapy's handler of SIGINT and SIGTERM only asks the event loop to stop, and the loop does not run while a command waits
for a server. So our own handler calls Scrapy's. If a command still waits GRACE seconds after it began, an alarm
interrupts it. Quicker commands are finished, so a crawl whose server answers stops as usual.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 1.0
"""Seconds."""


class Interrupted(BaseException):
    """Raised in a command to interrupt it. It is not an `Exception`, so no client takes it for a connection error."""


class _Handler:
    """Handles a signal that ends the process, and then calls the handler that it replaced."""

    def __init__(self) -> None:
        self.replaced: dict[int, Any] = {}
        self.began: float | None = None
        """The time at which the current command began, or None between commands."""
        self.alarmed = False

    def install(self) -> None:
        """Replaces all handlers that are not this one. Scrapy installs another handler at the first signal."""
        for number in SIGNALS:
            present = signal.getsignal(number)
            if present is not self and callable(present):
                self.replaced[number] = present
                signal.signal(number, self)

    def __call__(self, number: int, frame: object) -> None:
        if self.began is not None and not self.alarmed:
            self.alarmed = True
            signal.signal(signal.SIGALRM, self.interrupt)
            rest = self.began + GRACE - time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, max(rest, 0.001))
        self.replaced[number](number, frame)

    def interrupt(self, number: int, frame: object) -> None:
        if self.began is not None:
            raise Interrupted

    def end(self) -> None:
        """Notes that the command is over."""
        self.began = None
        if self.alarmed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.alarmed = False


_handler = _Handler()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises `Interrupted` at Ctrl-C or SIGTERM. Does nothing outside the main thread, or on Windows (no alarm)."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    _handler.install()
    _handler.began = time.monotonic()
    try:
        yield
    finally:
        _handler.end()
