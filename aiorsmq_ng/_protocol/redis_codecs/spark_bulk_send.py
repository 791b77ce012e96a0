"""Codecs of bulk sends, staged rows and epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import RowsDiffer, RSMQError
from ..operation import Argument, Reply
from ..operations.spark import bulk_send
from ..operations.spark.bulk_send import (
    BeginEpochRequest,
    BulkSendRequest,
    BulkSent,
    DiscardRequest,
    EndEpochRequest,
    KeepStagedRequest,
    MoveStagedRequest,
    Rows,
    Staged,
    StageRequest,
)
from .codec import Codec
from .send import check_refusal


def flat(rows: Rows) -> list[Argument]:
    """Return id, delay and body of each row in turn; headers follow the id in its value."""
    args: list[Argument] = [b""] * (3 * rows.count)
    ids = rows.each_id()
    if rows.headers:
        ids = [id + headers for id, headers in zip(ids, rows.headers, strict=True)]
    args[0::3], args[1::3], args[2::3] = ids, rows.each_delay(), rows.bodies
    return args


def packed(rows: Rows) -> list[Argument]:
    """Return random characters and delay of all rows, then the bodies.

    If the rows have ids, delays or headers of their own: two empty arguments, then ``flat(rows)``.
    """
    if isinstance(rows.ids, bytes) and isinstance(rows.delays_ms, int) and not rows.headers:
        return [rows.ids, rows.delays_ms, *rows.bodies]
    return ["", "", *flat(rows)]


def _send_args(request: BulkSendRequest) -> Sequence[Argument]:
    _, partition, start, digest = request.place
    where = (request.keys.wake, partition, start, digest)
    return (*where, request.ttl_s, request.oversize, *packed(request.rows))


def _decode_sent(request: BulkSendRequest, reply: Reply) -> BulkSent:
    check_refusal(request.keys, reply)
    return BulkSent(*reply)


def _send_failure(request: BulkSendRequest, code: str) -> RSMQError:
    if code == RowsDiffer.code:
        place = request.place
        return bulk_send.other_rows(place.job, place.partition, request.keys.queue, "other rows")
    return request.keys.failure(code)


def _decode_staged(request: StageRequest, reply: Reply) -> Staged:
    check_refusal(request.keys, reply)
    return Staged(*reply)


SEND: Codec[BulkSendRequest, BulkSent] = Codec(
    kind=bulk_send.SEND,
    script="bulk_send",
    keys=lambda r: (r.keys.zset, r.keys.hash, r.keys.marks(r.place.job)),
    args=_send_args,
    decode=_decode_sent,
    fail=_send_failure,
)
STAGE: Codec[StageRequest, Staged] = Codec(
    kind=bulk_send.STAGE,
    script="stage",
    keys=lambda r: (r.keys.zset, r.keys.hash, r.keys.staged(r.id)),
    args=lambda r: (r.before, r.ttl_s, r.oversize, *flat(r.rows)),
    decode=_decode_staged,
)
MOVE_STAGED: Codec[MoveStagedRequest, int] = Codec(
    kind=bulk_send.MOVE_STAGED,
    script="stage_move",
    keys=lambda r: (r.keys.zset, r.keys.hash, r.keys.staged(r.id)),
    args=lambda r: (r.keys.wake, r.count, r.max_bytes),
    decode=lambda _, reply: int(reply),
)
KEEP_STAGED: Codec[KeepStagedRequest, int] = Codec(
    kind=bulk_send.KEEP_STAGED,
    script="stage_keep",
    keys=lambda r: r.staged,
    args=lambda r: (r.ttl_s,),
    decode=lambda _, reply: int(reply),
)
BEGIN_EPOCH: Codec[BeginEpochRequest, str] = Codec(
    kind=bulk_send.BEGIN_EPOCH,
    script="epoch_begin",
    keys=lambda r: (r.keys.epochs(r.job), *r.staged),
    args=lambda r: (r.epoch, r.record, r.ttl_s),
    decode=lambda _, reply: reply[0].decode(),
)
END_EPOCH: Codec[EndEpochRequest, None] = Codec(
    kind=bulk_send.END_EPOCH,
    script="epoch_end",
    keys=lambda r: (r.keys.epochs(r.job),),
    args=lambda r: (r.epoch, r.ttl_s),
    decode=lambda _, reply: None,
)
DISCARD: Codec[DiscardRequest, int] = Codec(
    kind=bulk_send.DISCARD,
    script="discard",
    keys=lambda r: r.names,
    decode=lambda _, reply: int(reply),
)

CODECS: tuple[Codec[Any, Any], ...] = (
    *(SEND, STAGE, MOVE_STAGED, KEEP_STAGED),
    *(BEGIN_EPOCH, END_EPOCH, DISCARD),
)
