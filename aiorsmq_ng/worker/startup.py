"""The start of a worker: wait for the server, and find or create the queues."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence

import anyio

from .._runtime.wait_for_server import retry_through_outages
from ..client import RSMQ
from ..errors import AccessDenied, QueueNotFound, Unavailable
from ..queue import Queue
from ..rmq import Rmq, RmqQueue

logger = logging.getLogger("aiorsmq_ng.worker")


async def find_queues(
    rsmq: RSMQ, queues: Sequence[Queue], *, create: bool, limit_s: float | None
) -> bool:
    """Wait for the server, at most *limit_s* seconds if given, and find or create the queues.

    Returns True. Raises ``QueueNotFound`` if a queue is missing and must not be created.
    """
    await rsmq.open(wait_for_server=limit_s)

    async def find() -> None:
        for queue in queues:
            await _find(rsmq, queue, create)

    # A broker may reply although its server does not. A limit of 0 is one attempt of one call.
    with anyio.move_on_after(limit_s or math.inf):
        await retry_through_outages(find, limit_s)
        return True
    raise Unavailable(
        f"the queues cannot be reached: {rsmq.server_status.error or 'no answer'} "
        f"(gave up after {limit_s:g} s)",
        transient=True,
    )


async def open_rmq_queues(queues: Sequence[RmqQueue], limit_s: float | None) -> bool:
    """Wait for the servers of *queues*, each at most *limit_s* seconds if given, and list them."""
    for queue in queues:
        await queue.rmq.open(wait_for_server=limit_s)
        await retry_through_outages(queue.open, limit_s)
    return True


async def check_queues(queues: Sequence[Queue], rmqs: Iterable[Rmq]) -> None:
    """Ask the servers for *queues*, and each client of rmq for its own.

    Raises ``QueueNotFound`` if a queue is missing.
    """
    there = await asyncio.gather(
        *(queue.exists() for queue in queues), *(rmq.list_queues() for rmq in rmqs)
    )
    for queue, exists in zip(queues, there, strict=False):
        if not exists:
            raise _missing(queue)


async def _find(rsmq: RSMQ, queue: Queue, create: bool) -> None:
    # Looked up first: creating needs permissions that a worker need not have, and memory.
    if not await queue.exists():
        if not create:
            raise _missing(queue)
        await rsmq.create_queue(queue.name, exist_ok=True)
    elif not create:
        await _find_dead_letters(rsmq.queue(queue.dead_letter))


async def _find_dead_letters(queue: Queue) -> None:
    try:
        there = await queue.exists()
    except AccessDenied as error:
        # A worker needs no permission to read the attributes of a dead-letter queue.
        logger.debug("dead-letter queue %r cannot be looked up: %s", queue.name, error)
    else:
        if not there:
            raise _missing(queue)


def _missing(queue: Queue) -> QueueNotFound:
    return QueueNotFound(queue.name, queue.ns)
