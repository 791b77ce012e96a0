"""Moving messages from a dead-letter queue back to work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio

from .._protocol.keys import QueueKeys
from .._protocol.operations import inspection, messages, queues
from ..models import Message
from .queue_context import QueueContext

R = TypeVar("R")

#: Messages moved by one call; the server is busy with them for less than a millisecond.
_PAGE = 100


async def redrive(
    target: QueueContext,
    source: QueueKeys,
    count: int | None,
    where: Callable[[Message], bool] | None,
    rate: float | None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Move up to *count* ready messages of *source* to *target*; return how many.

    *progress* is called with the size of every batch that was moved. A cancellation waits for the
    batch in flight and reports it, too.
    """
    transport = target.transport
    # Messages that arrive meanwhile are left alone: they may be those that were moved and failed.
    ready = present = (await transport.run(queues.attributes(source))).ready
    left = present if count is None else min(count, present)
    page = _PAGE if rate is None else max(1, min(_PAGE, int(rate)))
    moved = passed_by = 0
    while left > 0 and (where is None or passed_by + moved < present):
        ids: list[str] = []
        if where is not None:
            seen = await transport.run(inspection.peek(source, passed_by, page))
            if not seen:
                break
            ids = [message.id for message in seen if where(message.with_codec(target.codec))][:left]
            passed_by += len(seen) - len(ids)
            if not ids:
                continue
        channel = target.channel(target.keys)
        move = messages.redrive(source, target.keys, min(page, left), ids=ids, channel=channel)
        if progress is None:
            done = await transport.run(move)
        else:
            done = await counted(transport.run(move), progress, int)
        moved += done
        left -= done
        if not done and where is None:
            # Perhaps the call only removed ids without bodies, and members that are no ids.
            before, ready = ready, (await transport.run(queues.attributes(source))).ready
            if ready >= before:
                break
        if rate is not None and left > 0:
            await anyio.sleep(done / rate)
    return moved


async def counted(
    call: Coroutine[Any, Any, R], progress: Callable[[int], None], size: Callable[[R], int]
) -> R:
    """Await *call* and report its *size*; a cancellation waits for it and its report."""
    batch = asyncio.ensure_future(call)
    try:
        await asyncio.shield(batch)
    except asyncio.CancelledError:
        await asyncio.wait([batch])
        if not batch.cancelled() and batch.exception() is None:
            progress(size(batch.result()))
        raise
    progress(size(batch.result()))
    return batch.result()
