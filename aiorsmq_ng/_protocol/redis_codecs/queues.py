"""Codecs of queues: create, delete, list, describe, change, purge."""

from __future__ import annotations

import math
from typing import Any

from msgspec import DecodeError, json

from ...errors import QueueCorrupt, QueueNotFound
from ...models import ConsumerInfo, QueueAttributes, QueueStats
from ..operation import Argument, QueueRequest, Reply
from ..operations import presence, queues
from ..operations.queues import (
    AttributesRequest,
    CreateRequest,
    DeleteQueueRequest,
    ExistsRequest,
    ListRequest,
    NamesPage,
    PurgeAllRequest,
    PurgeRequest,
    SetAttributesRequest,
    StatsRequest,
)
from .codec import Codec

#: A consuming client announces itself every 10 s; after three missed announcements it is gone.
ALIVE_MS = 35_000
CONSUMERS_TTL_S = 86_400
#: Names that one call reads, in some milliseconds of the server's time.
NAMES_PAGE = 5000


def _decode_deleted(request: DeleteQueueRequest, reply: Reply) -> None:
    if not reply:
        raise QueueNotFound(request.keys.queue, request.keys.namespace.name)


def decode_names(_: ListRequest, reply: Reply) -> NamesPage:
    """Decode a page of names."""
    # Foreign names need not be valid UTF-8: they are listed, and refused when used.
    return NamesPage(reply[0], [name.decode(errors="backslashreplace") for name in reply[1:]])


def _optional(value: int | None) -> Argument:
    return "" if value is None else value


def _decode_attributes(request: QueueRequest, reply: Reply) -> QueueAttributes:
    try:
        return _attributes(reply)
    except (ValueError, OverflowError):
        raise request.keys.failure(QueueCorrupt.code) from None


def _decode_stats(request: StatsRequest, reply: Reply) -> QueueStats:
    attributes = _decode_attributes(request, reply[0])
    rows = iter(reply[2:])
    consumers = (_consumer(*row) for row in zip(rows, rows, rows, strict=True))
    return QueueStats(attributes, reply[1], tuple(sorted(consumers, key=lambda c: c.name)))


def _announced(request: presence.AnnounceRequest) -> bytes:
    if not request.consumers:
        return b""
    return json.encode({"consumers": request.consumers, "holding": request.holding})


def _attributes(reply: Reply) -> QueueAttributes:
    vt, delay, maxsize, totalrecv, totalsent, created, modified = map(_number, reply[:7])
    msgs, hidden, leased, exact, head_age_ms = reply[7:]
    return QueueAttributes(
        vt=vt,
        delay=delay,
        maxsize=int(maxsize),
        totalrecv=int(totalrecv),
        totalsent=int(totalsent),
        created=int(created),
        modified=int(modified),
        msgs=msgs,
        hiddenmsgs=hidden,
        ready=msgs - hidden,
        delayed=hidden - leased,
        leased=leased,
        exact=bool(exact),
        oldest_age=None if head_age_ms < 0 else head_age_ms / 1000,
    )


def _consumer(name: bytes, idle_ms: int, announced: bytes) -> ConsumerInfo:
    try:
        known = json.decode(announced, type=dict[str, Any])
        consumers, holding = int(known["consumers"]), [str(id) for id in known["holding"]]
    except (DecodeError, KeyError, TypeError, ValueError):
        consumers, holding = 0, []
    return ConsumerInfo(name.decode(errors="replace"), consumers, tuple(holding), idle_ms / 1000)


def _number(stored: bytes) -> int | float:
    """Decode a stored number: 0 if it is absent, an ``int`` if it is whole."""
    value = float(stored or 0)
    if not math.isfinite(value):
        raise ValueError(stored)
    return int(value) if value.is_integer() else value


CREATE: Codec[CreateRequest, bool] = Codec(
    kind=queues.CREATE,
    script="create_queue",
    keys=lambda r: (r.keys.namespace.index, r.keys.zset, r.keys.hash),
    args=lambda r: (r.keys.queue, r.vt, r.delay, r.maxsize),
    decode=lambda _, reply: bool(reply),
)
EXISTS: Codec[ExistsRequest, bool] = Codec(
    kind=queues.EXISTS,
    script="exists",
    keys=lambda r: (r.keys.hash,),
    decode=lambda _, reply: bool(reply),
)
DELETE: Codec[DeleteQueueRequest, None] = Codec(
    kind=queues.DELETE,
    script="delete_queue",
    keys=lambda r: (
        *(r.keys.namespace.index, r.keys.zset, r.keys.hash, r.keys.moved),
        *(r.keys.deliveries, r.keys.consumers, r.keys.lean_leases, r.keys.headers),
    ),
    args=lambda r: (r.keys.queue,),
    decode=_decode_deleted,
)
LIST_QUEUES: Codec[ListRequest, NamesPage] = Codec(
    kind=queues.LIST_QUEUES,
    script="list_queues",
    keys=lambda r: (r.namespace.index,),
    args=lambda r: (r.cursor, NAMES_PAGE),
    decode=decode_names,
)
ATTRIBUTES: Codec[AttributesRequest, QueueAttributes] = Codec(
    kind=queues.ATTRIBUTES,
    script="attributes",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    decode=_decode_attributes,
)
SET_ATTRIBUTES: Codec[SetAttributesRequest, QueueAttributes] = Codec(
    kind=queues.SET_ATTRIBUTES,
    script="set_attributes",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    args=lambda r: map(_optional, (r.vt, r.delay, r.maxsize)),
    decode=_decode_attributes,
)
STATS: Codec[StatsRequest, QueueStats] = Codec(
    kind=queues.STATS,
    script="stats",
    keys=lambda r: (r.keys.zset, r.keys.hash, r.dead.zset, r.keys.consumers),
    args=lambda _: (ALIVE_MS,),
    decode=_decode_stats,
)
ANNOUNCE: Codec[presence.AnnounceRequest, None] = Codec(
    kind=presence.ANNOUNCE,
    script="announce",
    keys=lambda r: (r.keys.consumers, r.keys.hash),
    args=lambda r: (r.name, _announced(r), CONSUMERS_TTL_S),
    decode=lambda _, reply: None,
)
PURGE: Codec[PurgeRequest, tuple[int, int, int]] = Codec(
    kind=queues.PURGE,
    script="purge",
    keys=lambda r: r.keys.with_deliveries,
    args=lambda r: (r.at,),
    decode=lambda _, reply: (reply[0], reply[1], reply[2]),
)
PURGE_ALL: Codec[PurgeAllRequest, int] = Codec(
    kind=queues.PURGE_ALL,
    script="purge_all",
    keys=lambda r: r.keys.with_deliveries,
    decode=lambda _, reply: int(reply),
)

CODECS: tuple[Codec[Any, Any], ...] = (
    *(CREATE, EXISTS, DELETE, LIST_QUEUES, ATTRIBUTES, SET_ATTRIBUTES),
    *(STATS, ANNOUNCE, PURGE, PURGE_ALL),
)
