"""Operations on many messages at once, that a task which may run twice can repeat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..._common.ids import SUFFIX_LENGTH
from ...errors import MessageTooLong, RowsDiffer, RSMQError, SnapshotGone
from ..keys import QueueKeys
from ..operation import Argument, Operation, Reply
from ..scripts import load

#: Rows that one call may carry, so that other clients go on.
MAX_ROWS = 2000
#: Messages that are noted in one step; a larger queue is noted page by page.
SNAPSHOT_STEP = 200_000

Visibility = Literal["all", "visible", "hidden"]
Oversize = Literal["fail", "drop"]


@dataclass(slots=True)
class Rows:
    """Messages to be, column by column: there may be millions of them."""

    #: Per row an id, or the 22 random characters of an id to be made; or those of all rows in one.
    ids: list[bytes] | bytes
    #: Delays in milliseconds, -1 for the queue's; or one for all rows.
    delays_ms: list[int] | int
    bodies: list[bytes]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.bodies)

    def extend(self, more: Rows) -> None:
        """Add *more* at the end."""
        if isinstance(self.ids, bytes) and isinstance(more.ids, bytes):
            self.ids += more.ids
        else:
            self.ids = self._each_id() + more._each_id()
        if not (isinstance(self.delays_ms, int) and self.delays_ms == more.delays_ms):
            self.delays_ms = self._each_delay() + more._each_delay()
        self.bodies += more.bodies

    def split(self, count: int) -> tuple[Rows, Rows]:
        """Return the first *count* rows, and the others."""
        cut = count * SUFFIX_LENGTH if isinstance(self.ids, bytes) else count
        delays = self.delays_ms
        first, rest = (
            (delays, delays) if isinstance(delays, int) else (delays[:count], delays[count:])
        )
        return (
            Rows(self.ids[:cut], first, self.bodies[:count]),
            Rows(self.ids[cut:], rest, self.bodies[count:]),
        )

    def choose(self, places: list[int]) -> Rows:
        """Return the rows at *places*."""
        ids, delays = self._each_id(), self.delays_ms
        return Rows(
            [ids[at] for at in places],
            delays if isinstance(delays, int) else [delays[at] for at in places],
            [self.bodies[at] for at in places],
        )

    def flat(self) -> list[Argument]:
        """Return id, delay and body of each in turn."""
        flat: list[Argument] = [b""] * (3 * self.count)
        flat[0::3], flat[1::3], flat[2::3] = self._each_id(), self._each_delay(), self.bodies
        return flat

    def packed(self) -> list[Argument]:
        """Return the random characters and the delay of all, then bodies; or two blanks and all."""
        if isinstance(self.ids, bytes) and isinstance(self.delays_ms, int):
            return [self.ids, self.delays_ms, *self.bodies]
        return ["", "", *self.flat()]

    def _each_id(self) -> list[bytes]:
        if isinstance(self.ids, list):
            return self.ids
        return [self.ids[at : at + SUFFIX_LENGTH] for at in range(0, len(self.ids), SUFFIX_LENGTH)]

    def _each_delay(self) -> list[int]:
        return self.delays_ms if isinstance(self.delays_ms, list) else [self.delays_ms] * self.count


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

    #: Messages in each page that was made.
    sizes: tuple[int, ...] = ()
    now_ms: int | None = None
    last: bytes = b""
    score: bytes = b""


class SnapshotRange(NamedTuple):
    """Messages of a snapshot: ranks in one of its pages."""

    snapshot: str
    #: How many pages there are, and which one it is.
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
        args=(keys.wake, partition, start, digest, ttl_s, oversize, *rows.packed()),
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
    number = len(state.sizes)
    pages = (keys.snapshot(id, page) for page in (number, *range(number)))
    return Operation(
        script=load("snapshot"),
        keys=(keys.zset, keys.hash, *pages),
        args=(visibility, ttl_s, step, now_ms, state.last, state.score),
        parse=lambda reply: SnapshotState((*state.sizes, reply[0]), *reply[1:]),
        fail=keys.failure,
        repeatable=True,
    )


def read_noted(
    keys: QueueKeys, part: SnapshotRange, *, ttl_s: int, bodies: bool, counts: bool
) -> Operation[SnapshotPage]:
    """Read the messages that a snapshot has in this range."""

    def fail(code: str) -> RSMQError:
        if code == SnapshotGone.code:
            return SnapshotGone(
                f"the snapshot of queue {keys.queue!r} has expired; load() it again, "
                "or set snapshotTtlMs higher"
            )
        return keys.failure(code)

    others = (page for page in range(part.pages) if page != part.page)
    pages = (keys.snapshot(part.snapshot, page) for page in (part.page, *others))
    return Operation(
        script=load("snapshot_read"),
        keys=(keys.hash, *pages),
        args=(part.start, part.stop, ttl_s, int(bodies), int(counts)),
        parse=lambda reply: SnapshotPage(*reply),
        fail=fail,
        repeatable=True,
    )


def reasons(keys: QueueKeys, ids: Sequence[str]) -> Operation[list[str]]:
    """Read why messages were rejected into this queue; empty where nobody said."""
    return Operation(
        script=load("reasons"),
        keys=(keys.hash, keys.deliveries, *map(keys.reason, ids)),
        args=tuple(ids),
        parse=lambda reply: [text.decode(errors="replace") for text in reply],
        fail=keys.failure,
        repeatable=True,
    )


def _check_size(keys: QueueKeys, reply: Reply) -> None:
    if reply and reply[0] == b"messageTooLong":
        raise MessageTooLong(keys.queue, reply[1], reply[2])
