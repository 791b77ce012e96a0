"""What the operations on messages are told, and what they tell: plain values."""

from __future__ import annotations

from typing import NamedTuple

from .keys import QueueKeys


class Receipt(NamedTuple):
    """Proof of one delivery. Every RSMQ client counts ``rc`` up, so an older receipt shows."""

    id: str
    rc: int
    fr: int


class Leased(NamedTuple):
    """One leased message as the script returned it."""

    id: str
    body: bytes
    rc: int
    fr: int
    #: The queue it is from, and the lease granted in milliseconds.
    keys: QueueKeys
    vt_ms: int

    @property
    def receipt(self) -> Receipt:
        """The proof of this delivery."""
        return Receipt(self.id, self.rc, self.fr)


class Received(NamedTuple):
    """What a receive found. ``messages`` may be fewer than asked for, or none."""

    messages: list[Leased]
    #: Nothing found: milliseconds until a message becomes visible, -1 if the queue is empty.
    next_visible_ms: int
    #: When it was asked for, on the clock of whoever asked: leases began no earlier.
    asked_at: float = 0.0

    def at(self, asked_at: float) -> Received:
        """Return the same with the moment at which it was asked for."""
        # In half the time of naming the fields; every receive pays for it.
        return tuple.__new__(Received, (self.messages, self.next_visible_ms, asked_at))


class Dedup(NamedTuple):
    """No second copy of a message while the marker lasts."""

    #: Digest of the caller's key, and how long it stands.
    digest: str
    window_ms: int
