"""The index of GOMQ's subscriptions: read from all topics, without load on other callers."""

import asyncio
from types import SimpleNamespace

import pytest

from aiorsmq_ng import RSMQ, QueueCorrupt, Topic, Unavailable
from aiorsmq_ng.compat.gomq.subscription_index import SubscriptionIndex
from aiorsmq_ng.rpc import routeguide_pb2 as pb
from aiorsmq_ng.rpc.routeguide_pb2_grpc import RouteGuideStub

NEWS = pb.Subscription(key="news", consumerID="c")
WHO = pb.Identification(consumerID="c")


class Topics:
    """Stands for a client with many topics, whose clock goes on by a second for each look."""

    def __init__(self, count):
        self.names = [f"t{number}" for number in range(count)]
        self.now = 0.0
        self.looks = self.under_way = self.at_once = 0
        self.damaged = set()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def list_topics(self):
        self.looks += 1
        self.now += 1.0
        return self.names

    def topic(self, name):
        async def describe():
            self.under_way += 1
            self.at_once = max(self.at_once, self.under_way)
            await asyncio.sleep(0)
            await self.may_end.wait()
            self.under_way -= 1
            if name in self.damaged:
                raise QueueCorrupt(name, "damaged")
            if name == "away":
                raise Unavailable("away")
            one = SimpleNamespace(state="on", mode="broadcast", consumer=f"of-{name}")
            return SimpleNamespace(subscriptions=[one])

        return SimpleNamespace(describe=describe)


@pytest.fixture
def known():
    topics = Topics(120)
    return topics, SubscriptionIndex(topics, "broadcast", lambda: topics.now)


async def test_topics_are_read_many_at_a_time(known):
    topics, directory = known

    await directory.learn(30)

    assert all(directory.keys(f"of-{name}") == {name} for name in topics.names)
    assert topics.at_once == 50


async def test_what_took_long_to_learn_is_good_for_longer(known):
    topics, directory = known
    await directory.learn(30)

    topics.now += 8.0  # it took a second
    assert directory.fresh
    topics.now += 2.0
    assert not directory.fresh


async def test_all_who_want_to_know_share_a_look_and_wait_no_longer_than_they_want(known):
    topics, directory = known
    topics.may_end.clear()
    for _ in range(3):
        await directory.learn(0.01)
    directory.change("of-t1", "t1", subscribed=False)
    directory.change("new", "t1", subscribed=True)
    assert topics.looks == 1
    topics.may_end.set()
    await directory.learn(30)

    assert topics.looks == 1
    assert (directory.keys("of-t1"), directory.keys("new")) == (set(), {"t1"})
    assert directory.keys("of-t2") == {"t2"}


async def test_a_damaged_topic_harms_no_other_topic(known, caplog):
    topics, directory = known
    await directory.learn(30)
    topics.damaged |= {"t5"}
    topics.names.append("t120")
    for _ in range(2):
        await directory.learn(30)

    assert directory.keys("of-t120") == {"t120"}
    assert directory.keys("of-t5") == {"t5"}  # as was known
    assert caplog.text.count("cannot read topic 't5'") == 1


async def test_a_look_that_fails_changes_nothing_and_can_be_repeated(known):
    topics, directory = known
    await directory.learn(30)
    topics.names[0] = "away"
    await directory.learn(30)
    assert directory.keys("of-t0") == {"t0"}
    topics.names[0] = "other"
    await directory.learn(30)

    assert (directory.keys("of-t0"), directory.keys("of-other")) == (set(), {"other"})


async def test_a_look_that_takes_its_time_does_not_hold_up_a_peer(channel, monkeypatch):
    guide = RouteGuideStub(channel)

    async def endless(_):
        await asyncio.Event().wait()

    monkeypatch.setattr(RSMQ, "list_topics", endless)
    await guide.Subscribe(NEWS)
    await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))

    async with asyncio.timeout(30):
        (record,) = (await guide.Observe(WHO)).records
        assert not (await guide.Observe(pb.Identification(consumerID="unknown"))).records
    assert record.value.payload == b"x"


async def test_a_key_that_cannot_be_joined_does_not_stop_the_others(channel, monkeypatch, rsmq):
    guide = RouteGuideStub(channel)
    await guide.Subscribe(NEWS)
    await rsmq.topic("bad").subscribe("c", mode="broadcast", peer="elsewhere")
    await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
    real, tried = Topic.subscribe, []

    async def subscribe(topic, *args, **settings):
        if topic.name == "bad":
            tried.append(topic.name)
            raise QueueCorrupt("bad", "damaged")
        return await real(topic, *args, **settings)

    monkeypatch.setattr(Topic, "subscribe", subscribe)
    found = []
    async with asyncio.timeout(30):
        while not (found and tried):
            found += (await guide.Observe(WHO)).records

    assert [record.value.payload for record in found] == [b"x"]
