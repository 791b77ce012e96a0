"""``aiorsmq.v1.Topics``: publish and subscribe."""

from __future__ import annotations

from typing import Any

from aiorsmq_ng import SubscriptionInfo

from .._common.queue_defaults import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import optional, write_attributes
from .broker_context import BrokerContext
from .request_limits import peer_timeout, seconds
from .send import Target, store
from .tokens import CALLER

_MODES = {"shared": pb.MODE_SHARED, "broadcast": pb.MODE_BROADCAST}


class TopicsService:
    """Every call of the service."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def ListTopics(self, _request: pb.ListTopicsRequest, _: Any) -> pb.ListTopicsResponse:
        """List the topics that the caller may use."""
        names = await self._broker.rsmq.list_topics()
        return pb.ListTopicsResponse(topics=filter(CALLER.get().sees_topic, names))

    async def DescribeTopic(self, request: pb.DescribeTopicRequest, _: Any) -> pb.TopicDescription:
        """Describe a topic and its subscriptions."""
        caller = CALLER.get()
        found = await self._broker.topic(request.topic).describe(
            attributes=not request.without_attributes
        )
        return pb.TopicDescription(
            topic=found.name,
            queue=found.queue,
            waiting=found.waiting,
            max_length=found.max_length,
            max_age_ms=None if found.max_age is None else round(found.max_age * 1000),
            trimmed=found.trimmed,
            lost=found.lost,
            # Other consumers' subscriptions are hidden from the caller.
            subscriptions=[
                _described(found.name, one)
                for one in found.subscriptions
                if caller.sees_subscription(found.name, one.consumer)
            ],
        )

    async def Publish(self, request: pb.PublishRequest, _: Any) -> pb.PublishResponse:
        """Put messages into every subscription."""
        topic = self._broker.topic(request.topic)
        target = Target(topic.publish, topic.publish_many, topic.resend)
        return await store(self._broker, "Publish", request, target, pb.PublishResponse)

    async def Subscribe(self, request: pb.SubscribeRequest, _: Any) -> pb.Subscription:
        """Add a subscriber."""
        subscriber = request.subscriber
        topic = self._broker.subscriber(subscriber.topic, subscriber.consumer)
        vt, delay = seconds(request, "vt_ms"), seconds(request, "delay_ms")
        peer_timeout_s = peer_timeout(subscriber)

        async def work() -> pb.Subscription:
            await self._broker.check_subscriptions(topic, self._broker.subscription(subscriber))
            subscription = await topic.subscribe(
                subscriber.consumer,
                mode="broadcast" if subscriber.mode == pb.MODE_BROADCAST else "shared",
                peer=subscriber.peer or None,
                vt=DEFAULT_VT if vt is None else vt,
                delay=delay or DEFAULT_DELAY,
                maxsize=optional(request, "maxsize", DEFAULT_MAXSIZE),
                peer_timeout=peer_timeout_s,
            )
            return pb.Subscription(subscriber=subscriber, queue=subscription.name)

        return await self._broker.once("Subscribe", request, work)

    async def Unsubscribe(self, request: pb.UnsubscribeRequest, _: Any) -> pb.UnsubscribeResponse:
        """End a subscription."""
        topic = self._broker.subscriber(request.topic, request.consumer)

        async def work() -> pb.UnsubscribeResponse:
            left = await topic.unsubscribe(
                request.consumer, peer=request.peer or None, discard=request.discard
            )
            return pb.UnsubscribeResponse(left=left)

        return await self._broker.once("Unsubscribe", request, work)

    async def KeepAlive(self, request: pb.KeepAliveRequest, _: Any) -> pb.KeepAliveResponse:
        """Record a sign of life of a peer."""
        subscription = self._broker.subscription(request.subscriber)
        return pb.KeepAliveResponse(subscribed=await subscription.keep_alive())

    async def SetBacklog(self, request: pb.SetBacklogRequest, _: Any) -> pb.SetBacklogResponse:
        """Limit the messages kept for the first subscription."""
        topic = self._broker.topic(request.topic)

        async def work() -> pb.SetBacklogResponse:
            limits: dict[str, Any] = {}
            if request.HasField("max_length"):
                limits["max_length"] = None if request.max_length == -1 else request.max_length
            if request.HasField("max_age_ms"):
                limits["max_age"] = None if request.max_age_ms == -1 else request.max_age_ms / 1000
            maxsize = optional(request, "maxsize")
            await topic.set_backlog(**limits, maxsize=maxsize)
            return pb.SetBacklogResponse()

        return await self._broker.once("SetBacklog", request, work)

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, _: Any) -> pb.DeleteTopicResponse:
        """Delete a topic and all that belongs to it."""
        topic = self._broker.topic(request.topic)

        async def work() -> pb.DeleteTopicResponse:
            return pb.DeleteTopicResponse(deleted=await topic.delete())

        return await self._broker.once("DeleteTopic", request, work)


def _described(topic: str, found: SubscriptionInfo) -> pb.Subscription:
    peer = found.peers[0].name if found.mode == "broadcast" and found.peers else ""
    subscriber = pb.Subscriber(
        topic=topic,
        consumer=found.consumer,
        mode=_MODES.get(found.mode),
        peer=peer,
        peer_timeout_ms=round(found.peer_timeout * 1000),
    )
    return pb.Subscription(
        subscriber=subscriber,
        queue=found.queue,
        state=found.state,
        peers=[pb.Peer(name=p.name, idle_ms=round(p.idle * 1000)) for p in found.peers],
        attributes=None if found.attributes is None else write_attributes(found.attributes),
    )
