"""Calls on queues as such, and those that only read."""

from __future__ import annotations

from typing import Any

from .._common.queue_defaults import dead_letter_queue
from .._protocol import queues
from .._protocol.inspection import (
    PEEK,
    PENDING,
    REASON,
    SCAN,
    PeekRequest,
    PendingPage,
    PendingRequest,
    ReasonRequest,
    ScanPage,
    ScanRequest,
)
from .._protocol.messages import REDRIVE, RedriveRequest
from .._protocol.queues import NamesPage
from ..errors import QueueNotFound
from ..models import (
    ConsumerInfo,
    Message,
    PendingMessage,
    QueueAttributes,
    QueueStats,
    ScannedMessage,
)
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler
from .errors import Answered

#: Attributes that have the same name and unit on the wire.
_SAME_NAMES = (
    *("maxsize", "totalrecv", "totalsent", "created", "modified", "msgs", "hiddenmsgs"),
    *("ready", "delayed", "leased", "exact"),
)
#: Bytes of bodies in a reply from which on it may have been cut short.
_LARGE = 1_000_000


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


async def _create(attempt: Attempt, request: queues.CreateRequest) -> bool:
    message = pb.CreateQueueRequest(
        queue=request.keys.queue,
        vt_ms=_ms(request.vt),
        delay_ms=_ms(request.delay),
        maxsize=request.maxsize,
        exist_ok=True,
        request=attempt.request_id(),
    )
    return bool((await attempt.ask("CreateQueue", message)).created)


async def _delete(attempt: Attempt, request: queues.DeleteQueueRequest) -> None:
    message = pb.DeleteQueueRequest(queue=request.keys.queue, request=attempt.request_id())
    await attempt.ask("DeleteQueue", message)


async def _exists(attempt: Attempt, request: queues.ExistsRequest) -> bool:
    try:
        await attempt.ask("GetAttributes", pb.GetAttributesRequest(queue=request.keys.queue))
    except Answered as answered:
        if isinstance(answered.error, QueueNotFound):
            return False
        raise
    return True


async def _list(attempt: Attempt, _: queues.ListRequest) -> NamesPage:
    found = await attempt.ask("ListQueues", pb.ListQueuesRequest())
    return NamesPage(queues.FIRST_PAGE, list(found.queues))


async def _attributes(attempt: Attempt, request: queues.AttributesRequest) -> QueueAttributes:
    message = pb.GetAttributesRequest(queue=request.keys.queue)
    return read_attributes(await attempt.ask("GetAttributes", message))


async def _set_attributes(
    attempt: Attempt, request: queues.SetAttributesRequest
) -> QueueAttributes:
    message = pb.SetAttributesRequest(
        queue=request.keys.queue,
        vt_ms=_ms(request.vt),
        delay_ms=_ms(request.delay),
        maxsize=request.maxsize,
        request=attempt.request_id(),
    )
    return read_attributes(await attempt.ask("SetAttributes", message))


async def _stats(attempt: Attempt, request: queues.StatsRequest) -> QueueStats:
    own = request.dead.queue == dead_letter_queue(request.keys.queue)
    dead = "" if own else request.dead.queue
    found = await attempt.ask(
        "GetStats", pb.GetStatsRequest(queue=request.keys.queue, dead_letter=dead)
    )
    consumers = tuple(
        ConsumerInfo(one.name, one.consumers, tuple(one.holding), one.silent_ms / 1000)
        for one in found.consumers
    )
    return QueueStats(read_attributes(found.attributes), found.dead, consumers)


async def _announce(attempt: Attempt, request: queues.AnnounceRequest) -> None:
    message = pb.AnnounceRequest(
        queue=request.keys.queue,
        name=request.name,
        consumers=request.consumers,
        holding=request.holding,
    )
    await attempt.ask("Announce", message)


async def _purge(attempt: Attempt, request: queues.PurgeRequest) -> tuple[int, int, int]:
    message = pb.PurgeRequest(queue=request.keys.queue, at=request.at, request=attempt.request_id())
    found = await attempt.ask("Purge", message)
    return found.removed, found.next if found.HasField("next") else -1, found.before


async def _purge_all(attempt: Attempt, request: queues.PurgeAllRequest) -> int:
    message = pb.PurgeRequest(queue=request.keys.queue, leased=True, request=attempt.request_id())
    return int((await attempt.ask("Purge", message)).removed)


async def _redrive(attempt: Attempt, request: RedriveRequest) -> int:
    message = pb.RedriveRequest(
        source=request.keys.queue,
        target=request.target.queue,
        count=request.count,
        ids=request.ids,
        request=attempt.request_id(),
    )
    return int((await attempt.ask("Redrive", message)).moved)


async def _peek(attempt: Attempt, request: PeekRequest) -> list[Message]:
    found = await _pages(
        attempt, "Peek", pb.PeekRequest, request.keys.queue, request.start, request.count
    )
    return [Message(m.id, m.body, m.rc, m.fr) for m in found]


async def _pending(attempt: Attempt, request: PendingRequest) -> PendingPage:
    skip, count = request.skip, request.count
    start, most = (skip, count) if count >= 0 else (count, -count)
    found = await _pages(
        attempt, "ListPending", pb.ListPendingRequest, request.keys.queue, start, most
    )
    if count < 0:
        found.reverse()
    rows = [
        PendingMessage(m.id, m.body, m.rc, m.fr, row.delivered, row.idle_ms)
        for row in found
        for m in (row.message,)
    ]
    return PendingPage(rows, None, 0)


async def _pages(
    attempt: Attempt, method: str, kind: Any, queue: str, start: int, count: int
) -> list[Any]:
    """Read *count* messages from *start* on, by several calls if they are large."""
    found: list[Any] = []
    size = _LARGE
    # A short page of small messages is the last one.
    while len(found) < count and size >= _LARGE and (start >= 0 or start + len(found) < 0):
        most = min(count - len(found), attempt.max_batch)
        request = kind(queue=queue, start=start + len(found), count=most)
        page = (await attempt.ask(method, request)).messages
        size = sum(len(getattr(row, "message", row).body) for row in page)
        size = _LARGE if len(page) == most else size
        found += page
    return found


async def _scan(attempt: Attempt, request: ScanRequest) -> ScanPage:
    message = pb.ScanRequest(queue=request.keys.queue, count=min(request.count, attempt.max_batch))
    if len(request.at) == 2:
        score, id = (x.decode() if isinstance(x, bytes) else x for x in request.at)
        message.after.visible_at, message.after.id = float(score), id
    else:
        message.start = request.at[0]
    found = await attempt.ask("Scan", message)
    rows = [
        ScannedMessage(m.id, m.body, m.rc, m.fr, visible_at=row.visible_at, state=row.state)
        for row in found.messages
        for m in (row.message,)
    ]
    more = found.HasField("next")
    return ScanPage(rows, (repr(found.next.visible_at), found.next.id) if more else None)


async def _reason(attempt: Attempt, request: ReasonRequest) -> str | None:
    message = pb.GetReasonRequest(queue=request.keys.queue, id=request.id)
    found = await attempt.ask("GetReason", message)
    return found.reason if found.HasField("reason") else None


def read_attributes(found: Any) -> QueueAttributes:
    """Return the attributes that a broker tells."""
    return QueueAttributes(
        vt=_number(found.vt),
        delay=_number(found.delay),
        oldest_age=found.oldest_age_ms / 1000 if found.HasField("oldest_age_ms") else None,
        **{name: getattr(found, name) for name in _SAME_NAMES},
    )


def _number(value: float) -> float:
    return int(value) if value.is_integer() else value


HANDLERS: dict[Any, Handler] = {
    queues.CREATE: _create,
    queues.DELETE: _delete,
    queues.EXISTS: _exists,
    queues.LIST_QUEUES: _list,
    queues.ATTRIBUTES: _attributes,
    queues.SET_ATTRIBUTES: _set_attributes,
    queues.STATS: _stats,
    queues.ANNOUNCE: _announce,
    queues.PURGE: _purge,
    queues.PURGE_ALL: _purge_all,
    REDRIVE: _redrive,
    PEEK: _peek,
    PENDING: _pending,
    SCAN: _scan,
    REASON: _reason,
}
