"""What waited for the first subscription, for consumers that subscribe shortly after it."""

import asyncio

import pytest

from aiorsmq_ng import InvalidValue
from aiorsmq_ng._protocol.operations import topics
from aiorsmq_ng._protocol.operations.topics import PAGE, Joining, TopicKeys

from .test_topics import texts

#: A broker has no argument for ``keep_backlog``.
BACKENDS = ("server", "cluster")
LONG = 60


@pytest.fixture
def topic(rsmq):
    return rsmq.topic("news", keep_backlog=LONG)


async def let_go(raw, ns):
    """Do what the end of the time does."""
    return await raw.unlink(f"{ns}:news__:ng:kept", f"{ns}:news__:ng:kept-bodies")


async def test_consumers_that_subscribe_in_time_all_get_what_waited(topic):
    ids = await topic.publish_many([str(i) for i in range(10)])
    found = [await topic.subscribe(name) for name in "abc"]

    for subscription in found:
        assert [m.id for m in await subscription.observe()] == ids
    assert (await topic.backlog.attributes()).msgs == 0


async def test_what_waited_is_there_however_soon_the_first_consumer_has_settled_it(topic):
    await topic.publish_many(["x", "y"])
    assert await texts(await topic.subscribe("a")) == ["x", "y"]
    await topic.publish("z")

    later = await topic.subscribe("b")
    await topic.publish("!")
    assert await texts(later) == ["x", "y", "!"]


async def test_a_consumer_that_subscribes_later_gets_nothing_of_it(topic, raw, ns):
    await topic.publish("x")
    await topic.subscribe("a")
    assert await let_go(raw, ns) == 2

    assert await texts(await topic.subscribe("b")) == []


async def test_it_is_kept_for_as_long_as_was_said_and_stays_where_it_was_copied_to(rsmq, raw, ns):
    topic = rsmq.topic("news", keep_backlog=0.2)
    await topic.publish("x")
    first, second = await topic.subscribe("a"), await topic.subscribe("b")
    async with asyncio.timeout(30):
        while await raw.exists(f"{ns}:news__:ng:kept", f"{ns}:news__:ng:kept-bodies"):
            await asyncio.sleep(0.05)

    assert await texts(await topic.subscribe("c")) == []
    assert await texts(first) == ["x"]
    assert await texts(second) == ["x"]


async def test_a_consumer_gets_it_once_however_often_it_subscribes(topic):
    await topic.publish("x")
    for name in ("a", "b"):
        assert await texts(await topic.subscribe(name)) == ["x"]
    for name in ("b", "a"):
        await topic.unsubscribe(name)
        assert await texts(await topic.subscribe(name)) == []


async def test_one_peer_of_each_consumer_gets_it(topic):
    await topic.publish("x")
    found = [
        await topic.subscribe(consumer, mode="broadcast", peer=peer)
        for consumer, peer in (("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"))
    ]

    assert [await texts(subscription) for subscription in found] == [["x"], ["x"], [], []]


async def test_what_waits_again_is_all_that_is_kept_then(topic):
    await topic.publish("old")
    assert await texts(await topic.subscribe("a")) == ["old"]
    await topic.unsubscribe("a")
    await topic.publish("new")

    assert await texts(await topic.subscribe("a")) == ["new"]
    assert await texts(await topic.subscribe("b")) == ["new"]


async def test_a_consumer_that_did_not_ask_for_it_gets_nothing(topic, rsmq):
    await topic.publish("x")
    await topic.subscribe("a")

    assert await texts(await rsmq.topic("news").subscribe("b")) == []
    assert await texts(await topic.subscribe("c")) == ["x"]


async def test_nothing_is_kept_of_what_a_first_consumer_gets_that_did_not_ask(topic, rsmq):
    await topic.publish("x")
    await rsmq.topic("news").subscribe("a")

    assert await texts(await topic.subscribe("b")) == []


async def test_a_backlog_of_several_pages_goes_to_all_in_order(topic):
    sent = [str(i) for i in range(2 * PAGE + 1)]
    await topic.publish_many(sent)
    found = [await topic.subscribe(name) for name in "ab"]

    for subscription in found:
        assert await texts(subscription, len(sent)) == sent


async def test_a_backlog_that_is_moved_in_steps_goes_to_all_in_order(topic):
    former = await topic.subscribe("a")
    await topic.publish_many([f"old {i}" for i in range(PAGE + 1)])
    await topic.unsubscribe("a")
    sent = [str(i) for i in range(2 * PAGE + 1)]
    await topic.publish_many(sent)
    await topic.subscribe("a")

    later = await topic.subscribe("b")
    assert await texts(later, 2 * len(sent)) == sent
    assert (await former.attributes()).msgs == PAGE + 1 + len(sent)


async def test_a_call_that_is_repeated_hands_nothing_out_twice(topic, rsmq, keys_of):
    await topic.publish("x")
    for name in ("a", "b"):
        joining = Joining(name, "shared", None, 30_000, 30, 0, 65536, 60_000)
        state = await rsmq._transport.run(topics.read(keys_of))
        join = topics.join(keys_of, joining, state, f"nonce {name}")
        assert await rsmq._transport.run(join) == 1
        assert await texts(topic.subscription(name)) == ["x"]
        # The reply was lost: the client asks what there is, and joins again.
        state = await rsmq._transport.run(topics.read(keys_of))
        join = topics.join(keys_of, joining, state, f"nonce {name}")
        assert await rsmq._transport.run(join) == 1
        assert await texts(topic.subscription(name)) == []


@pytest.fixture
def keys_of(topic) -> TopicKeys:
    return topic._keys


async def test_a_deleted_topic_keeps_nothing(topic):
    await topic.publish("x")
    await topic.subscribe("a")
    await topic.delete()

    assert await texts(await topic.subscribe("b")) == []
    assert await texts(await topic.subscribe("c")) == []


@pytest.mark.parametrize("value", [-1, "1", None])
def test_a_time_that_is_none_is_refused(rsmq, value):
    with pytest.raises(InvalidValue, match="keep_backlog"):
        rsmq.topic("news", keep_backlog=value)


async def test_of_very_much_none_is_kept_and_the_first_consumer_gets_all(topic):
    sent = [str(i) for i in range(10_001)]
    await topic.publish_many(sent)
    first, second = await topic.subscribe("a"), await topic.subscribe("b")

    assert (await first.attributes()).msgs == len(sent)
    assert (await second.attributes()).msgs == 0


async def test_deliveries_from_the_topics_own_queue_are_none_of_a_later_consumers(topic):
    """The first consumer gets the message with what is known of it, the second a new copy."""
    await topic.publish_many(["x", "y"])
    for message in await topic.backlog.receive_many(2):
        await message.release(unseen=True)
    first, second = await topic.subscribe("a"), await topic.subscribe("b")

    assert [(m.rc, m.attempt) for m in await first.receive_many(2)] == [(2, 1)] * 2
    assert [(m.rc, m.attempt) for m in await second.receive_many(2)] == [(1, 1)] * 2
