"""Sessions of callers that have logged in, and a brake on guesses; in memory."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from .._common.bounded_dict import BoundedDict
from ..broker.tokens import Caller

COOKIE = "rsmq_session"
#: How long a session lasts.
SESSION_S = 12 * 3600
_MOST_SESSIONS = 1000
#: Failed logins from one address before it has to wait, and how long it waits.
FAILURES, PAUSE_S = 5, 60.0


class Failures:
    """Counts failures of each address, and says when it has to wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: BoundedDict[str, tuple[int, float]] = BoundedDict(_MOST_SESSIONS)

    def must_wait(self, address: str) -> bool:
        """Return True if *address* has failed too often just now."""
        failures, until = self._failures.get(address, (0, 0.0))
        return failures >= FAILURES and self._clock() < until

    def failed(self, address: str) -> None:
        """Count a failure."""
        failures, until = self._failures.get(address, (0, 0.0))
        fresh = self._clock() < until
        self._failures[address] = (failures + 1 if fresh else 1), self._clock() + PAUSE_S


class Sessions:
    """Random names of sessions, each for a caller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._callers: BoundedDict[str, tuple[Caller, float]] = BoundedDict(_MOST_SESSIONS)
        self._failures = Failures(clock)

    def begin(self, caller: Caller) -> str:
        """Return the name of a new session."""
        name = secrets.token_urlsafe(32)
        self._callers[name] = caller, self._clock() + SESSION_S
        return name

    def caller(self, name: str) -> Caller | None:
        """Return the caller of a session that has not ended."""
        caller, ends_at = self._callers.get(name, (None, 0.0))
        return caller if self._clock() < ends_at else None

    def end(self, name: str) -> None:
        """End a session."""
        self._callers.pop(name, None)

    def must_wait(self, address: str) -> bool:
        """Return True if *address* has failed too often just now."""
        return self._failures.must_wait(address)

    def failed(self, address: str) -> None:
        """Count a failed login."""
        self._failures.failed(address)
