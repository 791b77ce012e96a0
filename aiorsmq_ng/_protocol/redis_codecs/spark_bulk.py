"""Codecs of bulk sends, staged rows, epochs and snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import RowsDiffer, RSMQError, SnapshotGone
from ..operation import Argument, Reply
from ..operations.spark import bulk
from ..operations.spark.bulk import (
    BeginEpochRequest,
    BulkSendRequest,
    BulkSent,
    DiscardRequest,
    EndEpochRequest,
    KeepStagedRequest,
    MoveStagedRequest,
    ReadSnapshotRequest,
    ReasonsRequest,
    Rows,
    SnapshotPage,
    SnapshotRequest,
    SnapshotState,
    Staged,
    StageRequest,
)
from .codec import Codec
from .send import check_size


def flat(rows: Rows) -> list[Argument]:
    """Return id, delay and body of each row in turn."""
    args: list[Argument] = [b""] * (3 * rows.count)
    args[0::3], args[1::3], args[2::3] = rows.each_id(), rows.each_delay(), rows.bodies
    return args


def packed(rows: Rows) -> list[Argument]:
    """Return random characters and delay of all rows, then the bodies.

    If the rows have ids or delays of their own: two empty arguments, then ``flat(rows)``.
    """
    if isinstance(rows.ids, bytes) and isinstance(rows.delays_ms, int):
        return [rows.ids, rows.delays_ms, *rows.bodies]
    return ["", "", *flat(rows)]


def _send_args(request: BulkSendRequest) -> Sequence[Argument]:
    _, partition, start, digest = request.place
    where = (request.keys.wake, partition, start, digest)
    return (*where, request.ttl_s, request.oversize, *packed(request.rows))


def _decode_sent(request: BulkSendRequest, reply: Reply) -> BulkSent:
    check_size(request.keys, reply)
    return BulkSent(*reply)


def _send_failure(request: BulkSendRequest, code: str) -> RSMQError:
    if code == RowsDiffer.code:
        return RowsDiffer(
            f"partition {request.place.partition} of job {request.place.job!r} was sent to queue "
            f"{request.keys.queue!r} before, with other rows; sort or cache the data so that a "
            "retry sees the same, or use delivery=staged"
        )
    return request.keys.failure(code)


def _decode_staged(request: StageRequest, reply: Reply) -> Staged:
    check_size(request.keys, reply)
    return Staged(*reply)


def _snapshot_keys(request: SnapshotRequest) -> Sequence[str]:
    keys, number = request.keys, len(request.state.sizes)
    pages = (keys.snapshot(request.id, page) for page in (number, *range(number)))
    return (keys.zset, keys.hash, *pages)


def _snapshot_args(request: SnapshotRequest) -> Sequence[Argument]:
    state = request.state
    now_ms: Argument = "" if state.now_ms is None else state.now_ms
    return (request.visibility, request.ttl_s, request.step, now_ms, state.last, state.score)


def _decode_snapshot(request: SnapshotRequest, reply: Reply) -> SnapshotState:
    size, now_ms, last, score, size_bytes = reply
    state = request.state
    return SnapshotState((*state.sizes, size), now_ms, last, score, state.bytes + size_bytes)


def _read_keys(request: ReadSnapshotRequest) -> Sequence[str]:
    keys, part = request.keys, request.part
    others = (page for page in range(part.pages) if page != part.page)
    return (keys.hash, *(keys.snapshot(part.snapshot, page) for page in (part.page, *others)))


def _read_failure(request: ReadSnapshotRequest, code: str) -> RSMQError:
    if code == SnapshotGone.code:
        return SnapshotGone(
            f"the snapshot of queue {request.keys.queue!r} has expired; load() it again, "
            "or set snapshotTtlMs higher"
        )
    return request.keys.failure(code)


SEND: Codec[BulkSendRequest, BulkSent] = Codec(
    kind=bulk.SEND,
    script="bulk_send",
    keys=lambda r: (r.keys.zset, r.keys.hash, r.keys.marks(r.place.job)),
    args=_send_args,
    decode=_decode_sent,
    fail=_send_failure,
)
STAGE: Codec[StageRequest, Staged] = Codec(
    kind=bulk.STAGE,
    script="stage",
    keys=lambda r: (r.keys.hash, r.keys.staged(r.id)),
    args=lambda r: (r.before, r.ttl_s, r.oversize, *flat(r.rows)),
    decode=_decode_staged,
)
MOVE_STAGED: Codec[MoveStagedRequest, int] = Codec(
    kind=bulk.MOVE_STAGED,
    script="stage_move",
    keys=lambda r: (r.keys.zset, r.keys.hash, r.keys.staged(r.id)),
    args=lambda r: (r.keys.wake, r.count, r.max_bytes),
    decode=lambda _, reply: int(reply),
)
KEEP_STAGED: Codec[KeepStagedRequest, int] = Codec(
    kind=bulk.KEEP_STAGED,
    script="stage_keep",
    keys=lambda r: r.staged,
    args=lambda r: (r.ttl_s,),
    decode=lambda _, reply: int(reply),
)
BEGIN_EPOCH: Codec[BeginEpochRequest, str] = Codec(
    kind=bulk.BEGIN_EPOCH,
    script="epoch_begin",
    keys=lambda r: (r.keys.epochs(r.job), *r.staged),
    args=lambda r: (r.epoch, r.record, r.ttl_s),
    decode=lambda _, reply: reply[0].decode(),
)
END_EPOCH: Codec[EndEpochRequest, None] = Codec(
    kind=bulk.END_EPOCH,
    script="epoch_end",
    keys=lambda r: (r.keys.epochs(r.job),),
    args=lambda r: (r.epoch, r.ttl_s),
    decode=lambda _, reply: None,
)
DISCARD: Codec[DiscardRequest, int] = Codec(
    kind=bulk.DISCARD,
    script="discard",
    keys=lambda r: r.names,
    decode=lambda _, reply: int(reply),
)
SNAPSHOT: Codec[SnapshotRequest, SnapshotState] = Codec(
    kind=bulk.SNAPSHOT,
    script="snapshot",
    keys=_snapshot_keys,
    args=_snapshot_args,
    decode=_decode_snapshot,
)
READ_SNAPSHOT: Codec[ReadSnapshotRequest, SnapshotPage] = Codec(
    kind=bulk.READ_SNAPSHOT,
    script="snapshot_read",
    keys=_read_keys,
    args=lambda r: (
        *(r.part.start, r.part.stop, r.ttl_s),
        *(int(r.bodies), int(r.counts), r.max_bytes),
    ),
    decode=lambda _, reply: SnapshotPage(*reply),
    fail=_read_failure,
)
REASONS: Codec[ReasonsRequest, list[str]] = Codec(
    kind=bulk.REASONS,
    script="reasons",
    keys=lambda r: (r.keys.hash, r.keys.deliveries, *map(r.keys.reason, r.ids)),
    args=lambda r: r.ids,
    decode=lambda _, reply: [text.decode(errors="replace") for text in reply],
)

CODECS: tuple[Codec[Any, Any], ...] = (
    *(SEND, STAGE, MOVE_STAGED, KEEP_STAGED, BEGIN_EPOCH, END_EPOCH),
    *(DISCARD, SNAPSHOT, READ_SNAPSHOT, REASONS),
)
