"""Repeats commands to a server that is away for a while, because it restarts or its replica takes over.

redis-py's own retries send a command again if its reply was lost, and return the second reply. After an addition, this
reply can be wrong: if the first attempt added the item, the second one finds it, and a page that nobody has crawled is
dropped. So our clients do not retry, and `Retries` also returns whether an earlier attempt may have had an effect.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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

from oxbloom._sharded.errors import FilterError

from .interrupts import Interrupted, interruptible

logger = logging.getLogger(__name__)

PAUSES = (0.02, 1.0)
"""The first and the longest pause between attempts, in seconds. Pauses double."""

SHARE = 1 / 6
"""The share of `Retries.seconds` that one attempt may take. It may always take SHORTEST seconds."""

SHORTEST = 1.0

AWAY = (
    ConnectionError,
    TimeoutError,
    ClusterDownError,
    TryAgainError,
    ReadOnlyError,
    RedisClusterException,
)
REJECTED = (AuthenticationError, AuthorizationError)

T = TypeVar("T")


class ServerAwayError(FilterError, ConnectionError):
    """The server did not answer within the time in the settings, or before Ctrl-C."""


class ServerRejectsError(FilterError, ConnectionError):
    """The server rejects the user, the password or the certificate."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    value: T
    certain: bool
    """False if an earlier attempt may have had the effect already."""


@dataclass
class Retries:
    """Repeats a command for some seconds. Once it has given up, each command gets one attempt until one is answered."""

    seconds: float
    server: str = "the server"
    """The name of the server in messages, with the setting that has its address."""
    lost: bool = field(default=False, init=False)

    @property
    def attempt(self) -> float:
        """The longest time that clients may wait for an answer, so that the last attempt ends in time."""
        return max(SHORTEST, self.seconds * SHARE)

    def until_answered(self, command: Callable[[], T]) -> Answer[T]:
        """Repeats a command until there is an answer. Raises `ServerAwayError` when the time is over, or at Ctrl-C."""
        try:
            with interruptible():
                return self._until_answered(command)
        except (Interrupted, KeyboardInterrupt) as error:
            self.lost = True
            raise ServerAwayError(f"interrupted before {self.server} answered") from error

    def _until_answered(self, command: Callable[[], T]) -> Answer[T]:
        last = max(self.seconds - self.attempt, self.seconds / 2)
        start = time.monotonic()
        end = start + (0 if self.lost else last)
        pause, longest = PAUSES
        attempts, certain = 0, True
        while True:
            try:
                answer = command()
            except AWAY as error:
                if isinstance(error, REJECTED) or _is_of_tls(error):
                    raise ServerRejectsError(
                        f"{self.server} rejects the connection: {error}. Correct the user, the password or the "
                        "certificates in that setting"
                    ) from error
                now = time.monotonic()
                if now >= end:
                    self.lost = True
                    raise ServerAwayError(
                        f"{self.server} has not answered for {now - start:.1f} s (BLOOMFILTER_PATIENCE = "
                        f"{self.seconds:g}): {error}"
                    ) from error
                if not attempts:
                    logger.warning(
                        "%s does not answer (%s); trying for %g s", self.server, error, self.seconds
                    )
                attempts += 1
                # If the connection was refused, the command was not sent, so it had no effect.
                certain = certain and isinstance(error.__context__, ConnectionRefusedError)
            else:
                self.lost = False
                return Answer(answer, certain)
            time.sleep(max(0, min(pause, end - time.monotonic())))
            pause = min(2 * pause, longest)


def _is_of_tls(error: BaseException) -> bool:
    """Returns True if the server's certificate or ours was rejected. Another attempt would fail, too."""
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return True
        reason = reason.__cause__ or reason.__context__
    return False
