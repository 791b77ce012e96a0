"""Snapshots: what a queue holds at a time, page by page, for a read that changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...keys import QueueKeys
from ...operation import Kind, Operation, QueueRequest
from . import READ_BYTES

Visibility = Literal["all", "visible", "hidden"]


class SnapshotState(NamedTuple):
    """Progress of a snapshot; pass it on to make the next page, until ``last`` is empty."""

    #: Messages in each page that was made.
    sizes: tuple[int, ...] = ()
    now_ms: int | None = None
    last: bytes = b""
    score: bytes = b""
    #: Bytes of the bodies so far, as far as a sample tells.
    bytes: int = 0


class SnapshotRange(NamedTuple):
    """Messages of a snapshot: ranks in one of its pages."""

    snapshot: str
    #: The number of pages, and the number of this one.
    pages: int
    page: int
    start: int
    stop: int


class SnapshotPage(NamedTuple):
    """Messages of a snapshot as bytes; what is missing is ``None``."""

    #: Id and score of each in turn.
    range: list[bytes]
    bodies: list[bytes | None]
    #: Empty if no message was received yet.
    counts: list[bytes | None]
    firsts: list[bytes | None]
    #: How many ranks of the snapshot it covers, also those of members that are no messages.
    size: int
    #: Id and headers as they are stored, in turn, of the messages that have some.
    headers: Sequence[bytes] = ()


class SnapshotRequest(QueueRequest, frozen=True):
    """Make the first or next page of a snapshot of what the queue holds."""

    id: str
    state: SnapshotState
    visibility: Visibility
    ttl_s: int
    step: int


class ReadSnapshotRequest(QueueRequest, frozen=True):
    """Read the messages in a range of a snapshot; ``SnapshotGone`` if it has expired."""

    part: SnapshotRange
    ttl_s: int
    bodies: bool
    counts: bool
    max_bytes: int
    headers: bool


SNAPSHOT: Kind[SnapshotState] = Kind(name="snapshot", repeatable=True)
READ_SNAPSHOT: Kind[SnapshotPage] = Kind(name="snapshot_read", repeatable=True)


def take_snapshot(
    keys: QueueKeys,
    id: str,
    state: SnapshotState,
    *,
    visibility: Visibility,
    ttl_s: int,
    step: int,
) -> Operation[SnapshotState]:
    """Make the first or next page of a snapshot, of up to *step* messages."""
    return Operation(SNAPSHOT, SnapshotRequest(keys, id, state, visibility, ttl_s, step))


def read_snapshot(
    keys: QueueKeys,
    part: SnapshotRange,
    *,
    ttl_s: int,
    bodies: bool,
    counts: bool,
    max_bytes: int = READ_BYTES,
    headers: bool = False,
) -> Operation[SnapshotPage]:
    """Read the messages in a range of a snapshot."""
    return Operation(
        READ_SNAPSHOT, ReadSnapshotRequest(keys, part, ttl_s, bodies, counts, max_bytes, headers)
    )
