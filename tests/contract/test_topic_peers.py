"""Peers with copies of their own: silence, return, and who gets what was left."""

import asyncio

import pytest

from aiorsmq_ng.protocol import topics
from aiorsmq_ng.protocol.topic_state import EACH
from aiorsmq_ng.protocol.topics import Joining, TopicChanged

from .test_topics import texts


class Scene:
    """A topic, and hands that make time pass for its peers."""

    def __init__(self, rsmq, raw, ns):
        self.topic, self.raw = rsmq.topic("news"), raw
        self.record, self.heard = f"{ns}:news__:ng:topic", f"{ns}:news__:ng:heard"

    async def peer(self, name, **more):
        return await self.topic.subscribe("cache", mode="each", peer=name, **more)

    async def silence(self, *subscriptions):
        """Let it seem that nothing was heard of peers for a minute, and that all are older."""
        now = int((await self.raw.time())[0]) * 1000
        for field in await self.raw.hkeys(self.heard):
            if b":" not in field:
                await self.began(field.decode(), (now - 3_600_000) * 1000)
        for subscription in subscriptions:
            await self.raw.hset(self.heard, subscription.name, now - 60_000)
        await self.raw.hdel(self.heard, "look:cache")

    async def began(self, queue, since_us):
        """Let it seem that a subscription began at another time."""
        await self._rewrite(queue, lambda words: [*words[:-1], str(int(since_us))])

    async def put_off(self, subscription):
        """Take a peer off, as if it had been silent."""
        await self._rewrite(subscription.name, lambda words: ["off", *words[1:]])
        await self.raw.hset(self.record, "version", "another")

    async def _rewrite(self, queue, change):
        field = f"q:{queue}"
        words = (await self.raw.hget(self.record, field)).decode().split(" ")
        await self.raw.hset(self.record, field, " ".join(change(words)))

    async def states(self):
        found = (await self.topic.describe()).subscriptions
        return {s.peers[0].name: s.state for s in found}


@pytest.fixture
def scene(rsmq, raw, ns):
    return Scene(rsmq, raw, ns)


async def test_silent_peer_is_taken_off_alone_by_a_publish(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    other = await scene.topic.subscribe("mail")
    await scene.silence(one)
    await scene.topic.publish("x")
    await scene.topic.publish("y")

    info = {s.queue: s.state for s in (await scene.topic.describe()).subscriptions}
    assert info == {one.name: "off", two.name: "on", other.name: "on"}
    assert (await one.attributes()).msgs == 0
    assert await texts(two) == await texts(other) == ["x", "y"]


async def test_peers_without_a_living_sibling_stay_and_wait(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.silence(one, two)
    await scene.topic.publish("x")

    assert await scene.states() == {"1": "on", "2": "on"}
    assert await texts(one) == await texts(two) == ["x"]


async def test_first_sign_after_an_outage_takes_nobody_off(scene):
    """Nobody could be heard while the server was away: that is no reason to take peers off."""
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.silence(one, two)
    await one.keep_alive()
    await scene.topic.publish("x")
    await one.keep_alive()

    assert await scene.states() == {"1": "on", "2": "on"}
    assert await texts(one) == await texts(two) == ["x"]


async def test_subscribing_again_after_an_outage_takes_nobody_off(scene):
    one, two, three = [await scene.peer(name) for name in "123"]
    await scene.silence(one, two, three)
    await scene.peer("1")
    await scene.topic.publish("x")
    await one.keep_alive()

    assert await scene.states() == {"1": "on", "2": "on", "3": "on"}
    assert await texts(two) == await texts(three) == ["x"]


async def test_newcomer_after_an_outage_takes_over_one_peer_and_takes_no_other_off(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.silence(one, two)
    await scene.raw.hincrby(scene.heard, two.name, 1)
    await scene.peer("3")
    await scene.topic.publish("x")

    assert await scene.states() == {"2": "on", "3": "on"}
    assert await texts(two) == ["x"]


async def test_newcomer_takes_nothing_over_from_peers_that_may_have_been_cut_off(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.topic.publish("x")
    await scene.silence(one, two)
    await one.keep_alive()
    await scene.peer("3")

    assert await scene.states() == {"1": "on", "2": "on", "3": "on"}
    assert await texts(two) == ["x"]


async def test_peer_still_silent_after_the_outage_is_taken_off(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.silence(one, two)
    await one.keep_alive()
    # A silence has passed since then.
    noted = int(await scene.raw.hget(scene.heard, "again:cache"))
    await scene.raw.hset(scene.heard, "again:cache", noted - 31_000)
    await scene.topic.publish("x")

    assert await scene.states() == {"1": "on", "2": "off"}
    await scene.topic.unsubscribe("cache", discard=True)
    assert await scene.raw.hkeys(scene.heard) == []


async def test_siblings_look_for_silent_ones_in_turn(scene):
    """Whoever speaks first after a tenth of the silence looks, on behalf of all."""
    silent, one, two = [await scene.peer(name) for name in ("silent", "1", "2")]
    await one.keep_alive()
    now, due = map(int, await scene.raw.hmget(scene.heard, one.name, "look:cache"))
    assert due == now + 3_000
    await scene.raw.hset(scene.heard, silent.name, now - 60_000)
    await scene.raw.hset(scene.heard, "look:cache", now + 29_000)
    await two.keep_alive()
    assert (await scene.states())["silent"] == "on"
    # The time has come, or was noted by a clock that is set back since.
    await scene.raw.hset(scene.heard, "look:cache", now + 3_600_000)
    await two.keep_alive()
    assert (await scene.states()).get("silent") != "on"


async def test_new_sibling_lets_the_next_sign_look(scene):
    one = await scene.peer("1")
    await one.keep_alive()
    assert await scene.raw.hexists(scene.heard, "look:cache")
    await scene.peer("2", silence=1)
    assert not await scene.raw.hexists(scene.heard, "look:cache")


async def test_sibling_that_speaks_too_seldom_does_not_keep_a_dead_peer(scene):
    """Each sign of it looks like the end of an outage, but only one is taken for that."""
    slow, dead = await scene.peer("slow"), await scene.peer("dead")
    await scene.silence(slow, dead)
    await slow.keep_alive()
    before = int((await scene.raw.time())[0]) * 1000 - 31_000
    await scene.raw.hset(scene.heard, mapping={slow.name: before, "again:cache": before})
    await scene.raw.hdel(scene.heard, "look:cache")
    await slow.keep_alive()

    assert await scene.states() == {"slow": "on"}


async def test_coming_back_from_a_new_address_loses_nothing(scene):
    old = await scene.peer("10.0.0.1:4001")
    await scene.topic.publish_many(["1", "2"])
    await scene.silence(old)
    await scene.topic.publish("3")
    new = await scene.peer("10.0.0.1:4002")
    await scene.topic.publish("4")

    assert await texts(new) == ["1", "2", "3", "4"]
    assert await scene.states() == {"10.0.0.1:4002": "on"}


async def test_new_address_before_the_old_one_is_silent_gets_the_rest_later(scene):
    old = await scene.peer("a")
    await scene.topic.publish("1")
    new = await scene.peer("b")
    await scene.topic.publish("2")
    (second,) = await new.observe()
    await second.ack()
    await scene.topic.publish("3")
    await scene.silence(old)
    await scene.began(new.name, second.sent * 1000 - 1)
    await scene.topic.publish("4")

    await new.keep_alive()
    assert await texts(new) == ["1", "3", "4"]
    assert await scene.states() == {"b": "on"}


async def test_each_newcomer_takes_over_what_one_peer_left(scene):
    old = [await scene.peer(name) for name in "ab"]
    await scene.topic.publish("x")
    await scene.silence(*old)
    new = [await scene.peer(name) for name in "cd"]
    await scene.topic.publish("y")

    assert [await texts(peer) for peer in new] == [["x", "y"], ["x", "y"]]


async def test_sibling_gets_what_it_lacks_and_nothing_twice(scene):
    await scene.topic.publish("waited")
    first = await scene.peer("1")
    second = await scene.peer("2")
    await scene.topic.publish("both")
    assert await texts(second) == ["both"]
    # The sibling subscribed before the other fell silent: it is no newcomer.
    both = (await first.peek(1, 1))[0]
    await scene.began(second.name, both.sent * 1000 - 1)
    await scene.raw.hset(scene.heard, first.name, int(both.sent) + 1)
    await scene.put_off(first)

    await second.keep_alive()
    assert await texts(second) == ["waited"]
    assert await texts(await scene.peer("3")) == ["waited", "both"]


async def test_peer_that_was_taken_off_comes_back_with_its_own_messages(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.topic.publish("x")
    await scene.silence(one)
    await scene.topic.publish("missed")
    assert (await scene.states())["1"] == "off"

    assert await texts(one) == ["x"]
    await scene.topic.publish("y")
    assert await texts(one) == ["y"]
    assert await texts(two) == ["x", "missed", "y"]


async def test_slow_peer_whose_messages_were_taken_over_is_subscribed_anew(scene):
    slow = await scene.peer("slow")
    await scene.topic.publish("x")
    await scene.silence(slow)
    new = await scene.peer("new")
    assert await texts(new) == ["x"]

    assert await slow.observe() == []
    await scene.topic.publish("y")
    assert await texts(slow) == await texts(new) == ["y"]


async def test_peer_that_unsubscribes_leaves_its_messages_to_the_next(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.topic.publish("x")

    assert await scene.topic.unsubscribe("cache", peer="1") == 1
    assert not await one.keep_alive()
    await scene.topic.publish("y")
    three = await scene.peer("3")
    assert await texts(three) == ["x"]
    assert await texts(two) == ["x", "y"]


async def test_unsubscribed_consumer_finds_all_copies_again(scene):
    for name in "ab":
        await scene.peer(name)
    await scene.topic.publish("x")
    assert await scene.topic.unsubscribe("cache") == 2
    await scene.topic.publish("waits")

    assert await texts(await scene.peer("c")) == ["x", "waits"]
    assert await texts(await scene.peer("d")) == ["x"]


async def test_waiting_keeps_a_peer_alive(scene):
    peer = await scene.peer("1", silence=1)
    waiting = asyncio.create_task(peer.observe(wait=120))
    before = await scene.raw.hget(scene.heard, peer.name)
    async with asyncio.timeout(60):
        while await scene.raw.hget(scene.heard, peer.name) == before:
            await asyncio.sleep(0.05)
    await scene.topic.publish("x")

    assert [m.text for m in await waiting] == ["x"]


SIGNS = {
    "receive": lambda peer: peer.receive(),
    "receive_many": lambda peer: peer.receive_many(1),
    "observe": lambda peer: peer.observe(),
    "pop": lambda peer: peer.pop(),
    "pop_many": lambda peer: peer.pop_many(1),
    "recover": lambda peer: peer.recover(1, 0),
    "keep_alive": lambda peer: peer.keep_alive(),
    "consume": lambda peer: anext(peer.consume()),
    "waiting receive": lambda peer: peer.receive(wait=20),
}


@pytest.mark.parametrize("sign", SIGNS)
async def test_every_way_to_take_messages_is_a_sign_of_life(scene, sign):
    peer, sibling = await scene.peer("1"), await scene.peer("2")
    await scene.topic.publish("x")
    await scene.silence(peer)
    await SIGNS[sign](peer)
    await sibling.keep_alive()

    assert await scene.states() == {"1": "on", "2": "on"}


async def test_waiting_receive_keeps_a_peer_alive(scene):
    peer = await scene.peer("1", silence=1)
    waiting = asyncio.create_task(peer.receive(wait=120))
    async with asyncio.timeout(60):
        for _ in range(3):
            before = await scene.raw.hget(scene.heard, peer.name)
            while await scene.raw.hget(scene.heard, peer.name) == before:
                await asyncio.sleep(0.05)
    await scene.topic.publish("x")

    message = await waiting
    assert message is not None
    assert message.text == "x"


@pytest.mark.parametrize(("old", "new"), [(2500, 0), (2500, 10), (1500, 1500), (10, 2500)])
async def test_backlog_of_any_length_moves_in_order(scene, old, new):
    """What a consumer left and what has waited since come together, whichever is longer."""
    topic = scene.topic
    subscription = await topic.subscribe("a")
    if old:
        await topic.publish_many(map(str, range(old)))
    await topic.unsubscribe("a")
    if new:
        await topic.publish_many(map(str, range(old, old + new)))
    await topic.subscribe("a")
    await topic.publish("last")

    expected = [*map(str, range(old + new)), "last"]
    assert [m.text for m in await subscription.receive_many(10_000)] == expected
    attributes = await subscription.attributes()
    assert (attributes.totalsent, attributes.msgs) == (old + new + 1, old + new + 1)


async def test_messages_whose_ids_run_ahead_of_the_clock_are_not_taken_for_later_ones(scene):
    """A large batch gets a microsecond per message, so its last ids lie in the future."""
    old = await scene.peer("old")
    id = await scene.topic.publish("x")
    ahead = int(id[:10], 36) + 100_000
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    other = "".join(digits[ahead // 36**place % 36] for place in range(9, -1, -1)) + id[10:]
    await scene.raw.zadd(old.origin.keys.zset, {other: 1})
    await scene.raw.hset(old.origin.keys.hash, other, "the last of a batch")
    new = await scene.peer("new")
    await scene.raw.hset(scene.heard, old.name, 1)
    await scene.topic.publish("y")

    await new.keep_alive()
    assert sorted(await texts(new)) == ["the last of a batch", "x", "y"]


async def test_subscriber_that_dies_while_long_queues_are_moved_loses_nothing(scene):
    """Here the backlog and what an earlier peer left are both too long for one step."""
    topic = scene.topic
    await scene.peer("old")
    await topic.publish_many(map(str, range(1500)))
    await topic.unsubscribe("cache")
    await topic.publish_many(map(str, range(1500, 3000)))
    transport, keys = topic.backlog.origin.transport, topic._keys
    state = await transport.run(topics.read(keys))
    joining = Joining("cache", EACH, "dies", 30_000, 30, 0, 65536)
    assert not await transport.run(topics.join(keys, joining, state, "nonce"))

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
    transport, keys = scene.topic.backlog.origin.transport, scene.topic._keys
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


async def test_peer_that_speaks_up_just_before_it_is_taken_over_stays(scene):
    slow = await scene.peer("slow")
    await scene.silence(slow)
    transport, keys = slow.origin.transport, scene.topic._keys
    state = await transport.run(topics.read(keys))
    await slow.keep_alive()
    joining = Joining("cache", EACH, "new", 30_000, 30, 0, 65536)

    with pytest.raises(TopicChanged):
        await transport.run(topics.join(keys, joining, state, "nonce"))
    assert await scene.states() == {"slow": "on"}


async def test_peer_that_was_taken_over_is_forgotten_after_a_day(scene):
    old = await scene.peer("old")
    await scene.silence(old)
    await scene.peer("new")
    field = f"q:{old.name}"
    assert (await scene.raw.hget(scene.record, field)).startswith(b"gone ")
    await scene.peer("newer")
    assert await scene.raw.hexists(scene.record, field)
    await scene.raw.hset(scene.heard, old.name, 1)
    await scene.peer("newest")

    assert not await scene.raw.hexists(scene.record, field)
    assert not await scene.raw.hexists(scene.heard, old.name)


async def test_one_newcomer_gets_what_all_peers_left_though_they_left_at_different_times(rsmq):
    topic = rsmq.topic("news")
    for name in ("p1", "p2"):
        await topic.subscribe("each", mode="each", peer=name)
    await topic.publish("0")
    await topic.unsubscribe("each")
    await topic.subscribe("each", mode="each", peer="p1")
    await topic.publish("1")
    await topic.unsubscribe("each")

    newcomer = await topic.subscribe("each", mode="each", peer="new")
    seen = set()
    while found := await newcomer.observe():
        for message in found:
            seen.add(message.text)
            await message.ack()

    assert seen == {"0", "1"}


async def test_consumer_may_have_thousands_of_peers(scene, rsmq):
    """More than a script can hand to one command: 8000."""
    first = await scene.peer("0")
    names = [f"{first.name[:-1]}{number}" for number in range(1, 8_100)]
    record = (await scene.raw.hget(scene.record, f"q:{first.name}")).decode().split(" ")
    attributes = await scene.raw.hgetall(first.origin.keys.hash)
    pipe = scene.raw.pipeline(transaction=False)
    for name in names:
        record[5] = name.rpartition("_")[2]
        pipe.hset(scene.record, f"q:{name}", " ".join(record))
        pipe.hset(first.origin.sibling(name).hash, mapping=attributes)
    heard = await scene.raw.hget(scene.heard, first.name)
    pipe.hset(scene.heard, mapping=dict.fromkeys(names, heard) | {names[-1]: 1})
    pipe.hset(scene.record, "version", "another")
    await pipe.execute()
    await scene.topic.publish("x")

    assert (await scene.raw.hget(scene.record, f"q:{names[-1]}")).startswith(b"off ")
    for name in (first.name, names[-2]):
        assert [m.text for m in await rsmq.queue(name).peek()] == ["x"]
    await scene.raw.hset(scene.heard, names[-2], 1)
    assert await first.keep_alive()
    assert (await scene.raw.hget(scene.record, f"q:{names[-2]}")).startswith((b"off ", b"gone "))


@pytest.mark.parametrize("how", ["subscribe", "receive"])
async def test_silent_peers_that_shared_are_forgotten_when_a_new_one_comes(scene, how):
    for name in ("dead", "alive"):
        await scene.topic.subscribe("a", peer=name)
    await scene.topic.subscribe("b", peer="other")
    for field in ("news__a dead", "news__b other"):
        await scene.raw.hset(scene.heard, field, 1)
    if how == "subscribe":
        await scene.topic.subscribe("a", peer="new")
    else:
        await scene.topic.subscription("a", peer="new").receive()

    heard = {field.decode() for field in await scene.raw.hkeys(scene.heard)}
    assert heard == {"news__a alive", "news__a new", "news__b other"}


async def test_of_peers_that_were_taken_over_only_the_last_are_remembered(scene, monkeypatch):
    monkeypatch.setattr("aiorsmq_ng.protocol.topic_state._REMEMBERED", 2)
    for number in range(6):
        peer = await scene.peer(str(number))
        await scene.silence(peer)
        await scene.raw.hincrby(scene.heard, peer.name, number)

    records = [name.decode()[-1] for name in await scene.raw.hkeys(scene.record)]
    assert {name for name in records if name.isdigit()} == {"2", "3", "4", "5"}


async def test_peer_that_comes_back_after_it_was_forgotten_is_subscribed(scene):
    """Its own record is among those to be removed when it subscribes."""
    old = await scene.peer("old")
    await scene.silence(old)
    new = await scene.peer("new")
    await scene.raw.hset(scene.heard, old.name, 1)
    await scene.peer("old")
    await scene.topic.publish("x")

    assert await texts(old) == await texts(new) == ["x"]


async def test_long_queue_that_was_left_is_taken_over_in_steps(scene, monkeypatch):
    """Messages keep their order, and a walk that is not done goes on with the next receive."""
    monkeypatch.setattr("aiorsmq_ng.subscription._STEPS", 2)
    old = await scene.peer("old")
    expected = list(map(str, range(5_500)))
    await scene.topic.publish_many(expected)
    new = await scene.peer("new")
    await scene.raw.hset(scene.heard, old.name, 1)
    await scene.topic.publish("last")

    seen = []
    while found := await texts(new, 5000):
        seen += found
    assert sorted(seen, key=lambda t: int(t) if t != "last" else 10**9) == [*expected, "last"]
    assert await scene.states() == {"new": "on"}
