"""Shared state of the services of one broker: handles, checks of the caller, conversions."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar, cast

import aiorsmq_ng
from aiorsmq_ng import RSMQ, DeadLetter, InvalidValue, Queue, Retry, Subscription, Topic

from .._common.bounded_dict import BoundedDict
from .._common.queue_defaults import dead_letter_queue
from .._protocol.topic_names import check_part
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import dead_letter_field, optional
from .caller_limits import MAX_BYTES, count_sources
from .idempotency import IdempotentCalls
from .options import Limits
from .receipts import ReceiptContent, ReceiptSigner
from .tokens import CALLER, PRODUCER, UNKNOWN, Owner, Refused, owner_of
from .unsettled_deliveries import LoanedDeliveries, StreamDeliveries

R = TypeVar("R")

#: Largest ``max_bytes`` of a request. A smaller limit of the broker for replies also applies.
MOST_BYTES = 64 * 1024 * 1024
#: Shortest timeout of a peer: with less, keep-alive calls would keep the server busy.
SHORTEST_PEER_TIMEOUT_S = 0.25
#: Size of the caches of handles on queues and topics. Making a handle costs as much as a call.
_HANDLES = 1024
#: Size of the cache of handles on subscriptions.
_SUBSCRIPTIONS = 10_000
#: Dead letters kept per queue for the next reply, and queues for which they are kept.
_LETTERS = 100
#: Largest body of a dead letter that is kept.
_LETTER_BYTES = 4096


class BrokerContext:
    """The client, the limits, and the records of deliveries and calls of one broker."""

    def __init__(
        self, rsmq: RSMQ, limits: Limits, receipts: ReceiptSigner, idempotency: IdempotentCalls
    ) -> None:
        self.rsmq = rsmq
        self.limits = limits
        self.receipts = receipts
        self.idempotency = idempotency
        #: Deliveries of Consume streams, and those that Receive or Recover handed out.
        self.streamed, self.loaned = StreamDeliveries(), LoanedDeliveries()
        self._queue = lru_cache(_HANDLES)(rsmq.queue)
        self._topic = lru_cache(_HANDLES)(rsmq.topic)
        self._letters: BoundedDict[str, deque[pb.DeadLetter]] = BoundedDict(_LETTERS)
        rsmq.dead_letters.listen(self._keep_dead_letter)
        self._subscriptions: BoundedDict[tuple[object, ...], Subscription] = BoundedDict(
            _SUBSCRIPTIONS
        )

    def queue(self, name: str, **settings: Any) -> Queue:
        """Return the handle on a queue; ``Refused`` if the caller may not use it."""
        self.check_queue(name)
        return self._queue(name, **settings)

    def check_queue(self, name: str) -> None:
        """Raise ``Refused`` if the caller may not use the queue *name*."""
        caller = CALLER.get()
        if not caller.sees_queue(name):
            raise Refused(f"token {caller.identity!r} is not for queue {name!r}", known=True)

    def check_receipt(self, content: ReceiptContent) -> None:
        """Raise ``Refused`` if the caller may no longer use the queue of a receipt."""
        caller = CALLER.get()
        owner = Owner(*content.owner) if content.owner else None
        if not caller.sees_queue(content.queue, owner):
            raise Refused(
                f"token {caller.identity!r} is not for queue {content.queue!r}", known=True
            )

    def check_target(self, name: str) -> None:
        """Raise ``Refused`` if the caller may not put messages into the queue *name*.

        ``InvalidValue`` if no queue can have that name.
        """
        CALLER.get().need(PRODUCER, what="a move to another queue")
        self.queue(name)

    def topic(self, name: str) -> Topic:
        """Return the handle on a topic; ``Refused`` if the caller may not use it."""
        caller = CALLER.get()
        if not caller.sees_topic(name):
            raise Refused(f"token {caller.identity!r} is not for topic {name!r}", known=True)
        return self._topic(name)

    def subscriber(self, topic: str, consumer: str) -> Topic:
        """Return a topic; ``Refused`` if the caller may not use the subscription of *consumer*."""
        found, caller = self.topic(topic), CALLER.get()
        if not caller.sees_subscription(topic, consumer):
            raise Refused(f"token {caller.identity!r} is not for consumer {consumer!r}", known=True)
        check_part("consumer", consumer)
        return found

    def subscription(self, subscriber: pb.Subscriber, **settings: Any) -> Subscription:
        """Return a subscription that the caller may use; no I/O."""
        return self.subscriber(subscriber.topic, subscriber.consumer).subscription(
            subscriber.consumer,
            mode="broadcast" if subscriber.mode == pb.MODE_BROADCAST else "shared",
            peer=subscriber.peer or None,
            peer_timeout=peer_timeout(subscriber),
            **settings,
        )

    async def check_subscriptions(self, topic: Topic, subscription: Subscription) -> None:
        """Raise ``InvalidValue`` if *topic* has no room for a new subscription."""
        there = (await topic.describe(attributes=False)).subscriptions
        most = self.limits.subscriptions
        if len(there) >= most and subscription.name not in [one.queue for one in there]:
            raise InvalidValue(
                f"topic {topic.name!r} has {len(there)} subscriptions, and the limit is {most}; "
                "end those that are not used"
            )

    def sources(self, request: pb.ReceiveRequest | pb.ConsumeRequest) -> list[Queue]:
        """Return the queues, or the subscription, that a request receives from."""
        self.batch("sources", len(request.sources))
        count_sources(len(request.sources))
        if len(request.sources) > 1 and any(s.HasField("subscriber") for s in request.sources):
            raise InvalidValue("a subscription must be the only source of a request")
        return [self.source(source) for source in request.sources]

    def source(self, source: pb.Source) -> Queue:
        """Return the handle on a queue or subscription that a source names."""
        # The default dead-letter queue of a queue needs no separate permission.
        own = dead_letter_queue(source.queue) if source.queue else ""
        if source.dead_letter not in ("", own):
            self.check_target(source.dead_letter)
        settings: dict[str, Any] = {
            "dead_letter": source.dead_letter or None,
            "retry": Retry(max_receives=source.max_receives) if source.max_receives else None,
        }
        if not source.HasField("subscriber"):
            return self.queue(source.queue, vt=seconds(source, "vt_ms"), **settings)
        if source.queue or source.HasField("vt_ms"):
            raise InvalidValue("a source with a subscriber has neither a queue nor a vt")
        # The handle stores the time of the peer's last keep-alive, so it is cached.
        # Unknown fields of the request are not part of the cache key: they could be large.
        subscriber = source.subscriber
        key = (
            *(subscriber.topic, subscriber.consumer, subscriber.mode, subscriber.peer),
            seconds(subscriber, "peer_timeout_ms"),
            *(source.dead_letter, source.max_receives),
        )
        found = self._subscriptions.get(key) or self.subscription(subscriber, **settings)
        self._subscriptions[key] = found
        # Checked here, because the cached handle may have been made for another caller.
        self.subscriber(subscriber.topic, subscriber.consumer)
        return found

    def batch(self, what: str, count: int) -> None:
        """Raise ``InvalidValue`` for an empty batch, or one above the limit."""
        if not 1 <= count <= self.limits.batch:
            raise InvalidValue(f"a request has 1 to {self.limits.batch} {what}, not {count}")

    def count(self, given: int) -> int:
        """Return how many messages a request asks for."""
        if not 0 <= given <= self.limits.batch:
            raise InvalidValue(f"count must be between 1 and {self.limits.batch}, not {given}")
        return given or 1

    def max_bytes(self, given: int) -> int:
        """Return the bytes of bodies that a request allows in one reply."""
        if not 0 <= given <= MOST_BYTES:
            raise InvalidValue(f"max_bytes must be between 1 and {MOST_BYTES}, not {given}")
        return min(given or MAX_BYTES, self.limits.largest_reply)

    async def once(
        self, method: str, request: Any, work: Callable[[], Awaitable[R]], **how: Any
    ) -> R:
        """Run *work* once, however often the request is repeated; return what gRPC is to write."""
        key = (CALLER.get().identity, method, request.request)
        content, holds = _fingerprint(request) if key[2].id else (0, 0)
        found = await self.idempotency.once(key, work, content=content, holds=holds, **how)
        # Callers pass it on unread, so that it does not matter to them if it is bytes already.
        return cast(R, found)

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
        )

    def _keep_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a dead letter that a receive produced, for the reply to the next receive."""
        if letter.by_receive:
            queue, found = letter.queue, letter.message
            kept = pb.DeadLetter(queue=queue, reason=letter.reason, dead_letter=letter.dead_letter)
            kept.id, kept.rc, kept.fr = found.id, found.rc, found.fr
            if len(found.body) <= _LETTER_BYTES:
                kept.body = found.body
            letters = self._letters.get(queue) or deque(maxlen=_LETTERS)
            letters.append(kept)
            self._letters[queue] = letters

    def take_dead_letters(self, queues: Sequence[Queue], room: int) -> list[pb.DeadLetter]:
        """Remove and return the new dead letters of *queues*, with bodies of up to *room* bytes."""
        found: list[pb.DeadLetter] = []
        for queue in queues:
            for letter in self._letters.pop(queue.name, ()):
                room -= len(letter.body)
                if room < 0:
                    letter.body = b""
                found.append(letter)
        return found

    def loan(
        self, delivery: aiorsmq_ng.Delivery, source: Queue, max_bytes: int = MAX_BYTES
    ) -> pb.Delivery:
        """Return a delivery outside of streams; it is recorded until it is settled or expires."""
        self.loaned.add(delivery)
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
        return self.receipts.sign(content, identity or CALLER.get().identity)


def peer_timeout(subscriber: pb.Subscriber) -> float:
    """Return a peer's timeout in seconds; keep-alives are sent four times as often."""
    given = seconds(subscriber, "peer_timeout_ms")
    if given is not None and given < SHORTEST_PEER_TIMEOUT_S:
        raise InvalidValue(
            f"peer_timeout_ms must be at least {SHORTEST_PEER_TIMEOUT_S * 1000:.0f}, "
            f"not {given * 1000:.0f}"
        )
    return 30.0 if given is None else given


def content_of(request: Any) -> bytes:
    """Return a digest of a request that is the same for all its attempts, in all processes."""
    return blake2b(_content(request), digest_size=16).digest()


def _fingerprint(request: Any) -> tuple[int, int]:
    """Return a hash that is the same for all attempts of a request in this process, and its size.

    The hash costs a fraction of a digest. The bytes, which may be many, are not kept.
    """
    text = _content(request)
    return hash(text), len(text)


def _content(request: Any) -> bytes:
    """Return a request as bytes that are the same for all its attempts.

    A later attempt names the broker of the first, and may have a shorter wait: both are left out.
    """
    broker, wait_ms = request.request.broker, getattr(request, "wait_ms", 0)
    if broker:
        request.request.broker = ""
    if wait_ms:
        request.wait_ms = 0
    text: bytes = request.SerializeToString(deterministic=True)
    if broker:
        request.request.broker = broker
    if wait_ms:
        request.wait_ms = wait_ms
    return text


def seconds(message: Any, field: str) -> float | None:
    """Return an optional duration in seconds; ``None`` if it is not set."""
    ms = optional(message, field)
    return None if ms is None else ms / 1000
