"""Counters of a worker: under which figure each message and its outcome is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._runtime.recorder import Recorder
from ..delivery import Outcome
from ..telemetry.hooks import HandledOutcome

#: Which counter of the health a message counts for; none for those that are delivered again
#: through no fault of a handler.
_COUNTED: dict[HandledOutcome, Literal["done", "failed", "rejected"]] = {
    "acked": "done",
    "forwarded": "done",
    "failed": "failed",
    "rejected": "rejected",
}
#: What the outcomes of a delivery, of RSMQ or of rmq, are called in telemetry.
_SETTLED: dict[str, HandledOutcome] = {
    "acked": "acked",
    "forwarded": "forwarded",
    "pushed": "forwarded",
    "rejected": "rejected",
    "released": "released",
}


@dataclass(slots=True)
class Counters:
    """Counters of messages since the start, and the last error."""

    done: int = 0
    failed: int = 0
    rejected: int = 0
    #: Messages given back without a failure: no handler has begun them, or a stop cancelled it.
    released: int = 0
    last_error: str | None = None
    #: Reports the same messages to telemetry, if the client has any.
    recorder: Recorder | None = None

    def handled(self, ns: str, queue: str, outcome: HandledOutcome, count: int) -> None:
        """Count messages of *queue* that a handler was called for, or would have been."""
        if (counter := _COUNTED.get(outcome)) is not None:
            setattr(self, counter, getattr(self, counter) + count)
        if self.recorder is not None and count:
            self.recorder.handled(ns, queue, outcome, count)

    def settled_by_handler(self, ns: str, queue: str, outcome: Outcome | None) -> None:
        """Count a message that its handler settled by itself, if it did."""
        if outcome is None:
            return
        if outcome == "released":
            self.failed += 1  # its handler gave it back for a retry
        self.handled(ns, queue, _SETTLED[outcome], 1)

    def note(self, error: BaseException) -> None:
        """Store the last error."""
        self.last_error = one_line(error)


def one_line(error: BaseException) -> str:
    """Return an error as text for a health check."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:500]
