"""Shared state of the services of one broker: handles, checks of the caller, conversions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from aiorsmq_ng import RSMQ, InvalidValue, Queue, Retry, Subscription, Topic

from .._common.bounded_dict import BoundedDict
from .._common.queue_defaults import dead_letter_queue
from .._protocol.topic_names import check_part
from ..rpc import v1_pb2 as pb
from .caller_limits import count_sources
from .delivery_replies import DeliveryReplies
from .idempotency import IdempotentCalls, fingerprint
from .options import Limits
from .receipts import ReceiptContent, ReceiptSigner
from .request_limits import RequestLimits, peer_timeout, seconds
from .tokens import CALLER, PRODUCER, Owner, Refused
from .unsettled_deliveries import LoanedDeliveries, StreamDeliveries

R = TypeVar("R")

#: Size of the caches of handles on queues and topics. Making a handle costs as much as a call.
_HANDLES = 1024
#: Size of the cache of handles on subscriptions.
_SUBSCRIPTIONS = 10_000


class BrokerContext:
    """The client, the limits, and the records of deliveries and calls of one broker."""

    def __init__(
        self, rsmq: RSMQ, limits: Limits, receipts: ReceiptSigner, idempotency: IdempotentCalls
    ) -> None:
        self.rsmq = rsmq
        self.limits = limits
        self.checks = RequestLimits(limits)
        self.receipts = receipts
        self.idempotency = idempotency
        #: Deliveries of Consume streams, and those that Receive or Recover handed out.
        self.streamed, self.loaned = StreamDeliveries(), LoanedDeliveries()
        self._queue = lru_cache(_HANDLES)(rsmq.queue)
        self._topic = lru_cache(_HANDLES)(rsmq.topic)
        #: What replies to receives contain: deliveries and new dead letters.
        self.replies = DeliveryReplies(receipts, self.loaned)
        rsmq.dead_letters.listen(self.replies.keep_dead_letter)
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
        self.checks.batch("sources", len(request.sources))
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

    async def once(
        self, method: str, request: Any, work: Callable[[], Awaitable[R]], **how: Any
    ) -> R:
        """Run *work* once, however often the request is repeated; return what gRPC is to write."""
        key = (CALLER.get().identity, method, request.request)
        content, holds = fingerprint(request) if key[2].id else (0, 0)
        found = await self.idempotency.once(key, work, content=content, holds=holds, **how)
        # Callers pass it on unread, so that it does not matter to them if it is bytes already.
        return cast(R, found)
