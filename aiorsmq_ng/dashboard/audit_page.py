"""The page of the audit log."""

from __future__ import annotations

from msgspec import Struct

from .audit import Entry
from .request_context import Visit


class AuditView(Struct, kw_only=True):
    """The last actions that this process has done, newest first."""

    entries: list[Entry]


async def audit(visit: Visit) -> AuditView:
    """Return the last actions of this process on queues that the caller may see, newest first."""
    entries = visit.board.audit.entries()
    return AuditView(entries=[one for one in entries if visit.caller.sees_queue(one.queue)])
