"""Notices when the server stops answering and when it answers again, and logs a line for each."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

from ..models import ServerStatus

logger = logging.getLogger("aiorsmq_ng.server")

#: A server counts as away when it has not answered a call for this long.
AWAY_S = 1.0


class ServerMonitor:
    """Follows the outcome of a client's calls; makes no calls of its own."""

    __slots__ = ("_answered_at", "_away", "_error", "_name", "_since")

    def __init__(self, name: str = "the server") -> None:
        #: What the log calls the server.
        self._name = name
        self._answered_at: float | None = None
        self._error: str | None = None
        self._away = False
        self._since = 0.0

    @property
    def status(self) -> ServerStatus:
        """What is known now."""
        at = self._answered_at
        last_reply = None if at is None else datetime.fromtimestamp(at, UTC)
        return ServerStatus(last_reply, self._away, self._error)

    def answered(self, now: float) -> None:
        """Record a reply, also an error, at *now* on the event loop's clock."""
        self._answered_at = time.time()
        if self._error is not None:
            if self._away:
                away_s = now - self._since
                logger.warning(
                    "%s answers again, after %.1f s", self._name, away_s,
                    extra={"seconds": away_s},
                )  # fmt: skip
            self._error, self._away = None, False

    def failed(self, error: Exception, began_at: float, now: float) -> None:
        """Record *error* of an attempt that began at *began_at* and had no reply at *now*."""
        if self._error is None:
            self._since = began_at
        self._error = str(error)
        if not self._away and now - self._since >= AWAY_S:
            self._away = True
            logger.warning(
                "%s does not answer, waiting for it: %s (for %.1f s by now)",
                self._name, error, now - self._since,
                extra={"seconds": now - self._since, "error": str(error)},
            )  # fmt: skip
