"""Codecs of peek, pending, scan, find and reason, which only read; and of what tests need."""

from __future__ import annotations

from typing import Any

from ...models import Message, MessageState, PendingMessage, ScannedMessage
from ..operation import Reply
from ..operations import inspection, shift_time
from ..operations.inspection import (
    FindRequest,
    PeekRequest,
    PendingPage,
    PendingRequest,
    ReasonRequest,
    ScanPage,
    ScanRequest,
)
from ..operations.shift_time import ShiftRequest
from .codec import Codec, read_id, read_messages, take_headers


def _decode_pending(_: PendingRequest, reply: Reply) -> PendingPage:
    headers, rows = take_headers(reply), iter(reply[2:])
    messages = [
        PendingMessage(read_id(id), body, rc, fr, at, idle, headers=headers.get(id, b""))
        for id, body, rc, fr, at, idle in zip(*[rows] * 6, strict=True)
    ]
    return PendingPage(messages, None if reply[0] < 0 else reply[0], reply[1])


def _decode_scan(_: ScanRequest | FindRequest, reply: Reply) -> ScanPage:
    headers = take_headers(reply)
    now, score, id = reply[:3]
    rows = iter(reply[3:])
    messages = []
    for raw_id, body, rc, fr, at in zip(*[rows] * 5, strict=True):
        visible_at = float(at)
        # A lean lease leaves rc as it is, and ends at half a millisecond; see _lean_lease.lua.
        leased = rc or visible_at % 1 == 0.5
        state: MessageState = "ready" if visible_at <= now else "leased" if leased else "delayed"
        kept = headers.get(raw_id, b"")
        row = ScannedMessage(
            read_id(raw_id), body, rc, fr, kept, visible_at=visible_at, state=state
        )
        messages.append(row)
    return ScanPage(messages, (score, id) if score else None, now)


REASON: Codec[ReasonRequest, str | None] = Codec(
    kind=inspection.REASON,
    script="reason",
    keys=lambda r: (r.keys.reason(r.id), r.keys.hash, r.keys.deliveries),
    args=lambda r: (r.id,),
    decode=lambda _, reply: reply[0].decode(errors="replace") if reply else None,
)
PEEK: Codec[PeekRequest, list[Message]] = Codec(
    kind=inspection.PEEK,
    script="peek",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    args=lambda r: (r.start, r.count),
    decode=lambda _, reply: read_messages(reply),
)
PENDING: Codec[PendingRequest, PendingPage] = Codec(
    kind=inspection.PENDING,
    script="pending",
    keys=lambda r: r.keys.with_deliveries,
    args=lambda r: (r.skip, r.count, r.at),
    decode=_decode_pending,
)
SCAN: Codec[ScanRequest, ScanPage] = Codec(
    kind=inspection.SCAN,
    script="scan",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    args=lambda r: (r.count, *r.at),
    decode=_decode_scan,
)
FIND: Codec[FindRequest, ScanPage] = Codec(
    kind=inspection.FIND,
    script="find",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    args=lambda r: (r.id,),
    decode=_decode_scan,
)
SHIFT: Codec[ShiftRequest, int] = Codec(
    kind=shift_time.SHIFT,
    script="test_shift_time",
    keys=lambda r: r.keys.with_deliveries,
    args=lambda r: (r.keys.wake, r.by_ms, *r.stay),
    decode=lambda _, reply: int(reply),
)

CODECS: tuple[Codec[Any, Any], ...] = (REASON, PEEK, PENDING, SCAN, FIND, SHIFT)
