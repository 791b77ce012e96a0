"""Operations of a reader that must be able to read the same messages again: claims in a ledger.

A *claim* is a numbered list of messages that a reader holds, by leases that it renews or by having
moved them out of the queue. A *ledger* knows the claims of one reader. Every process that takes a
ledger over raises its *fence*, after which the process before it changes nothing any more.

All of these may be repeated: a claim goes on where it stands, the rest comes to the same end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...errors import ClaimLost, RSMQError
from ..keys import QueueKeys
from ..operation import Kind, Operation, QueueRequest, Request

Mode = Literal["lease", "move"]

#: Messages that one call may handle, so that other clients go on.
MAX_CHUNK = 1000
#: Messages that one call may read: what a script can pass on at once.
MAX_FETCH = 7000


@dataclass(frozen=True, slots=True)
class Ledger:
    """A reader's ledger as its keys are named and as its holder knows it."""

    keys: QueueKeys
    id: str
    mode: Mode
    #: What the holder's calls carry; older holders have smaller ones.
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
        """The key that names the reader's ledger; the ledger's own stands in where none is."""
        return self.keys.group(self.group) if self.group else self.key

    @property
    def live(self) -> list[int]:
        """Numbers of the claims that still hold messages."""
        return sorted({*self.sealed, *([self.open] if self.open else [])})

    def failure(self, code: str) -> RSMQError:
        """Return the error that a script's code word means for this ledger."""
        if code in ("fenced", "ledgerGone", "claimGone"):
            return ClaimLost(self.keys.queue, self.id, code)
        return self.keys.failure(code)


class Terms(NamedTuple):
    """How messages are claimed."""

    #: Messages in the whole claim, and by one call, at most.
    limit: int
    chunk: int
    lease_ms: int
    #: How long the ledger is kept while it is unused.
    ttl_s: int
    #: Only messages that were visible at this time; ``None``: that are visible now.
    latest_ms: int | None = None


class Claimed(NamedTuple):
    """A claim as far as it is made."""

    messages: int
    #: Whether it will not grow any more.
    complete: bool


class Run(NamedTuple):
    """Messages that follow each other in a claim and were received alike."""

    rc: bytes
    fr: bytes
    #: Length of an id, and the ids, one after the other.
    width: int
    ids: bytes

    @classmethod
    def of(cls, text: bytes) -> Run:
        """Read a run as scripts write it."""
        head, _, ids = text.partition(b"\n")
        rc, fr, width = head.split(b" ")
        return cls(rc, fr, int(width), ids)

    @property
    def size(self) -> int:
        """How many messages it has."""
        return len(self.ids) // self.width


class ClaimPage(NamedTuple):
    """Messages of a claim."""

    #: Messages that others received since, and messages that were deleted.
    taken: int
    gone: int
    runs: list[Run]
    #: One per message; ``None`` for those that are not the claimant's any more. Where bodies were
    #: not asked for: empty if all are the claimant's, else a number or ``None`` for each.
    bodies: list[bytes | None]

    @property
    def held(self) -> list[bytes]:
        """The ids of the messages that are the claimant's."""
        ids = [
            run.ids[at : at + run.width]
            for run in self.runs
            for at in range(0, len(run.ids), run.width)
        ]
        if not self.bodies:
            return ids
        return [id for id, body in zip(ids, self.bodies, strict=True) if body is not None]


class Renewed(NamedTuple):
    """Leases lengthened; ``next`` is the message to go on with, -1 at the end."""

    next: int
    taken: int
    gone: int


class Backlog(NamedTuple):
    """What waits in a queue, and the server's time in milliseconds."""

    now_ms: int
    visible: int
    hidden: int


class Released(NamedTuple):
    """Messages given back, and runs of messages of the claim that are left."""

    given: int
    left: int


class LedgerRequest(Request, frozen=True):
    """A request by the holder of a ledger."""

    ledger: Ledger

    @property
    def keys(self) -> QueueKeys:
        """The queue whose messages are claimed."""
        return self.ledger.keys


class ClaimRequest(LedgerRequest, frozen=True):
    """Add ready messages to a claim; the ledger is made if need be and *create* allows it."""

    number: int
    terms: Terms
    create: bool

    @property
    def weight(self) -> int:
        """As many as one call may claim."""
        return self.terms.chunk


class TakeOverRequest(QueueRequest, frozen=True):
    """Become the only one that may use a ledger; a *group* must still name it."""

    ledger: str
    group: str


class SetGroupRequest(LedgerRequest, frozen=True):
    """Make the ledger that of its group; ``None``, or the id of the one that is in the way."""

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


class RenewRequest(LedgerRequest, frozen=True):
    """Lengthen the leases of *count* messages of a claim."""

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
    """Give the next *count* messages of a claim back."""

    number: int
    count: int


class ForgetRequest(LedgerRequest, frozen=True):
    """Remove a ledger whose claims are all acknowledged or given back."""


class BacklogRequest(QueueRequest, frozen=True):
    """Count what waits."""


CLAIM: Kind[Claimed] = Kind(name="claim", repeatable=True)
TAKE_OVER: Kind[Ledger] = Kind(name="claim_open", repeatable=True)
SET_GROUP: Kind[str | None] = Kind(name="claim_group", repeatable=True)
GET_GROUP: Kind[str] = Kind(name="claim_get_group", repeatable=True)
READ: Kind[ClaimPage] = Kind(name="claim_read", repeatable=True)
RENEW: Kind[Renewed] = Kind(name="claim_renew", repeatable=True)
ACKNOWLEDGE: Kind[int] = Kind(name="claim_ack", repeatable=True)
RELEASE: Kind[Released] = Kind(name="claim_release", repeatable=True)
FORGET: Kind[int] = Kind(name="claim_forget", repeatable=True)
BACKLOG: Kind[Backlog] = Kind(name="backlog", repeatable=True)


def claim(ledger: Ledger, number: int, terms: Terms, *, create: bool) -> Operation[Claimed]:
    """Add ready messages to a claim; the ledger is made if need be and *create* allows it."""
    return Operation(CLAIM, ClaimRequest(ledger, number, terms, create))


def take_over(keys: QueueKeys, id: str, group: str = "") -> Operation[Ledger]:
    """Become the only one that may use a ledger; a *group* must still name it."""
    return Operation(TAKE_OVER, TakeOverRequest(keys, id, group))


def set_group_ledger(ledger: Ledger, *, expected: str, ttl_s: int) -> Operation[str | None]:
    """Make *ledger* the one of its group; ``None``, or the id of the one that is in the way."""
    return Operation(SET_GROUP, SetGroupRequest(ledger, expected, ttl_s))


def find_group_ledger(keys: QueueKeys, group: str) -> Operation[str]:
    """Return the id of the ledger of a named reader; empty if there is none."""
    return Operation(GET_GROUP, GetGroupRequest(keys, group))


def read(
    ledger: Ledger, number: int, start: int, stop: int, *, bodies: bool
) -> Operation[ClaimPage]:
    """Read the messages from *start* up to *stop* of a claim, those that are still held."""
    return Operation(READ, ReadRequest(ledger, number, start, stop, bodies))


def renew(
    ledger: Ledger, number: int, start: int, *, count: int, lease_ms: int, ttl_s: int
) -> Operation[Renewed]:
    """Lengthen the leases of *count* messages of a claim."""
    return Operation(RENEW, RenewRequest(ledger, number, start, count, lease_ms, ttl_s))


def acknowledge(ledger: Ledger, number: int, *, count: int) -> Operation[int]:
    """Delete the next *count* messages of a claim; the result is 0 when none are left."""
    return Operation(ACKNOWLEDGE, AcknowledgeRequest(ledger, number, count))


def release(ledger: Ledger, number: int, *, count: int) -> Operation[Released]:
    """Give the next *count* messages of a claim back."""
    return Operation(RELEASE, ReleaseRequest(ledger, number, count))


def forget(ledger: Ledger) -> Operation[int]:
    """Remove a ledger whose claims are all acknowledged or given back."""
    return Operation(FORGET, ForgetRequest(ledger))


def backlog(keys: QueueKeys) -> Operation[Backlog]:
    """Count what waits."""
    return Operation(BACKLOG, BacklogRequest(keys))
