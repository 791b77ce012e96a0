"""Intake of a queue of rmq: takes deliveries, and starts their handler."""

from __future__ import annotations

from typing import cast

from ..delivery import Delivery
from .handler_execution import Executions
from .handlers import RmqHandler


async def dispatch(handler: RmqHandler, executions: Executions, prefetch: int) -> None:
    """Start *handler* for each delivery (or batch), as slots become free, until cancelled.

    Deliveries that no handler works on then go back to the front of the queue, in order.
    """
    # Those that handlers work on count, too.
    ahead = executions.concurrency + max(prefetch, handler.size)

    def count_rejected(_payload: bytes) -> None:
        executions.counters.handled(handler.ns, handler.queue.name, "rejected", 1)

    async with handler.queue.consume(prefetch=ahead, on_malformed=count_rejected) as consumer:
        while True:
            batch = await consumer.take_many(handler.size or 1, handler.wait)
            try:
                await executions.slots.acquire()
            except BaseException:
                consumer.put_back(batch)
                raise
            # An execution asks no more of a delivery than both kinds have.
            executions.start(handler, cast("list[Delivery]", batch))
