"""Contact: when the server last answered; one line in the log when it goes, one when it is back."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

logger = logging.getLogger("aiorsmq_ng.contact")

#: A server counts as away when it has not answered a call for this long.
AWAY_S = 1.0


class Contact:
    """What a client knows about its server, by the calls that were made anyway.

    Programs read it; only the client writes to it.
    """

    __slots__ = ("_answered_at", "_since", "away", "error")

    def __init__(self) -> None:
        self._answered_at: float | None = None
        #: Why the last attempt failed; none if it was answered.
        self.error: str | None = None
        #: True from the moment on at which the log says so, until it answers again.
        self.away = False
        self._since = 0.0

    @property
    def last(self) -> datetime | None:
        """When the server last answered."""
        at = self._answered_at
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def answered(self, now: float) -> None:
        """Record an answer, also an error, at *now* on the event loop's clock. For the client."""
        self._answered_at = time.time()
        if self.error is not None:
            if self.away:
                logger.warning("the server answers again, after %.1f s", now - self._since)
            self.error, self.away = None, False

    def failed(self, error: Exception, began_at: float, now: float) -> None:
        """Record *error* of an attempt that began at *began_at* and had no answer at *now*.

        For the client.
        """
        if self.error is None:
            self._since = began_at
        self.error = str(error)
        if not self.away and now - self._since >= AWAY_S:
            self.away = True
            logger.warning(
                "the server does not answer, waiting for it: %s (for %.1f s by now)",
                error, now - self._since,
            )  # fmt: skip
