"""The audit log: who did what to which messages, and how many."""

from __future__ import annotations

import logging
import time
from collections import deque

from msgspec import Struct

logger = logging.getLogger("aiorsmq_ng.dashboard.audit")

#: Entries that the page shows; the log has all of them.
KEPT = 1000
#: Characters of each text of an entry; callers choose some of them.
_LONGEST = 300


class Entry(Struct, kw_only=True):
    """One action."""

    #: Epoch milliseconds.
    at: int
    #: Identity of the caller.
    identity: str
    action: str
    queue: str
    #: What was chosen: ids, or the condition.
    what: str
    #: How many messages were changed.
    count: int
    #: ``done``; ``stopped`` by its caller; or the error.
    outcome: str


class AuditLog:
    """Writes every action to the logger ``aiorsmq_ng.dashboard.audit``, and keeps the last ones."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=KEPT)

    def record(
        self, identity: str, action: str, queue: str, what: str, *, count: int, outcome: str
    ) -> None:
        """Record an action that has ended."""
        at = int(time.time() * 1000)
        entry = Entry(
            at=at,
            identity=identity,
            action=_shortened(action),
            queue=queue,
            what=_shortened(what),
            count=count,
            outcome=_shortened(outcome),
        )
        self._entries.append(entry)
        # %r: names and conditions come from outside, and must not look like lines of their own.
        logger.info(
            "%r did %s on queue %r (%r): %d messages, %r",
            identity, entry.action, queue, entry.what, count, entry.outcome,
            extra={
                "identity": identity, "action": entry.action, "queue": queue, "what": entry.what,
                "count": count, "outcome": entry.outcome,
            },
        )  # fmt: skip

    def entries(self) -> list[Entry]:
        """Return the last entries, newest first."""
        return list(reversed(self._entries))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
