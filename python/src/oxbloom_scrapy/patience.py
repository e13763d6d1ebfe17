"""Commands to a server that may be away for a while: it restarts, or its replica takes over.

redis-py's own retries send a command again when its answer was lost, and take the second answer for the first. For an addition
that may be wrong: if the first had arrived, the second is told that the item is there already, and a page that nobody has crawled
is dropped. So our clients do not retry, and `Patience` tells when there were attempts before the one that was answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ConnectionError,
    ReadOnlyError,
    RedisClusterException,
    TimeoutError,
    TryAgainError,
)

logger = logging.getLogger(__name__)

PAUSES = (0.02, 1.0)
"""Seconds between attempts: the first pause, which doubles, and the longest."""

AWAY = (
    ConnectionError,
    TimeoutError,
    ClusterDownError,
    TryAgainError,
    ReadOnlyError,
    RedisClusterException,
)
REFUSED = (AuthenticationError, AuthorizationError)

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    value: T
    certain: bool
    """Whether no earlier attempt can have had the effect already."""


class Patience:
    """How long to try, in seconds; but when that was in vain, only once until there is an answer again."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.lost = False

    def until_answered(self, command: Callable[[], T]) -> Answer[T]:
        """Tries until there is an answer. Raises what the last attempt raised when the time is over."""
        end = time.monotonic() + (0 if self.lost else self.seconds)
        pause, longest = PAUSES
        attempts, certain = 0, True
        while True:
            try:
                answer = command()
            except AWAY as error:
                if isinstance(error, REFUSED) or time.monotonic() + pause > end:
                    self.lost = True
                    raise
                if not attempts:
                    logger.warning(
                        "The server does not answer (%s); trying for %g s", error, self.seconds
                    )
                attempts += 1
                # Nothing can have had an effect if there was nobody to connect to.
                certain = certain and isinstance(error.__context__, ConnectionRefusedError)
            else:
                self.lost = False
                return Answer(answer, certain)
            time.sleep(pause)
            pause = min(2 * pause, longest)
