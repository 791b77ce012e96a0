"""The steps by which a client of Redis subscribes, adopts and looks after peers, one by one.

Through a broker these steps are the broker's: its clients only say that they subscribe. What comes
of them is tested on every backend by test_topic_peers.py.
"""

import asyncio

import pytest

from aiorsmq_ng._protocol.operations import topics
from aiorsmq_ng._protocol.operations.topics import Joining, TopicChanged
from aiorsmq_ng._protocol.topic_state import BROADCAST

from .test_topic_peers import Scene
from .test_topics import texts

#: The tests run single operations of the client.
BACKENDS = ("server", "cluster")


@pytest.fixture
def scene(rsmq, raw, ns):
    return Scene(rsmq, raw, ns)


async def test_siblings_look_for_silent_ones_in_turn(scene):
    """One of them does it on behalf of all, a tenth of the timeout after the last time."""
    one, two = await scene.peer("1"), await scene.peer("2")
    transport = one._context.transport
    await scene.pass_time(3)
    told = [
        await transport.run(topics.beat(scene.topic._keys, peer._joining))
        for peer in (one, two, one, two)
    ]

    assert told == [(1, True), (1, False), (1, False), (1, False)]


async def test_peer_that_speaks_up_just_before_it_is_taken_off_stays(scene):
    keeper, silent, other = [await scene.peer(name) for name in "123"]
    await scene.time_out(keeper, silent)
    transport, keys = keeper._context.transport, scene.topic._keys
    state = await transport.run(topics.read(keys))
    me = state.find(other.name)
    heir, (left,) = state.left(me)
    assert (heir.queue, left.queue) == (other.name, keeper.name)
    dead = state.dead(me)
    assert [m.queue for m in dead.members] == [silent.name]
    for peer in (keeper, silent):
        await peer.keep_alive()

    with pytest.raises(TopicChanged):
        await transport.run(topics.adopt(keys, state, left, heir, "nonce"))
    with pytest.raises(TopicChanged):
        await transport.run(topics.leave(keys, state, dead, discard=False, nonce="nonce"))
    assert await scene.states() == {"1": "on", "2": "on", "3": "on"}


async def test_subscriber_that_dies_while_a_long_backlog_is_moved_loses_nothing(scene):
    """Here its queue is there already, and as long: another client has made it."""
    topic = scene.topic
    made = await scene.rsmq.create_queue("news__cache__dies")
    await made.send_many(map(str, range(1500)))
    await topic.publish_many(map(str, range(1500, 3000)))
    transport, keys = topic.backlog._context.transport, topic._keys
    state = await transport.run(topics.read(keys))
    joining = Joining("cache", BROADCAST, "dies", 30_000, 30, 0, 65536)
    assert not await transport.run(topics.join(keys, joining, state, "nonce"))
    queue, at = (await scene.raw.hget(scene.record, "first")).split()
    await scene.raw.hset(scene.record, "first", b"%s %d" % (queue, int(at) - 10_000))

    new = await scene.peer("new")
    await topic.publish("last")
    expected = [*map(str, range(3000)), "last"]
    assert [m.text for m in await new.receive_many(10_000)] == expected
    assert await scene.states() == {"new": "on"}


def joining(consumer):
    return Joining(consumer, "shared", None, 30_000, 30, 0, 65536)


@pytest.fixture
async def rivals(scene):
    """Let two consumers have kept long queues, and a long backlog wait for the first of them."""
    for name in "ab":
        await scene.topic.subscribe(name)
    await scene.topic.publish_many(["kept"] * 1200)
    for name in "ab":
        await scene.topic.unsubscribe(name)
    await scene.topic.publish_many(map(str, range(2500)))
    transport, keys = scene.topic.backlog._context.transport, scene.topic._keys
    state = await transport.run(topics.read(keys))

    async def step(consumer):
        return await transport.run(topics.join(keys, joining(consumer), state, "nonce"))

    return step


async def fresh(queue):
    return [m.text async for m in queue.scan() if m.text != "kept"]


async def test_first_subscriber_gets_all_that_waited_though_another_comes_meanwhile(scene, rivals):
    assert await rivals("a") == 0
    assert await rivals("b") == -1
    other = asyncio.create_task(scene.topic.subscribe("b"))
    while await rivals("a") != 1:
        assert not other.done()

    await other
    assert await fresh(scene.topic.subscription("a")) == list(map(str, range(2500)))
    assert await fresh(scene.topic.subscription("b")) == []
    assert not await scene.raw.hexists(scene.record, "first")


async def test_second_subscriber_gets_the_rest_if_the_first_does_not_go_on(scene, rivals):
    assert await rivals("a") == 0
    queue, at = (await scene.raw.hget(scene.record, "first")).split()
    await scene.raw.hset(scene.record, "first", b"%s %d" % (queue, int(at) - 10_000))
    other = await scene.topic.subscribe("b")
    first = await scene.topic.subscribe("a")

    assert await fresh(first) + await fresh(other) == list(map(str, range(2500)))


async def test_long_queue_of_a_keeper_passes_on_in_steps(scene, monkeypatch):
    """Messages keep their order, and what is not done yet goes on with the next receive."""
    monkeypatch.setattr("aiorsmq_ng.subscription._STEPS", 2)
    old = await scene.peer("old")
    expected = list(map(str, range(5_500)))
    await scene.topic.publish_many(expected)
    new = await scene.peer("new")
    await scene.topic.publish("last")
    await scene.time_out(old)
    await scene.sign(new)
    assert await scene.states() == {"old": "left", "new": "on"}

    seen = []
    while found := await texts(new, 5000):
        seen += found
        new._beat_at = 0.0
    assert sorted(seen, key=lambda t: int(t) if t != "last" else 10**9) == [*expected, "last"]
