"""Codecs of snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import RSMQError, SnapshotGone
from ..operation import Argument, Reply
from ..operations.spark import snapshots
from ..operations.spark.snapshots import (
    ReadSnapshotRequest,
    SnapshotPage,
    SnapshotRequest,
    SnapshotState,
)
from .codec import Codec


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
    return (
        keys.zset,
        keys.hash,
        *(keys.snapshot(part.snapshot, page) for page in (part.page, *others)),
    )


def _read_failure(request: ReadSnapshotRequest, code: str) -> RSMQError:
    if code == SnapshotGone.code:
        return SnapshotGone(
            f"the snapshot of queue {request.keys.queue!r} has expired; load() it again, "
            "or set snapshotTtlMs higher"
        )
    return request.keys.failure(code)


SNAPSHOT: Codec[SnapshotRequest, SnapshotState] = Codec(
    kind=snapshots.SNAPSHOT,
    script="snapshot",
    keys=_snapshot_keys,
    args=_snapshot_args,
    decode=_decode_snapshot,
)
READ_SNAPSHOT: Codec[ReadSnapshotRequest, SnapshotPage] = Codec(
    kind=snapshots.READ_SNAPSHOT,
    script="snapshot_read",
    keys=_read_keys,
    args=lambda r: (
        *(r.part.start, r.part.stop, r.ttl_s),
        *(int(r.bodies), int(r.counts), r.max_bytes, int(r.headers)),
    ),
    decode=lambda _, reply: SnapshotPage(*reply),
    fail=_read_failure,
)

CODECS: tuple[Codec[Any, Any], ...] = (SNAPSHOT, READ_SNAPSHOT)
