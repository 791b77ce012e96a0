"""Operations on many messages at once, that a task which may run twice can repeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..errors import MessageTooLong, RSMQError
from .keys import QueueKeys
from .operation import Argument, Operation, Reply
from .scripts import load

#: Rows that one call may carry, so that other clients go on.
MAX_ROWS = 2000
#: Messages that are noted in one step; a larger queue is noted page by page.
SNAPSHOT_STEP = 200_000

Visibility = Literal["all", "visible", "hidden"]
Oversize = Literal["fail", "drop"]


class RowsDiffer(RSMQError):
    """Raised when a partition that runs again has other rows than before; nothing was sent."""

    code = "rowsDiffer"


class SnapshotGone(RSMQError):
    """Raised when the snapshot that a reader works on is gone."""

    code = "snapshotGone"


@dataclass(slots=True)
class Rows:
    """Messages to be, column by column: there may be millions of them."""

    #: Ids, or the 22 random characters of ids to be made.
    ids: list[bytes]
    #: Delays in milliseconds; -1 for the queue's.
    delays_ms: list[int]
    bodies: list[bytes]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.bodies)

    def extend(self, more: Rows) -> None:
        """Add *more* at the end."""
        self.ids += more.ids
        self.delays_ms += more.delays_ms
        self.bodies += more.bodies

    def split(self, count: int) -> tuple[Rows, Rows]:
        """Return the first *count* rows, and the others."""
        return (
            Rows(self.ids[:count], self.delays_ms[:count], self.bodies[:count]),
            Rows(self.ids[count:], self.delays_ms[count:], self.bodies[count:]),
        )

    def flat(self) -> list[Argument]:
        """Return id, delay and body of each in turn."""
        flat: list[Argument] = [b""] * (3 * self.count)
        flat[0::3], flat[1::3], flat[2::3] = self.ids, self.delays_ms, self.bodies
        return flat


class Place(NamedTuple):
    """Where in a job a lot of rows stands."""

    job: str
    partition: str
    #: Number of the first row in its partition.
    start: int = 0
    #: Digest of the partition's rows up to the last one of the lot.
    digest: bytes = b""


class BulkSent(NamedTuple):
    """What became of the rows of one call."""

    #: Sent by an earlier attempt.
    skipped: int
    stored: int
    #: Longer than the queue allows, and left out.
    dropped: int
    #: Rows with an id that the queue had already.
    existing: int


class Staged(NamedTuple):
    """Rows set aside so far, and rows left out by this call."""

    rows: int
    dropped: int


class SnapshotState(NamedTuple):
    """How far a snapshot is made; pass it on to make the next page, until ``last`` is empty."""

    noted: int = 0
    now_ms: int | None = None
    last: bytes = b""
    score: bytes = b""


class SnapshotPage(NamedTuple):
    """Messages of a snapshot, column by column, as bytes; what is missing is ``None``."""

    ids: list[bytes]
    scores: list[bytes]
    bodies: list[bytes | None]
    counts: list[bytes | None]
    firsts: list[bytes | None]


def send(
    keys: QueueKeys,
    rows: Rows,
    place: Place,
    *,
    ttl_s: int,
    oversize: Oversize,
) -> Operation[BulkSent]:
    """Store a lot of rows of a partition, unless an earlier attempt did."""
    job, partition, start, digest = place

    def parse(reply: Reply) -> BulkSent:
        _check_size(keys, reply)
        return BulkSent(*reply)

    def fail(code: str) -> RSMQError:
        if code == RowsDiffer.code:
            return RowsDiffer(
                f"partition {partition} of job {job!r} was sent to queue {keys.queue!r} before, "
                "with other rows; sort or cache the data so that a retry sees the same, "
                "or use delivery=staged"
            )
        return keys.failure(code)

    return Operation(
        script=load("bulk_send"),
        keys=(keys.zset, keys.hash, keys.marks(job)),
        args=(keys.wake, partition, start, digest, ttl_s, oversize, *rows.flat()),
        parse=parse,
        fail=fail,
        weight=rows.count,
        repeatable=True,
    )


def stage(
    keys: QueueKeys, id: str, rows: Rows, *, before: int, ttl_s: int, oversize: Oversize
) -> Operation[Staged]:
    """Set rows aside under *id*; *before* is how many the calls before set aside."""

    def parse(reply: Reply) -> Staged:
        _check_size(keys, reply)
        return Staged(*reply)

    return Operation(
        script=load("stage"),
        keys=(keys.hash, keys.staged(id)),
        args=(before, ttl_s, oversize, *rows.flat()),
        parse=parse,
        fail=keys.failure,
        weight=rows.count,
        repeatable=True,
    )


def move_staged(keys: QueueKeys, id: str, *, count: int) -> Operation[int]:
    """Turn the next *count* rows that were set aside into messages; the result is what is left."""
    return Operation(
        script=load("stage_move"),
        keys=(keys.zset, keys.hash, keys.staged(id)),
        args=(keys.wake, count),
        parse=int,
        fail=keys.failure,
        weight=count,
        repeatable=True,
    )


def begin_epoch(
    keys: QueueKeys, job: str, epoch: int, record: str, staged: Iterable[str], *, ttl_s: int
) -> Operation[str]:
    """Write down what an epoch consists of; the result is what holds, empty if it is committed."""
    return Operation(
        script=load("epoch_begin"),
        keys=(keys.epochs(job), *staged),
        args=(epoch, record, ttl_s),
        parse=lambda reply: reply[0].decode(),
        fail=keys.failure,
        repeatable=True,
    )


def end_epoch(keys: QueueKeys, job: str, epoch: int, *, ttl_s: int) -> Operation[None]:
    """Write down that an epoch is committed."""
    return Operation(
        script=load("epoch_end"),
        keys=(keys.epochs(job),),
        args=(epoch, ttl_s),
        parse=lambda _: None,
        fail=keys.failure,
        repeatable=True,
    )


def discard(keys: QueueKeys, names: Iterable[str]) -> Operation[int]:
    """Remove side keys."""
    return Operation(
        script=load("discard"),
        keys=tuple(names),
        args=(),
        parse=int,
        fail=keys.failure,
        repeatable=True,
    )


def note(
    keys: QueueKeys,
    id: str,
    state: SnapshotState,
    *,
    visibility: Visibility,
    ttl_s: int,
    step: int = SNAPSHOT_STEP,
) -> Operation[SnapshotState]:
    """Make a snapshot of what the queue holds, or its next page."""
    now_ms: Argument = "" if state.now_ms is None else state.now_ms
    return Operation(
        script=load("snapshot"),
        keys=(keys.zset, keys.hash, keys.snapshot(id)),
        args=(visibility, ttl_s, step, now_ms, state.last, state.score),
        parse=lambda reply: SnapshotState(*reply),
        fail=keys.failure,
        repeatable=True,
    )


def read_noted(
    keys: QueueKeys, id: str, start: int, stop: int, *, ttl_s: int, bodies: bool, counts: bool
) -> Operation[SnapshotPage]:
    """Read the messages that a snapshot has at *start* up to *stop*."""

    def fail(code: str) -> RSMQError:
        if code == SnapshotGone.code:
            return SnapshotGone(
                f"the snapshot of queue {keys.queue!r} has expired; load() it again, "
                "or set snapshotTtlMs higher"
            )
        return keys.failure(code)

    return Operation(
        script=load("snapshot_read"),
        keys=(keys.hash, keys.snapshot(id)),
        args=(start, stop, ttl_s, int(bodies), int(counts)),
        parse=lambda reply: SnapshotPage(*reply),
        fail=fail,
        repeatable=True,
    )


def _check_size(keys: QueueKeys, reply: Reply) -> None:
    if reply and reply[0] == b"messageTooLong":
        raise MessageTooLong(keys.queue, reply[1], reply[2])
