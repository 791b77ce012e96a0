"""Operations for readers that must be able to read the same messages again: claims in a ledger.

A *claim* is a numbered list of messages that a reader holds: under leases that it renews, or moved
out of the queue. A *ledger* lists the claims of one reader. A process that takes over a ledger
increments its *fence*; from then on, calls of the previous process change nothing.

All of these may be repeated: a repeated claim continues where it stopped, the rest is idempotent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ....errors import ClaimLost, RSMQError
from ...keys import QueueKeys
from ...operation import Kind, Operation, QueueRequest, Request
from . import READ_BYTES, WRITE_BYTES

Mode = Literal["lease", "move"]

#: Messages that one call may handle; more would stall other clients.
MAX_CHUNK = 1000
#: Messages that one call may dead-letter.
MAX_DEAD_LETTERS = 500
#: Messages that one call may read; Lua limits the number of values that a script unpacks.
MAX_FETCH = 7000


@dataclass(frozen=True, slots=True)
class Ledger:
    """A reader's ledger: where it is stored, and its state as its holder knows it."""

    keys: QueueKeys
    id: str
    mode: Mode
    #: Fence of the holder's calls; earlier holders have smaller ones.
    fence: int = 1
    #: Claims up to this number are acknowledged.
    acked: int = 0
    #: Claim that is being made, or 0.
    open: int = 0
    #: Complete claims that are not acknowledged: number -> messages.
    sealed: dict[int, int] = field(default_factory=dict)
    #: Name of the reader, if it has one.
    group: str = ""

    @property
    def key(self) -> str:
        """The ledger's key."""
        return self.keys.ledger(self.id)

    @property
    def group_key(self) -> str:
        """The key that names the reader's ledger; for a reader without name, the ledger's key."""
        return self.keys.group(self.group) if self.group else self.key

    @property
    def live(self) -> list[int]:
        """Numbers of the claims that still hold messages."""
        return sorted({*self.sealed, *([self.open] if self.open else [])})

    def failure(self, code: str) -> RSMQError:
        """Return the error for a script's error code on this ledger."""
        if code in ("fenced", "ledgerGone", "claimGone"):
            return ClaimLost(self.keys.queue, self.id, code)
        return self.keys.failure(code)


class Terms(NamedTuple):
    """How messages are claimed."""

    #: The most messages in the whole claim, and by one call.
    limit: int
    chunk: int
    lease_ms: int
    #: How long an unused ledger is kept.
    ttl_s: int
    #: Only messages that were visible at this time; ``None``: that are visible now.
    latest_ms: int | None = None
    #: Bytes of bodies after which the claim is complete; 0: any number.
    max_bytes: int = 0
    #: Bytes of bodies that one call moves.
    call_bytes: int = WRITE_BYTES


class Claimed(NamedTuple):
    """Progress of a claim."""

    messages: int
    #: True if it will not grow any more.
    complete: bool
    #: True if this call completed it because of a limit, so that more messages may be ready.
    full: bool


class Run(NamedTuple):
    """Consecutive messages of a claim with equal ``rc`` and ``fr``."""

    rc: bytes
    fr: bytes
    #: Length of an id, and the ids, concatenated.
    width: int
    ids: bytes

    @classmethod
    def of(cls, text: bytes) -> Run:
        """Decode a run as scripts write it."""
        head, _, ids = text.partition(b"\n")
        rc, fr, width, _, *note = head.split(b" ")
        return cls(rc, fr, int(width), ids[: len(ids) - int(note[0])] if note else ids)

    @property
    def size(self) -> int:
        """The number of its messages."""
        return len(self.ids) // self.width


class ClaimPage(NamedTuple):
    """Messages of a claim."""

    #: Messages that another consumer has received since, and messages that were deleted.
    taken: int
    gone: int
    runs: list[Run]
    #: One per message; ``None`` for messages that the reader no longer holds. Without bodies in the
    #: request: empty if it holds all of them, else a number or ``None`` for each.
    bodies: list[bytes | None]
    #: Id and headers as they are stored, in turn, of the messages that have some.
    headers: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        """How many messages it has, also those that are not the claimant's any more."""
        return sum(run.size for run in self.runs)

    @property
    def ids(self) -> list[bytes]:
        """The ids of all messages; a text that is no id in the place of a dead letter."""
        return [
            run.ids[at : at + run.width]
            for run in self.runs
            for at in range(0, len(run.ids), run.width)
        ]

    @property
    def held(self) -> list[bytes]:
        """The ids of the messages that the reader still holds."""
        if not self.bodies:
            return self.ids
        return [id for id, body in zip(self.ids, self.bodies, strict=True) if body is not None]


class Renewed(NamedTuple):
    """Outcome of a renewal; ``next`` is the message to continue with, -1 at the end."""

    next: int
    taken: int
    gone: int


class Backlog(NamedTuple):
    """Numbers of messages in a queue, and the server's time in milliseconds."""

    now_ms: int
    visible: int
    hidden: int
    #: How long the first message has been visible; 0 if none is.
    oldest_age_ms: int = 0


class Released(NamedTuple):
    """Messages given back, and runs of the claim that are left."""

    given: int
    left: int


class DeadLetter(NamedTuple):
    """A message of a claim that shall go to the dead-letter queue."""

    #: Its number in the claim.
    number: int
    id: bytes
    body: bytes
    why: str


class LedgerRequest(Request, frozen=True):
    """A request by the holder of a ledger."""

    ledger: Ledger

    @property
    def keys(self) -> QueueKeys:
        """The queue whose messages are claimed."""
        return self.ledger.keys


class ClaimRequest(LedgerRequest, frozen=True):
    """Add ready messages to a claim; a missing ledger is created if *create* is set."""

    number: int
    terms: Terms
    create: bool

    @property
    def weight(self) -> int:
        """As many as one call may claim."""
        return self.terms.chunk


class TakeOverRequest(QueueRequest, frozen=True):
    """Take over a ledger, so that only this process may use it; a *group* must still name it."""

    ledger: str
    group: str


class SetGroupRequest(LedgerRequest, frozen=True):
    """Make the ledger that of its group, if the group has the *expected* one.

    The result is ``None``, or the id of the ledger that the group has instead.
    """

    expected: str
    ttl_s: int


class GetGroupRequest(QueueRequest, frozen=True):
    """Return the id of the ledger of a named reader; empty if there is none."""

    group: str


class ReadRequest(LedgerRequest, frozen=True):
    """Read the messages from *start* up to *stop* of a claim, those that are still held."""

    number: int
    start: int
    stop: int
    bodies: bool
    max_bytes: int
    headers: bool


class RenewRequest(LedgerRequest, frozen=True):
    """Extend the leases of *count* messages of a claim."""

    number: int
    start: int
    count: int
    lease_ms: int
    ttl_s: int


class AcknowledgeRequest(LedgerRequest, frozen=True):
    """Delete the next *count* messages of a claim. The result is 0 when none are left."""

    number: int
    count: int


class ReleaseRequest(LedgerRequest, frozen=True):
    """Give the next *count* messages of a claim back; fewer if moved bodies are long."""

    number: int
    count: int
    max_bytes: int


class DeadLetterRequest(LedgerRequest, frozen=True):
    """Move messages of a claim to a dead-letter queue, those that are still held."""

    number: int
    letters: Sequence[DeadLetter]
    dead: QueueKeys


class ForgetRequest(LedgerRequest, frozen=True):
    """Delete a ledger whose claims are all acknowledged or given back."""


class BacklogRequest(QueueRequest, frozen=True):
    """Count the visible and the hidden messages."""


CLAIM: Kind[Claimed] = Kind(name="claim", repeatable=True)
TAKE_OVER: Kind[Ledger] = Kind(name="claim_open", repeatable=True)
SET_GROUP: Kind[str | None] = Kind(name="claim_group", repeatable=True)
GET_GROUP: Kind[str] = Kind(name="claim_get_group", repeatable=True)
READ: Kind[ClaimPage] = Kind(name="claim_read", repeatable=True)
RENEW: Kind[Renewed] = Kind(name="claim_renew", repeatable=True)
ACKNOWLEDGE: Kind[int] = Kind(name="claim_ack", repeatable=True)
RELEASE: Kind[Released] = Kind(name="claim_release", repeatable=True)
DEAD_LETTER: Kind[int] = Kind(name="claim_dead_letter", repeatable=True)
FORGET: Kind[int] = Kind(name="claim_forget", repeatable=True)
BACKLOG: Kind[Backlog] = Kind(name="backlog", repeatable=True)


def claim(ledger: Ledger, number: int, terms: Terms, *, create: bool) -> Operation[Claimed]:
    """Add ready messages to a claim; a missing ledger is created if *create* is set."""
    return Operation(CLAIM, ClaimRequest(ledger, number, terms, create))


def take_over(keys: QueueKeys, id: str, group: str = "") -> Operation[Ledger]:
    """Take over a ledger, so that only this process may use it; a *group* must still name it."""
    return Operation(TAKE_OVER, TakeOverRequest(keys, id, group))


def set_group_ledger(ledger: Ledger, *, expected: str, ttl_s: int) -> Operation[str | None]:
    """Make *ledger* that of its group; the result is that of ``SetGroupRequest``."""
    return Operation(SET_GROUP, SetGroupRequest(ledger, expected, ttl_s))


def find_group_ledger(keys: QueueKeys, group: str) -> Operation[str]:
    """Return the id of the ledger of a named reader; empty if there is none."""
    return Operation(GET_GROUP, GetGroupRequest(keys, group))


def read(
    ledger: Ledger,
    number: int,
    start: int,
    stop: int,
    *,
    bodies: bool,
    max_bytes: int = READ_BYTES,
    headers: bool = False,
) -> Operation[ClaimPage]:
    """Read the messages from *start* up to *stop* of a claim, those that are still held.

    The page ends with the message that reaches *max_bytes*.
    """
    return Operation(READ, ReadRequest(ledger, number, start, stop, bodies, max_bytes, headers))


def renew(
    ledger: Ledger, number: int, start: int, *, count: int, lease_ms: int, ttl_s: int
) -> Operation[Renewed]:
    """Extend the leases of *count* messages of a claim."""
    return Operation(RENEW, RenewRequest(ledger, number, start, count, lease_ms, ttl_s))


def acknowledge(ledger: Ledger, number: int, *, count: int) -> Operation[int]:
    """Delete the next *count* messages of a claim; the result is 0 when none are left."""
    return Operation(ACKNOWLEDGE, AcknowledgeRequest(ledger, number, count))


def release(
    ledger: Ledger, number: int, *, count: int, max_bytes: int = WRITE_BYTES
) -> Operation[Released]:
    """Give the next *count* messages of a claim back; fewer if moved bodies are long."""
    return Operation(RELEASE, ReleaseRequest(ledger, number, count, max_bytes))


def dead_letter(
    ledger: Ledger, number: int, letters: Sequence[DeadLetter], dead: QueueKeys
) -> Operation[int]:
    """Move messages of a claim, in its order, to the dead-letter queue *dead* of its namespace.

    The result is how many this attempt moved, of those that were still held; an earlier one whose
    reply was lost may have moved the others. They are no messages of the claim then.
    """
    return Operation(DEAD_LETTER, DeadLetterRequest(ledger, number, letters, dead))


def forget(ledger: Ledger) -> Operation[int]:
    """Delete a ledger whose claims are all acknowledged or given back."""
    return Operation(FORGET, ForgetRequest(ledger))


def backlog(keys: QueueKeys) -> Operation[Backlog]:
    """Count the visible and the hidden messages."""
    return Operation(BACKLOG, BacklogRequest(keys))
