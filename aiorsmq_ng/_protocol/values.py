"""Values that operations on messages are given and return."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from ..models import Message
from .keys import QueueKeys


class Receipt(NamedTuple):
    """Proof of one delivery. Every RSMQ client counts ``rc`` up, so an older receipt shows."""

    id: str
    rc: int
    fr: int
    #: What a broker signed for this delivery; empty without a broker.
    proof: str = ""


class Leased(Struct, frozen=True):
    """One leased message."""

    id: str
    body: bytes
    rc: int
    fr: int
    #: The queue it is from, and the lease granted in milliseconds.
    keys: QueueKeys
    vt_ms: int
    #: Deliveries in a row before this one that vanished with their holders.
    strikes: int = 0
    #: Deliveries that were given back before their holders began to work on them.
    excused: int = 0
    #: See ``Receipt.proof``.
    proof: str = ""

    @property
    def receipt(self) -> Receipt:
        """The proof of this delivery."""
        return Receipt(self.id, self.rc, self.fr, self.proof)


class DeadLettered(NamedTuple):
    """A message that was moved to the dead letters, and why."""

    message: Message
    #: The queue it was taken out of, and that to which it was moved.
    keys: QueueKeys
    dead: QueueKeys
    reason: str


class Received(Struct, frozen=True):
    """What a receive found. ``messages`` may be fewer than asked for, or none."""

    messages: list[Leased]
    #: Nothing found: milliseconds until a message becomes visible, -1 if the queue is empty.
    next_visible_ms: int
    #: When the call began, on the clock of the client: leases began no earlier.
    asked_at: float = 0.0
    #: What it moved to the dead letters instead of delivering it once more.
    dead_lettered: tuple[DeadLettered, ...] = ()

    def at(self, asked_at: float) -> Received:
        """Return the same with the moment at which the call began."""
        return Received(self.messages, self.next_visible_ms, asked_at, self.dead_lettered)


class Dedup(NamedTuple):
    """No second copy of a message while the marker lasts."""

    #: Digest of the caller's key, and how long it stands.
    digest: str
    window_ms: int
