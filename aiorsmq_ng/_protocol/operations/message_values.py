"""Values that operations on messages are given and return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from ...models import Message
from ..keys import QueueKeys


class Receipt(NamedTuple):
    """Proof of one delivery. Every receive increments ``rc``, which tells old receipts apart."""

    #: Id of the message.
    id: str
    #: Receive count of the delivery.
    rc: int
    #: Time of the first receive, epoch milliseconds.
    fr: int
    #: The receipt that a broker signed for this delivery; empty without a broker.
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
    #: Consecutive deliveries before this one whose holders vanished.
    strikes: int = 0
    #: Deliveries that were given back before a handler began to work on them.
    excused: int = 0
    #: See ``Receipt.proof``.
    proof: str = ""
    #: Headers as they are stored; empty if there are none.
    headers: bytes | Mapping[str, str] = b""

    @property
    def receipt(self) -> Receipt:
        """The proof of this delivery."""
        return Receipt(self.id, self.rc, self.fr, self.proof)


class DeadLettered(NamedTuple):
    """A message that was moved to the dead-letter queue, and why."""

    message: Message
    #: The queue that it was in, and its dead-letter queue.
    keys: QueueKeys
    dead: QueueKeys
    reason: str


class Received(Struct, frozen=True):
    """What a receive found. ``messages`` may be fewer than the request's count, or none."""

    messages: list[Leased]
    #: If nothing was found: milliseconds until a message becomes visible, -1 for an empty queue.
    next_visible_ms: int
    #: When the call began, on the client's clock. No lease of the result began earlier.
    asked_at: float = 0.0
    #: Messages that it moved to the dead-letter queue instead of delivering them.
    dead_lettered: tuple[DeadLettered, ...] = ()

    def at(self, asked_at: float) -> Received:
        """Return a copy with the time at which the call began."""
        return Received(self.messages, self.next_visible_ms, asked_at, self.dead_lettered)


class Dedup(NamedTuple):
    """A dedup key: while its window lasts, a second message with it is not stored."""

    #: Digest of the caller's key, and the length of its window.
    digest: str
    window_ms: int
