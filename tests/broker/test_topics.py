"""The calls of aiorsmq.v1.Topics, over a real connection."""

import asyncio

import grpc
import pytest

from aiorsmq_ng import Subscription
from aiorsmq_ng.broker import Limits
from aiorsmq_ng.rpc import routeguide_pb2, routeguide_pb2_grpc
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import TopicsStub

from ..support.waiting import until
from .support import connected


@pytest.fixture
def topics(channel):
    return TopicsStub(channel)


def source(consumer, **fields):
    who = pb.Subscriber(topic="news", consumer=consumer, **fields)
    return pb.Source(subscriber=who)


async def take(queues, source, count=10):
    got = await queues.Receive(pb.ReceiveRequest(sources=[source], count=count))
    await queues.Ack(pb.AckRequest(receipts=[d.receipt for d in got.deliveries] or ["none"]))
    return [d.body for d in got.deliveries]


async def test_every_subscription_gets_what_is_published(topics, queues, rsmq):
    billing, mail = source("billing"), source("mail")
    await topics.Publish(pb.PublishRequest(topic="news", bodies=[b"early"]))
    made = await topics.Subscribe(pb.SubscribeRequest(subscriber=billing.subscriber))
    await topics.Subscribe(pb.SubscribeRequest(subscriber=mail.subscriber, vt_ms=7000))
    sent = await topics.Publish(pb.PublishRequest(topic="news", bodies=[b"a", b"b"]))

    assert len(sent.ids) == 2
    assert await take(queues, billing) == [b"early", b"a", b"b"]
    assert await take(queues, mail) == [b"a", b"b"]
    assert made.queue in await rsmq.list_queues()
    assert await take(queues, pb.Source(queue=made.queue)) == []


async def test_peers_share_or_each_have_their_own(topics, queues):
    one, two = (source("c", mode=pb.MODE_BROADCAST, peer=peer) for peer in ("1", "2"))
    for each in (one, two):
        await topics.Subscribe(pb.SubscribeRequest(subscriber=each.subscriber))
    await topics.Publish(pb.PublishRequest(topic="news", bodies=[b"a"]))

    assert await take(queues, one) == await take(queues, two) == [b"a"]


async def test_a_topic_is_described_limited_and_deleted(topics):
    await topics.SetBacklog(pb.SetBacklogRequest(topic="news", max_length=2, max_age_ms=60_000))
    await topics.Publish(pb.PublishRequest(topic="news", bodies=[b"a", b"b", b"c"]))

    found = await topics.DescribeTopic(pb.DescribeTopicRequest(topic="news"))
    assert (found.waiting, found.trimmed, found.max_length, found.max_age_ms) == (2, 1, 2, 60_000)
    await topics.SetBacklog(pb.SetBacklogRequest(topic="news", max_age_ms=-1))
    found = await topics.DescribeTopic(pb.DescribeTopicRequest(topic="news"))
    assert (found.max_length, found.HasField("max_age_ms")) == (2, False)
    who = source("c", peer="p").subscriber
    await topics.Subscribe(pb.SubscribeRequest(subscriber=who))
    assert (await topics.KeepAlive(pb.KeepAliveRequest(subscriber=who))).subscribed
    (one,) = (await topics.DescribeTopic(pb.DescribeTopicRequest(topic="news"))).subscriptions
    assert (one.subscriber.consumer, one.state, one.peers[0].name) == ("c", "on", "p")
    assert one.attributes.msgs == 2
    assert list((await topics.ListTopics(pb.ListTopicsRequest())).topics) == ["news"]
    assert (await topics.DeleteTopic(pb.DeleteTopicRequest(topic="news"))).deleted
    assert not (await topics.DeleteTopic(pb.DeleteTopicRequest(topic="news"))).deleted


async def test_what_is_left_at_the_end_of_a_subscription_stays_unless_discarded(topics, queues):
    who = source("c")
    for discard, left in ((False, 2), (True, 0)):
        await topics.Subscribe(pb.SubscribeRequest(subscriber=who.subscriber))
        await topics.Publish(pb.PublishRequest(topic="news", bodies=[b"a", b"b"]))
        request = pb.UnsubscribeRequest(topic="news", consumer="c", discard=discard)
        assert (await topics.Unsubscribe(request)).left == left
        if not discard:
            await topics.Subscribe(pb.SubscribeRequest(subscriber=who.subscriber))
            assert await take(queues, who) == [b"a", b"b"]


@pytest.mark.parametrize(
    "sources",
    [
        [source("c"), pb.Source(queue="jobs")],
        [pb.Source(queue="jobs", subscriber=pb.Subscriber(topic="news", consumer="c"))],
        [source("c", mode=pb.MODE_BROADCAST)],
        [source("")],
    ],
)
async def test_a_source_that_makes_no_sense_is_refused(queues, sources):
    with pytest.raises(grpc.RpcError) as refused:
        await queues.Receive(pb.ReceiveRequest(sources=sources))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_receive_that_waits_says_that_its_peer_is_alive(topics, queues, monkeypatch):
    real, beats = Subscription._beat, []

    async def beat(self):
        beats.append(self.peer)
        return await real(self)

    monkeypatch.setattr(Subscription, "_beat", beat)
    waiting = source("c", mode=pb.MODE_BROADCAST, peer="1", peer_timeout_ms=300)
    await topics.Subscribe(pb.SubscribeRequest(subscriber=waiting.subscriber))
    call = queues.Receive(pb.ReceiveRequest(sources=[waiting], wait_ms=60_000))

    async def again():
        return len(beats) >= 4

    pending = asyncio.ensure_future(call)
    await until(again)
    assert not pending.done()
    pending.cancel()


async def test_a_topic_has_no_more_subscriptions_than_the_limit(serve, rsmq):
    async with serve(limits=Limits(subscriptions=2)) as broker, connected(broker) as channel:
        topics, guide = TopicsStub(channel), routeguide_pb2_grpc.RouteGuideStub(channel)
        who = [source(name).subscriber for name in ("a", "b", "c")]
        for one in who[:2]:
            await topics.Subscribe(pb.SubscribeRequest(subscriber=one))

        with pytest.raises(grpc.aio.AioRpcError, match="2 subscriptions") as refused:
            await topics.Subscribe(pb.SubscribeRequest(subscriber=who[2]))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.aio.AioRpcError, match="2 subscriptions"):
            await guide.Subscribe(routeguide_pb2.Subscription(key="news", consumerID="d"))
        await topics.Subscribe(pb.SubscribeRequest(subscriber=who[1]))  # it has one
        described = await rsmq.topic("news").describe()
        assert [one.consumer for one in described.subscriptions] == ["a", "b"]

        await topics.Unsubscribe(pb.UnsubscribeRequest(topic="news", consumer="a"))
        await topics.Subscribe(pb.SubscribeRequest(subscriber=who[2]))
