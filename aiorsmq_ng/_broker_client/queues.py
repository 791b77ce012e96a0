"""Calls on queues as such, and those that only read."""

from __future__ import annotations

from typing import Any

from .._protocol import inspection, messages, queues
from ..errors import QueueNotFound
from ..models import ConsumerInfo, Message, PendingMessage, QueueStats, ScannedMessage
from .attempt import Attempt, Handler, unary
from .conversions import (
    dead_letter_field,
    of_queue,
    optional,
    stored_as,
    to_attributes,
    to_message,
)
from .errors import Answered


async def _exists(attempt: Attempt, request: queues.ExistsRequest) -> bool:
    try:
        await attempt.ask("GetAttributes", queue=request.keys.queue)
    except Answered as answered:
        if isinstance(answered.error, QueueNotFound):
            return False
        raise
    return True


def _stats(found: Any) -> QueueStats:
    consumers = tuple(
        ConsumerInfo(one.name, one.consumers, tuple(one.holding), one.idle_ms / 1000)
        for one in found.consumers
    )
    return QueueStats(to_attributes(found.attributes), found.dead, consumers)


def _purged(found: Any) -> tuple[int, int, int]:
    return found.removed, found.next if found.HasField("next") else -1, found.before


async def _peek(attempt: Attempt, request: inspection.PeekRequest) -> list[Message]:
    found = await _pages(attempt, "Peek", request.keys.queue, request.start, request.count)
    return [to_message(one) for one in found]


async def _pending(attempt: Attempt, request: inspection.PendingRequest) -> inspection.PendingPage:
    backwards = request.count < 0
    start, count = (request.count, -request.count) if backwards else (request.skip, request.count)
    found = await _pages(attempt, "ListPending", request.keys.queue, start, count)
    rows = [
        to_message(one.message, PendingMessage, delivered_ms=one.delivered, idle_ms=one.idle_ms)
        for one in (reversed(found) if backwards else found)
    ]
    return inspection.PendingPage(rows, None, 0)


async def _pages(attempt: Attempt, method: str, queue: str, start: int, count: int) -> list[Any]:
    """Read *count* messages from *start* on, by several calls if one reply has no room for them."""
    count = min(count, -start) if start < 0 else count
    found: list[Any] = []
    more = True
    while more and len(found) < count:
        most = min(count - len(found), attempt.max_batch)
        page = await attempt.ask(method, queue=queue, start=start + len(found), count=most)
        found += page.messages
        more = page.more or len(page.messages) == most
    return found


async def _scan(attempt: Attempt, request: inspection.ScanRequest) -> inspection.ScanPage:
    place: dict[str, Any] = {"start": request.at[0]}
    if len(request.at) == 2:
        score, id = (x.decode() if isinstance(x, bytes) else x for x in request.at)
        place = {"after": {"visible_at": float(score), "id": id}}
    count = min(request.count, attempt.max_batch)
    found = await attempt.ask("Scan", queue=request.keys.queue, count=count, **place)
    rows = [
        to_message(one.message, ScannedMessage, visible_at=one.visible_at, state=one.state)
        for one in found.messages
    ]
    after = optional(found, "next")
    return inspection.ScanPage(rows, (repr(after.visible_at), after.id) if after else None)


HANDLERS: dict[Any, Handler] = {
    queues.CREATE: unary(
        "CreateQueue",
        lambda r: of_queue(r, **stored_as(r), exist_ok=True),
        lambda found: found.created,
    ),
    queues.DELETE: unary("DeleteQueue", of_queue, lambda _: None),
    queues.EXISTS: _exists,
    queues.LIST_QUEUES: unary(
        "ListQueues",
        lambda _: {},
        lambda found: queues.NamesPage(queues.FIRST_PAGE, list(found.queues)),
    ),
    queues.ATTRIBUTES: unary("GetAttributes", of_queue, to_attributes),
    queues.SET_ATTRIBUTES: unary(
        "SetAttributes", lambda r: of_queue(r, **stored_as(r)), to_attributes
    ),
    queues.STATS: unary(
        "GetStats",
        lambda r: of_queue(r, dead_letter=dead_letter_field(r.keys.queue, r.dead.queue)),
        _stats,
    ),
    queues.ANNOUNCE: unary(
        "Announce",
        lambda r: of_queue(r, name=r.name, consumers=r.consumers, holding=r.holding),
        lambda _: None,
    ),
    queues.PURGE: unary("Purge", lambda r: of_queue(r, at=r.at), _purged),
    queues.PURGE_ALL: unary(
        "Purge", lambda r: of_queue(r, leased=True), lambda found: found.removed
    ),
    messages.REDRIVE: unary(
        "Redrive",
        lambda r: {
            "source": r.keys.queue,
            "target": r.target.queue,
            "count": r.count,
            "ids": r.ids,
        },
        lambda found: found.moved,
    ),
    inspection.PEEK: _peek,
    inspection.PENDING: _pending,
    inspection.SCAN: _scan,
    inspection.REASON: unary(
        "GetReason", lambda r: of_queue(r, id=r.id), lambda found: optional(found, "reason")
    ),
}
