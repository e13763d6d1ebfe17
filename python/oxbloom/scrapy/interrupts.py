"""Breaks off a command that blocks the event loop at Ctrl-C.

Scrapy's handler of SIGINT and SIGTERM only asks the event loop to stop, and the loop does not run while a command waits for
a server. So our own handler calls Scrapy's, and if a command still waits GRACE seconds after it began, an alarm breaks it
off. Quicker commands are finished, so that a crawl whose server answers stops in order.
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
    """A command was broken off. It is no `Exception`, so that no client takes it for an error of the connection."""


class _Handler:
    """Handles a signal that ends the process, in place of the handler that was there, which it calls."""

    def __init__(self) -> None:
        self.replaced: dict[int, Any] = {}
        self.began: float | None = None
        """The time at which the present command began."""
        self.alarmed = False

    def install(self) -> None:
        """Takes the place of all handlers that are not this one. Scrapy replaces its own at the first signal."""
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
    """Raises `Interrupted` at Ctrl-C. Does nothing outside the main thread, and on Windows, which has no alarm."""
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
