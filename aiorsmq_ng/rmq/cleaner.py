"""The cleaner: gives back what dead connections held, and removes their names."""

from __future__ import annotations

import logging

import anyio

from .._protocol.operations.rmq import messages, registry
from .._protocol.rmq_keys import FOREIGN, RmqKeys, RmqLayout
from .._transport.transport import Transport
from ..errors import QueueCorrupt, Unavailable

logger = logging.getLogger("aiorsmq_ng.rmq")


async def clean(transport: Transport, layout: RmqLayout) -> int:
    """Return what all dead connections held to their queues; the result is how many payloads.

    Another cleaner may run at the same time, Go's or ours: each payload is moved by one of them.
    What does not fit rmq's layout is logged and skipped; its connection stays listed.
    """
    names = await transport.run(registry.members(layout.connections))
    moved = 0
    for name in names:
        if not await transport.run(registry.alive(layout.heartbeat(name))):
            try:
                moved += await _clean_connection(transport, layout, name)
            except FOREIGN as error:
                logger.warning("dead connection %r is not cleaned: %s", name, error)
    return moved


async def clean_forever(transport: Transport, layout: RmqLayout, every_s: float) -> None:
    """Clean now and then, through outages, until cancelled."""
    while True:
        try:
            if moved := await clean(transport, layout):
                logger.info("%d deliveries of dead connections are back in their queues", moved)
        except (Unavailable, QueueCorrupt) as error:
            if isinstance(error, Unavailable) and not error.transient:
                raise
            logger.warning("cleaning failed, and is tried again: %s", error)
        await anyio.sleep(every_s)


async def _clean_connection(transport: Transport, layout: RmqLayout, name: str) -> int:
    run, moved = transport.run, 0
    consumed = layout.consumed(name)
    for queue in await run(registry.members(consumed)):
        # Listed before anything is there: a queue that no program has open must be found.
        await run(registry.add(layout.queues, queue))
        try:
            moved += await _clean_queue(transport, layout.queue(queue), name)
        except FOREIGN as error:
            # The others do not wait until it is repaired.
            logger.warning("dead connection %r keeps what it held: %s", name, error)
    # It stays listed as long as it consumes something, or is alive again.
    if not await run(registry.members(consumed)):
        heartbeat = "" if layout.cluster else layout.heartbeat(name)
        await run(registry.remove(layout.connections, name, unless=heartbeat))
    return moved


async def _clean_queue(transport: Transport, keys: RmqKeys, name: str) -> int:
    """Give back what a dead connection held of one queue; nothing more once it is alive again."""
    run, layout, moved = transport.run, keys.layout, 0
    while True:
        if layout.cluster and await run(registry.alive(layout.heartbeat(name))):
            return moved
        step = await run(messages.retire(keys, name, dead=True))
        if step.alive:
            return moved
        moved += step.moved
        if step.left == 0:
            break
    if layout.cluster:
        # There it is on another node than the queue; on a single server the script did it.
        await run(registry.remove(layout.consumed(name), keys.queue))
    return moved
