"""State of a worker at one moment, for health endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

State = Literal["new", "starting", "running", "paused", "draining", "stopped"]


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """State of a worker at one moment."""

    #: What it is doing.
    state: State
    #: Handlers running now.
    running: int
    #: Those of them that ignore their cancellation.
    stuck: int
    #: Messages since the start that were acked or forwarded, by the worker or by the handler.
    done: int
    #: Messages given back for a retry.
    failed: int
    #: Messages moved to a dead-letter queue.
    rejected: int
    #: The last error: of a handler, or of a call to the server.
    last_error: str | None
    #: When the server last replied, also with an error.
    last_reply: datetime | None = None
    #: True while calls get no reply.
    server_away: bool = False
    #: The error that ended ``run``; ``None`` while it runs, and after an orderly stop.
    failure: str | None = None
    #: Seconds for which a handler has ignored its cancellation: the longest of those that run.
    stuck_for: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the worker serves: it runs (or is paused), and the server replies.

        Meant for a health endpoint. False before it has started, while it stops, and after it has
        ended, for any reason.
        """
        return self.state in ("running", "paused") and not self.server_away
