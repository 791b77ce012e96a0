"""The page of a queue: states, charts, attributes, consumers and what they hold, dead letters."""

from __future__ import annotations

from msgspec import Struct

from aiorsmq_ng import ConsumerInfo, QueueAttributes

from .._common.queue_defaults import has_dead_letters
from .live_sampler import QueueRow
from .request_context import Visit


class QueueView(Struct, kw_only=True):
    """One queue."""

    row: QueueRow
    attributes: QueueAttributes
    consumers: list[ConsumerInfo]
    #: Name of its dead-letter queue; empty if that would be too long.
    dead_letter: str


async def queue(visit: Visit) -> QueueView:
    """Return one queue: figures, attributes, consumers and what they hold."""
    handle, sampler = visit.queue(), visit.board.sampler
    await sampler.look(handle.name)
    row, trace = sampler.row(handle.name), sampler.trace(handle.name)
    if row is None or trace is None:
        stats = await handle.stats()  # raises if the queue does not exist, or is damaged
        row, consumers = QueueRow(name=handle.name), stats.consumers
        attributes = stats.attributes
    else:
        attributes, consumers = trace.stats.attributes, trace.stats.consumers
    return QueueView(
        row=row,
        attributes=attributes,
        consumers=list(consumers),
        dead_letter=handle.dead_letter if has_dead_letters(handle.name) else "",
    )
