"""Deliveries and dead letters in replies: bodies that are too large, receipts, what is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import aiorsmq_ng
from aiorsmq_ng import DeadLetter, Queue, Subscription

from .._common.bounded_dict import BoundedDict
from .._common.message_headers import header_bytes
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import dead_letter_field
from .caller_limits import MAX_BYTES
from .receipts import ReceiptContent, ReceiptSigner
from .tokens import CALLER, UNKNOWN, Owner, owner_of
from .unsettled_deliveries import LoanedDeliveries

#: Dead letters kept per queue for the next reply, and queues for which they are kept.
_LETTERS = 100
#: Largest body of a dead letter that is kept.
_LETTER_BYTES = 4096


class DeliveryReplies:
    """Makes deliveries for replies, with their receipts, and keeps dead letters for the next."""

    def __init__(self, receipts: ReceiptSigner, loaned: LoanedDeliveries) -> None:
        self._receipts = receipts
        self._loaned = loaned
        self._letters: BoundedDict[str, deque[pb.DeadLetter]] = BoundedDict(_LETTERS)

    def delivery(
        self,
        delivery: aiorsmq_ng.Delivery,
        source: Queue,
        max_bytes: int = MAX_BYTES,
        identity: str | None = None,
    ) -> pb.Delivery:
        """Return a delivery of *source* as a message for the client, with its receipt."""
        body, omitted = delivery.body, 0
        if len(body) > max_bytes:
            body, omitted = b"", len(body)
        return pb.Delivery(
            queue=delivery.queue,
            id=delivery.id,
            body=body,
            rc=delivery.rc,
            fr=delivery.fr,
            vt_ms=round(delivery.lease.vt * 1000),
            receipt=self.receipt(delivery, source, identity),
            omitted_bytes=omitted,
            strikes=delivery.strikes,
            excused=delivery.rc - delivery.attempt,
            headers=dict(delivery.headers),
        )

    def keep_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a dead letter that a receive produced, for the reply to the next receive."""
        if letter.by_receive:
            queue, found = letter.queue, letter.message
            kept = pb.DeadLetter(queue=queue, reason=letter.reason, dead_letter=letter.dead_letter)
            kept.id, kept.rc, kept.fr = found.id, found.rc, found.fr
            if len(found.body) <= _LETTER_BYTES:
                kept.body = found.body
            kept.headers.update(found.headers)
            letters = self._letters.get(queue) or deque(maxlen=_LETTERS)
            letters.append(kept)
            self._letters[queue] = letters

    def take_dead_letters(self, queues: Sequence[Queue], room: int) -> list[pb.DeadLetter]:
        """Remove and return the new dead letters of *queues*, with bodies of up to *room* bytes."""
        found: list[pb.DeadLetter] = []
        for queue in queues:
            for letter in self._letters.pop(queue.name, ()):
                room -= len(letter.body) + header_bytes(letter.headers)
                if room < 0:
                    letter.body = b""
                    letter.headers.clear()
                found.append(letter)
        return found

    def loan(
        self, delivery: aiorsmq_ng.Delivery, source: Queue, max_bytes: int = MAX_BYTES
    ) -> pb.Delivery:
        """Return a delivery outside of streams; it is recorded until it is settled or expires."""
        self._loaned.add(delivery)
        return self.delivery(delivery, source, max_bytes)

    def receipt(
        self, delivery: aiorsmq_ng.Delivery, source: Queue, identity: str | None = None
    ) -> str:
        """Return the receipt of a delivery, for the caller or for *identity*.

        A subscription is the only *source* of its request. If topic and consumer cannot be read
        from the name of its queue, the receipt contains them.
        """
        owner = None
        if isinstance(source, Subscription) and owner_of(source.name) is UNKNOWN:
            owner = Owner(source.topic, source.consumer)
        content = ReceiptContent(
            delivery.queue,
            delivery.id,
            delivery.rc,
            delivery.fr,
            round(delivery.lease.vt * 1000),
            dead_letter_field(delivery.queue, delivery.dead_letter),
            owner,
        )
        return self._receipts.sign(content, identity or CALLER.get().identity)
