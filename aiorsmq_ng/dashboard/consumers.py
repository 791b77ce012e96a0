"""Consumers of all queues, as they report themselves, and what they hold."""

from __future__ import annotations

from msgspec import Struct

from .request_context import Visit


class ConsumerRow(Struct, kw_only=True):
    """A client that consumes from a queue."""

    #: Host, process and a random part.
    name: str
    queue: str
    #: Iterations and workers that it runs on the queue.
    consumers: int
    #: Ids of messages that it holds, at most 100.
    holding: list[str]
    #: Seconds since its last sign of life; it gives one every ten seconds.
    idle: float


class ConsumersView(Struct, kw_only=True):
    """All consumers, by name."""

    consumers: list[ConsumerRow]
    #: Queues in which messages wait and that nothing consumes from.
    lonely: list[str]


async def consumers(visit: Visit) -> ConsumersView:
    """Return all consumers of the last 35 seconds, and queues that wait for one."""
    sampler = visit.board.sampler
    await sampler.look()
    rows = sampler.rows(visit.caller)
    found = [
        ConsumerRow(
            name=one.name,
            queue=row.name,
            consumers=one.consumers,
            holding=list(one.holding),
            idle=one.idle,
        )
        for row in rows
        for one in sampler.consumers(row.name)
    ]
    lonely = [row.name for row in rows if row.trouble == "no consumers"]
    return ConsumersView(consumers=sorted(found, key=lambda c: (c.name, c.queue)), lonely=lonely)
