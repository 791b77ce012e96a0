"""Topics among lost replies, flushed scripts, full servers, damaged and moved queues."""

import asyncio

import pytest

from aiorsmq_ng import (
    RSMQ,
    InvalidValue,
    MessageTooLong,
    Options,
    QueueCorrupt,
    SendUnknown,
    Sent,
    ServerOutOfMemory,
)
from aiorsmq_ng._protocol.operations import topics
from aiorsmq_ng._protocol.operations.messages import Dedup
from aiorsmq_ng._protocol.operations.topics import Plan, TopicChanged
from aiorsmq_ng.testing import FaultProxy
from tools.lab import Cluster

from ..contract.test_repeated_calls import Line
from ..contract.test_topics import texts
from ..support.deadlines import hurrying


@pytest.fixture
async def proxied(server_url, ns):
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=Options(deadline=5.0, connect_timeout=1.0)) as rsmq,
    ):
        yield proxy, rsmq.topic("news")


async def test_publish_whose_reply_is_lost_is_stored_once_everywhere(proxied):
    proxy, topic = proxied
    subscriptions = [await topic.subscribe(name) for name in "ab"]
    await topic.publish("warm up")
    proxy.drop_reply(b"EVALSHA")
    ids = await asyncio.gather(*(topic.publish(str(i)) for i in range(20)))

    assert len(set(ids)) == 20
    for subscription in subscriptions:
        found = await subscription.receive_many(100)
        assert sorted(m.id for m in found[1:]) == sorted(ids)


async def test_subscribe_and_unsubscribe_whose_replies_are_lost_happen_once(proxied):
    proxy, topic = proxied
    await topic.publish("waits")
    for _ in range(2):  # the server knows the scripts after the first time
        proxy.drop_reply(b"EVALSHA")
        await topic.subscribe("a")
        proxy.drop_reply(b"EVALSHA")
        assert await topic.unsubscribe("a") == 1

    assert [m.text for m in await topic.subscription("a").peek()] == ["waits"]
    assert [s.state for s in (await topic.describe()).subscriptions] == ["left"]


@pytest.fixture
async def patient(server_url, ns):
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=Options(deadline=30, connect_timeout=5)) as rsmq,
    ):
        yield proxy, rsmq.topic("news"), rsmq


async def test_publish_unknown_at_the_deadline_can_be_resumed_without_a_second_copy(patient):
    proxy, topic, client = patient
    subscription = await topic.subscribe("a")
    await topic.publish("warm up")
    proxy.half_open()
    with hurrying(client):
        with pytest.raises(SendUnknown) as caught:
            await topic.publish("precious")
        with pytest.raises(SendUnknown) as still:
            await topic.resend(caught.value.token)
    assert still.value.token is caught.value.token
    await proxy.resume()
    await proxy.cut()

    [id] = await topic.resend(caught.value.token)
    assert await topic.resend(caught.value.token) == [id]
    assert await texts(subscription) == ["warm up", "precious"]


async def test_publish_that_never_arrived_is_resumed_among_new_subscriptions(patient, rsmq):
    proxy, topic, client = patient
    first = await topic.subscribe("a")
    await topic.publish("warm up")
    proxy.black_hole()
    with hurrying(client), pytest.raises(SendUnknown) as caught:
        await topic.publish("precious")
    second = await rsmq.topic("news").subscribe("b")
    await proxy.cut()
    await proxy.resume()

    [id] = await topic.resend(caught.value.token)
    assert [m.id for m in await second.observe()] == [id]
    assert await texts(first) == ["warm up", "precious"]
    with pytest.raises(InvalidValue, match="not of a publish to this topic"):
        await rsmq.topic("other").resend(caught.value.token)


async def state_of(topic):
    return await topic.backlog._context.transport.run(topics.read(topic._keys))


def publishing(plan, *bodies, dedup=None):
    return topics.publish(plan, bodies, delay_ms=-1, dedup=dedup)


@pytest.fixture
async def plan(rsmq):
    topic = rsmq.topic("news")
    await topic.subscribe("a", maxsize=1024)
    await topic.subscribe("b")
    return Plan(topic._keys, await state_of(topic))


async def test_publish_repeated_stores_nothing_and_answers_as_before(rsmq, raw, plan):
    """Also after subscriptions have changed; a dedup key and a long body are sent again, too."""
    topic, line = rsmq.topic("news"), Line(raw)
    dedup = Dedup("d" * 32, 60_000)
    parts = [publishing(plan, b"x", b"y"), publishing(plan, b"once", dedup=dedup)]
    parts.append(publishing(plan, b"again", dedup=dedup))
    first = await line.call(1, *parts)
    await topic.subscribe("c")

    again = await line.call(1, *parts, again=True)
    assert again == first
    assert first[1] == first[2]
    assert [[part[0].duplicate for part in found[1:]] for found in (first, again)] == [
        [False, True]
    ] * 2
    assert [m.text for m in await topic.subscription("b").peek()] == ["x", "y", "once"]
    long = [publishing(plan, b"x" * 2000)]
    with pytest.raises(TopicChanged):
        await line.call(2, *long)
    long = [publishing(Plan(plan.keys, await state_of(topic)), b"x" * 2000)]
    for again in (False, True):
        with pytest.raises(MessageTooLong):
            await line.call(3, *long, again=again)


async def test_attempt_that_arrives_after_its_repetition_was_refused_does_nothing(rsmq, raw, plan):
    topic, line = rsmq.topic("news"), Line(raw)
    operation = publishing(plan, b"late")
    await topic.subscribe("c")
    with pytest.raises(TopicChanged):
        await line.call(1, operation, again=True)
    await topic.unsubscribe("c")
    await raw.hset(plan.keys.own.topic, "version", plan.version)

    assert await line.call(1, operation) == []
    assert await topic.subscription("b").peek() == []


async def test_late_attempt_of_an_old_call_does_nothing(rsmq, raw, plan):
    line, operation = Line(raw), publishing(plan, b"x")
    await line.call(1, operation)
    await line.call(2, publishing(plan, b"y"))

    assert await line.call(1, operation) == []
    assert await line.call(1, operation, again=True) == []
    assert [m.text for m in await rsmq.topic("news").subscription("b").peek()] == ["x", "y"]


async def test_flushed_scripts_are_not_noticed(rsmq, raw):
    topic = rsmq.topic("news")
    await raw.script_flush()
    subscription = await topic.subscribe("a", mode="broadcast", peer="p")
    await raw.script_flush()
    await topic.publish("x")
    await raw.script_flush()

    assert await texts(subscription) == ["x"]
    await raw.script_flush()
    await topic.unsubscribe("a")


async def test_full_server_takes_a_message_nowhere_and_lets_subscriptions_be_emptied(
    private_server, admin
):
    async with RSMQ(private_server.url) as rsmq:
        topic = rsmq.topic("news")
        one = await topic.subscribe("a", mode="broadcast", peer="1")
        two = await topic.subscribe("a", mode="broadcast", peer="2")
        await topic.publish("x")
        await admin.hset("rsmq:news__:ng:heard", one.name, 1)
        clock, last = map(int, (await admin.hget("rsmq:news__:ng:heard", "clock:a")).split())
        await admin.hset("rsmq:news__:ng:heard", "clock:a", f"{clock} {last - 4000}")
        await admin.config_set("maxmemory", "1")
        with pytest.raises(ServerOutOfMemory):
            await topic.publish("one too many")
        with pytest.raises(ServerOutOfMemory):
            await topic.subscribe("b")

        assert await texts(two) == ["x"]  # and it takes the place of the other
        assert await topic.unsubscribe("a") == 0
        await admin.config_set("maxmemory", "0")
        assert (await topic.describe()).subscriptions == ()


async def test_damaged_queue_of_a_subscription_lets_nothing_be_stored(rsmq, raw, ns):
    topic = rsmq.topic("news")
    subscriptions = [await topic.subscribe(name) for name in "abc"]
    await raw.hset(f"{ns}:news__b:Q", "delay", "soon")
    with pytest.raises(QueueCorrupt, match="news__b"):
        await topic.publish("x")
    await raw.hset(f"{ns}:news__b:Q", "delay", "0")
    await raw.set(f"{ns}:news__c", "no zset")
    with pytest.raises(QueueCorrupt):
        await topic.publish("x")
    await raw.delete(f"{ns}:news__c")
    await topic.publish("y")

    assert [await texts(s) for s in subscriptions] == [["y"]] * 3


async def test_durability_that_was_reached_is_in_the_id(private_server):
    async with RSMQ(private_server.url, options=Options(durability="fsynced")) as rsmq:
        id = await rsmq.topic("news").publish("x")

    assert isinstance(id, Sent)
    assert id.durability == "fsynced"


async def test_topics_on_a_cluster_lie_with_their_subscriptions():
    names = [f"topic {i}" for i in range(8)]
    async with Cluster() as cluster:
        async with RSMQ(cluster.url, ns=["{jobs-1}", "{jobs-0}", "{jobs-2}"]) as rsmq:
            for name in names:
                topic = rsmq.topic(name)
                await topic.publish("waits")
                subscription = await topic.subscribe("a", mode="broadcast", peer="p")
                shared = await topic.subscribe("b")
                await topic.publish("x")
                assert await texts(subscription) == ["waits", "x"]
                # By its name alone, as a worker asks for it.
                assert await texts(rsmq.queue(shared.name)) == ["x"]
            assert await rsmq.list_topics() == names
        stored = [await node.command("DBSIZE") for node in cluster.masters]
    assert min(stored) > 0
