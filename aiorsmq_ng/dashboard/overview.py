"""The overview: all queues, worst first."""

from __future__ import annotations

from msgspec import Struct

from .live_sampler import QueueRow, Totals, totals_of
from .request_context import Visit


class Overview(Struct, kw_only=True):
    """All queues that the caller may see, worst first."""

    namespace: str
    totals: Totals
    queues: list[QueueRow]


async def overview(visit: Visit) -> Overview:
    """Return all queues with their figures, worst first."""
    sampler = visit.board.sampler
    await sampler.look()
    rows = sampler.rows(visit.caller)
    return Overview(namespace=visit.board.rsmq.ns, totals=totals_of(rows), queues=rows)
