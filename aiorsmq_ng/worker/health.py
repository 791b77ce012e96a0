"""What a worker is doing, and what became of its messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..delivery import Outcome

State = Literal["new", "starting", "running", "paused", "draining", "stopped"]


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker at one moment."""

    #: What it is doing.
    state: State
    #: Handlers running now.
    running: int
    #: Handlers that do not end although they were cancelled.
    stuck: int
    #: Messages since the start that are done or forwarded, by the worker or by the handler itself.
    done: int
    #: Messages given back for another try.
    failed: int
    #: Messages moved to the dead letters.
    rejected: int
    #: The last thing that went wrong: a handler's error, or one of the way to the server.
    last_error: str | None
    #: When the server last replied, be it with an error.
    last_reply: datetime | None = None
    #: True while the server does not answer what it is asked.
    server_away: bool = False
    #: With which error ``run`` has ended; none while it runs, and after a stop in good order.
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Return True if the worker serves: it runs (or is paused), and the server answers.

        Fit for a health endpoint. False before it has started, while it stops, and after it has
        ended, whatever the cause.
        """
        return self.state in ("running", "paused") and not self.server_away


@dataclass(slots=True)
class Counters:
    """What became of messages since the start."""

    done: int = 0
    failed: int = 0
    rejected: int = 0
    last_error: str | None = None

    def count(self, outcome: Outcome | None) -> None:
        """Count a message that its handler settled by itself."""
        if outcome in ("acked", "forwarded"):
            self.done += 1
        elif outcome == "released":
            self.failed += 1
        elif outcome == "rejected":
            self.rejected += 1

    def note(self, error: BaseException) -> None:
        """Remember what went wrong last."""
        self.last_error = one_line(error)


def one_line(error: BaseException) -> str:
    """Return an error as text for a health check."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:500]
