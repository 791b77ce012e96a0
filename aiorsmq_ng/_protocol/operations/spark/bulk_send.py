"""Idempotent sends of many rows at once, for tasks that may run twice; staged rows and epochs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...._common.message_ids import SUFFIX_LENGTH
from ....errors import RowsDiffer
from ...keys import QueueKeys
from ...operation import Kind, Operation, QueueRequest
from . import WRITE_BYTES

#: Rows that one call may carry; more would stall other clients.
MAX_ROWS = 2000

Oversize = Literal["fail", "drop"]


@dataclass(slots=True)
class Rows:
    """Messages to send, column by column: there may be millions of them."""

    #: Per row the 22 random characters of a new id, or ``kept(id)``; or the random characters of
    #: all rows in one value.
    ids: list[bytes] | bytes
    #: Delay per row in milliseconds, -1 for the queue's; or one delay for all rows.
    delays_ms: list[int] | int
    bodies: list[bytes]
    #: Headers per row as they are stored, empty for a row without; an empty list if no row has any.
    #: The id of a row with headers ends in their mark.
    headers: list[bytes] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.bodies)

    def extend(self, more: Rows) -> None:
        """Add *more* at the end."""
        if isinstance(self.ids, bytes) and isinstance(more.ids, bytes):
            self.ids += more.ids
        else:
            self.ids = self.each_id() + more.each_id()
        if not (isinstance(self.delays_ms, int) and self.delays_ms == more.delays_ms):
            self.delays_ms = self.each_delay() + more.each_delay()
        if self.headers or more.headers:
            self.headers = self.each_headers() + more.each_headers()
        self.bodies += more.bodies

    def split(self, count: int) -> tuple[Rows, Rows]:
        """Return the first *count* rows, and the rest."""
        cut = count * SUFFIX_LENGTH if isinstance(self.ids, bytes) else count
        delays = self.delays_ms
        first, rest = (
            (delays, delays) if isinstance(delays, int) else (delays[:count], delays[count:])
        )
        return (
            Rows(self.ids[:cut], first, self.bodies[:count], self.headers[:count]),
            Rows(self.ids[cut:], rest, self.bodies[count:], self.headers[count:]),
        )

    def choose(self, places: list[int]) -> Rows:
        """Return the rows at *places*."""
        ids, delays = self.each_id(), self.delays_ms
        return Rows(
            [ids[at] for at in places],
            delays if isinstance(delays, int) else [delays[at] for at in places],
            [self.bodies[at] for at in places],
            [self.headers[at] for at in places] if self.headers else [],
        )

    def each_id(self) -> list[bytes]:
        """Return the random characters, or the id to keep, of each row."""
        if isinstance(self.ids, list):
            return self.ids
        return [self.ids[at : at + SUFFIX_LENGTH] for at in range(0, len(self.ids), SUFFIX_LENGTH)]

    def each_headers(self) -> list[bytes]:
        """Return the headers of each row."""
        return self.headers or [b""] * self.count

    def each_delay(self) -> list[int]:
        """Return the delay of each row."""
        return self.delays_ms if isinstance(self.delays_ms, list) else [self.delays_ms] * self.count


def kept(id: str) -> bytes:
    """Return the entry of ``Rows.ids`` for a row whose message gets this *id*."""
    return b"=" + id.encode()


class Place(NamedTuple):
    """Position of a chunk of rows in its job."""

    job: str
    partition: str
    #: Number of the first row in its partition.
    start: int = 0
    #: Digest of the partition's rows up to the last one of the chunk.
    digest: bytes = b""


class BulkSent(NamedTuple):
    """The outcome for the rows of one call."""

    #: Sent by an earlier attempt, from the first row of the call on, and also after the last one.
    skipped: int
    stored: int
    #: Longer than the queue allows, and left out.
    dropped: int
    #: Rows with an id that the queue had already.
    existing: int


def other_rows(job: str, partition: str, queue: str, how: str) -> RowsDiffer:
    """Return the error for a partition that was sent before with other rows; *how* they differ."""
    return RowsDiffer(
        f"partition {partition} of job {job!r} was sent to queue {queue!r} before, with {how}; "
        "sort or cache the data so that a retry sees the same, or use delivery=staged"
    )


class Staged(NamedTuple):
    """Rows staged so far, and rows left out by this call."""

    rows: int
    dropped: int


class BulkSendRequest(QueueRequest, frozen=True):
    """Store a chunk of rows of a partition, unless an earlier attempt did.

    ``RowsDiffer`` if an earlier attempt stored other rows; ``MessageTooLong`` if *oversize* is
    ``fail`` and a row is too long.
    """

    rows: Rows
    place: Place
    ttl_s: int
    oversize: Oversize

    @property
    def weight(self) -> int:
        """One per row."""
        return self.rows.count


class StageRequest(QueueRequest, frozen=True):
    """Stage rows under *id*; *before* is the number of rows that earlier calls staged."""

    id: str
    rows: Rows
    before: int
    ttl_s: int
    oversize: Oversize

    @property
    def weight(self) -> int:
        """One per row."""
        return self.rows.count


class MoveStagedRequest(QueueRequest, frozen=True):
    """Turn the next *count* staged rows into messages, fewer if their bodies are long.

    The result is how many are left.
    """

    id: str
    count: int
    max_bytes: int

    @property
    def weight(self) -> int:
        """One per row."""
        return self.count


class KeepStagedRequest(QueueRequest, frozen=True):
    """Extend the TTL of staged rows. The result is how many lists of rows exist."""

    staged: tuple[str, ...]
    ttl_s: int


class BeginEpochRequest(QueueRequest, frozen=True):
    """Record what an epoch consists of, unless that is recorded already.

    The result is the record that counts; empty if the epoch is committed.
    """

    job: str
    epoch: int
    record: str
    #: Keys of the staged rows.
    staged: tuple[str, ...]
    ttl_s: int


class EndEpochRequest(QueueRequest, frozen=True):
    """Record that an epoch is committed."""

    job: str
    epoch: int
    ttl_s: int


class DiscardRequest(QueueRequest, frozen=True):
    """Delete side keys. The result is how many existed."""

    names: tuple[str, ...]


SEND: Kind[BulkSent] = Kind(name="bulk_send", repeatable=True)
STAGE: Kind[Staged] = Kind(name="stage", repeatable=True)
MOVE_STAGED: Kind[int] = Kind(name="stage_move", repeatable=True)
KEEP_STAGED: Kind[int] = Kind(name="stage_keep", repeatable=True)
BEGIN_EPOCH: Kind[str] = Kind(name="epoch_begin", repeatable=True)
END_EPOCH: Kind[None] = Kind(name="epoch_end", repeatable=True)
DISCARD: Kind[int] = Kind(name="discard", repeatable=True)


def send(
    keys: QueueKeys, rows: Rows, place: Place, *, ttl_s: int, oversize: Oversize
) -> Operation[BulkSent]:
    """Store a chunk of rows of a partition, unless an earlier attempt did."""
    return Operation(SEND, BulkSendRequest(keys, rows, place, ttl_s, oversize))


def stage(
    keys: QueueKeys, id: str, rows: Rows, *, before: int, ttl_s: int, oversize: Oversize
) -> Operation[Staged]:
    """Stage rows under *id*; *before* is the number of rows that earlier calls staged."""
    return Operation(STAGE, StageRequest(keys, id, rows, before, ttl_s, oversize))


def move_staged(
    keys: QueueKeys, id: str, *, count: int, max_bytes: int = WRITE_BYTES
) -> Operation[int]:
    """Turn the next *count* staged rows into messages, fewer if their bodies are long.

    The result is how many are left.
    """
    return Operation(MOVE_STAGED, MoveStagedRequest(keys, id, count, max_bytes))


def keep_staged(keys: QueueKeys, staged: Iterable[str], *, ttl_s: int) -> Operation[int]:
    """Keep staged rows for *ttl_s* from now on; the result is how many lists of rows exist."""
    return Operation(KEEP_STAGED, KeepStagedRequest(keys, tuple(staged), ttl_s))


def begin_epoch(
    keys: QueueKeys, job: str, epoch: int, record: str, staged: Iterable[str], *, ttl_s: int
) -> Operation[str]:
    """Record what an epoch consists of; the result is that of ``BeginEpochRequest``."""
    return Operation(BEGIN_EPOCH, BeginEpochRequest(keys, job, epoch, record, tuple(staged), ttl_s))


def end_epoch(keys: QueueKeys, job: str, epoch: int, *, ttl_s: int) -> Operation[None]:
    """Record that an epoch is committed."""
    return Operation(END_EPOCH, EndEpochRequest(keys, job, epoch, ttl_s))


def discard(keys: QueueKeys, names: Iterable[str]) -> Operation[int]:
    """Delete side keys; the result is how many existed."""
    return Operation(DISCARD, DiscardRequest(keys, tuple(names)))
