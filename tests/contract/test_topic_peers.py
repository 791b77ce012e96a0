"""Peers with copies of their own: the keeper, timeout, return, and who gets what was left."""

import asyncio
import itertools

import pytest

from aiorsmq_ng import LeaseLost, QueueNotFound

from ..support.clock import pass_time
from .test_topics import texts


class Scene:
    """A topic, and hands that make time pass for its peers."""

    def __init__(self, rsmq, raw, ns):
        self.topic, self.raw, self.rsmq = rsmq.topic("news"), raw, rsmq
        self.record, self.heard = f"{ns}:news__:ng:topic", f"{ns}:news__:ng:heard"
        self.gone = f"{ns}:news__:ng:gone"

    async def peer(self, name, **more):
        return await self.topic.subscribe("cache", mode="broadcast", peer=name, **more)

    async def time_out(self, *subscriptions):
        """Let it seem that peers were silent for a minute, while others were heard of."""
        clock, _ = await self._clock()
        for subscription in subscriptions:
            sign = f"{clock - 60_000} {clock - 60_000}"
            await self.raw.hset(self.heard, subscription.name, sign)

    async def pass_time(self, seconds=4.0):
        """Simulate a time without signs of life, after which siblings are checked."""
        clock, last = await self._clock()
        await self.raw.hset(self.heard, "clock:cache", f"{clock} {last - round(seconds * 1000)}")

    async def sign(self, subscription):
        """Let a peer be heard of, at a time at which it looks for silent siblings."""
        await self.pass_time()
        return await subscription.keep_alive()

    async def _clock(self):
        return map(int, (await self.raw.hget(self.heard, "clock:cache")).split())

    async def states(self):
        found = (await self.topic.describe()).subscriptions
        return {s.peers[0].name: s.state for s in found}

    async def queues(self):
        return {name for name in await self.rsmq.list_queues() if name.startswith("news__cache")}


@pytest.fixture
def scene(rsmq, raw, ns):
    return Scene(rsmq, raw, ns)


async def take(subscription):
    """Receive and acknowledge until nothing is left."""
    found = []
    while some := await texts(subscription, 1000):
        found += some
    return found


async def test_message_that_only_one_peer_had_reaches_the_consumer_when_it_dies(scene):
    """Two peers fall silent, m1 is published, the third dies as well, and a new one comes."""
    first, second, third = [await scene.peer(name, peer_timeout=2) for name in ("A1", "A2", "B")]
    await scene.topic.publish("m0")
    await scene.time_out(first, second)
    await scene.sign(third)
    await scene.topic.publish("m1")
    await scene.pass_time(60)
    new = await scene.peer("C")
    await scene.topic.publish("m2")

    assert await take(new) == ["m0", "m1", "m2"]
    assert await scene.queues() == {new.name}


async def test_silent_peers_of_which_no_other_is_heard_stay(scene):
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.pass_time(60)
    await scene.topic.publish("x")

    assert await scene.states() == {"1": "on", "2": "on"}
    assert await texts(one) == await texts(two) == ["x"]


async def test_what_a_silent_peer_left_is_deleted_if_the_keeper_has_had_it(scene):
    keeper, silent = await scene.peer("1"), await scene.peer("2")
    other = await scene.topic.subscribe("mail")
    await scene.topic.publish("x")
    await scene.time_out(silent)
    await scene.sign(keeper)
    await scene.topic.publish("y")

    info = {s.queue: s.state for s in (await scene.topic.describe()).subscriptions}
    assert info == {keeper.name: "on", other.name: "on"}
    assert await scene.queues() == {keeper.name}
    assert await take(keeper) == await take(other) == ["x", "y"]


async def test_peer_that_is_heard_when_the_keeper_is_silent_gets_what_it_lacks_only(scene):
    keeper = await scene.peer("1")
    await scene.topic.publish("before")
    sibling = await scene.peer("2")
    await scene.topic.publish("both")
    assert await take(sibling) == ["both"]
    await scene.time_out(keeper)
    await scene.sign(sibling)

    assert await take(sibling) == ["before"]
    assert await scene.queues() == {sibling.name}


async def test_what_the_keeper_left_passes_on_from_peer_to_peer(scene):
    """However many die, each is followed by one that has all of it, and only one."""
    await scene.topic.publish("0")
    peers = [await scene.peer("0")]
    for number in range(1, 6):
        peers.append(await scene.peer(str(number)))
        await scene.topic.publish(str(number))
    for old, new in itertools.pairwise(peers):
        await scene.time_out(old)
        await scene.sign(new)

    assert await take(peers[-1]) == [str(number) for number in range(6)]
    assert await scene.queues() == {peers[-1].name}


async def test_client_that_reconnects_for_each_look_gets_every_message_once(scene):
    seen, old = [], await scene.peer("first")
    for number in range(20):
        await scene.topic.publish(str(number))
        await scene.time_out(old)
        new = await scene.peer(f"look {number}")
        seen += await take(new)
        old = new

    assert seen == [str(number) for number in range(20)]
    assert await scene.queues() == {old.name}


async def test_client_that_hops_faster_than_its_timeout_leaves_no_queues_behind(scene):
    """Of the copies for peers that are dead, but not yet silent for long, one is handed on."""
    hops = [await scene.peer(f"hop {number}") for number in range(15)]
    await scene.topic.publish_many(["x", "y"])
    seen = []
    for number, old in enumerate(hops):
        await scene.time_out(old)
        new = await scene.peer(f"new {number}")
        seen += await take(new)

    assert sorted(seen) == ["x", "y"]
    assert len(await scene.queues()) == 15
    await scene.time_out(*[await scene.peer(f"new {number}") for number in range(14)])
    await scene.sign(new)
    assert await scene.queues() == {new.name}


async def test_first_sign_after_an_outage_ends_no_subscription(scene):
    """No peer could give a sign of life during the outage, so none has timed out."""
    one, two = await scene.peer("1"), await scene.peer("2")
    await scene.pass_time(3600)
    await two.keep_alive()
    await scene.topic.publish("x")
    await two.keep_alive()

    assert await scene.states() == {"1": "on", "2": "on"}
    assert await texts(one) == await texts(two) == ["x"]


async def test_sibling_that_speaks_too_seldom_does_not_keep_a_dead_peer(scene):
    """Before each of its signs of life there was none for long, as after an outage."""
    dead, slow = await scene.peer("dead"), await scene.peer("slow")
    await scene.topic.publish("x")
    for _ in range(5):
        await scene.pass_time(3600)
        await slow.keep_alive()

    assert await scene.queues() == {slow.name}
    assert not await scene.raw.hexists(scene.heard, dead.name)


async def test_clock_that_is_set_back_ends_no_subscription(scene):
    await scene.peer("1")
    two = await scene.peer("2")
    await scene.pass_time(-3600)
    for _ in range(5):
        assert await two.keep_alive()

    assert await scene.states() == {"1": "on", "2": "on"}


async def test_newcomer_after_an_outage_takes_the_keepers_place_and_takes_no_other_off(scene):
    _, two = await scene.peer("1"), await scene.peer("2")
    await scene.topic.publish("x")
    await scene.pass_time(3600)
    three = await scene.peer("3")

    assert await scene.states() == {"2": "on", "3": "on"}
    assert await texts(two) == await texts(three) == ["x"]


async def test_newcomer_does_not_take_the_place_of_a_keeper_that_may_be_silent_for_longer(scene):
    keeper = await scene.peer("1", peer_timeout=30)
    await scene.topic.publish("x")
    await scene.pass_time(10)
    await scene.peer("2", peer_timeout=1)

    assert await scene.states() == {"1": "on", "2": "on"}
    assert await texts(keeper) == ["x"]


async def test_newcomer_takes_nothing_over_from_peers_that_may_have_been_cut_off(scene):
    keeper, two = await scene.peer("1"), await scene.peer("2")
    await scene.topic.publish("x")
    await scene.pass_time(3600)
    await two.keep_alive()
    await scene.peer("3")

    assert await scene.states() == {"1": "on", "2": "on", "3": "on"}
    assert await texts(keeper) == ["x"]


async def test_coming_back_from_a_new_address_loses_nothing(scene):
    old = await scene.peer("10.0.0.1:4001")
    await scene.topic.publish_many(["1", "2"])
    await scene.pass_time(60)
    await scene.topic.publish("3")
    new = await scene.peer("10.0.0.1:4002")
    await scene.topic.publish("4")

    assert await texts(new) == ["1", "2", "3", "4"]
    assert await scene.states() == {"10.0.0.1:4002": "on"}
    assert old.name not in await scene.rsmq.list_queues()


async def test_new_address_before_the_old_one_is_silent_gets_the_rest_later(scene):
    old = await scene.peer("a")
    await scene.topic.publish("1")
    new = await scene.peer("b")
    await scene.topic.publish("2")
    assert await texts(new) == ["2"]
    await scene.topic.publish("3")
    await scene.time_out(old)
    await scene.sign(new)

    assert await texts(new) == ["1", "3"]
    assert await scene.states() == {"b": "on"}


@pytest.mark.parametrize("role", ["keeper", "sibling"])
async def test_peer_that_was_taken_for_dead_comes_back_with_an_empty_queue(scene, role):
    peers = [await scene.peer("1"), await scene.peer("2")]
    back, other = peers if role == "keeper" else peers[::-1]
    await scene.topic.publish("x")
    await scene.time_out(back)
    await scene.sign(other)
    await scene.topic.publish("missed")
    assert back.name not in await scene.queues()

    assert await back.observe() == []
    await scene.topic.publish("y")
    assert await take(back) == ["y"]
    assert await take(other) == ["x", "missed", "y"]


async def test_peer_that_is_stopped_right_after_a_sign_of_life_comes_back(scene):
    """Its own clock did not go on, so it does not know that a sign of life is due."""
    stopped, other = await scene.peer("1"), await scene.peer("2")
    await stopped.keep_alive()
    await scene.time_out(stopped)
    await scene.sign(other)

    assert await stopped.receive_many(10) == []
    assert await scene.states() == {"1": "on", "2": "on"}


async def test_lease_of_a_peer_that_was_taken_for_dead_is_lost(scene):
    slow, other = await scene.peer("slow"), await scene.peer("other")
    await scene.topic.publish("x")
    (held,) = await slow.observe()
    await scene.time_out(slow)
    await scene.sign(other)

    with pytest.raises((LeaseLost, QueueNotFound)):
        await held.ack()
    assert [m.text for m in await other.observe()] == ["x"]


async def test_peer_taken_for_dead_is_not_subscribed_after_its_consumer_was_unsubscribed(scene):
    slow, other = await scene.peer("slow"), await scene.peer("other")
    await scene.time_out(slow)
    await scene.sign(other)
    await scene.topic.unsubscribe("cache")

    assert not await slow.keep_alive()
    assert await scene.states() == {}
    with pytest.raises(QueueNotFound):
        await slow.observe()


async def test_of_peers_that_were_taken_for_dead_the_last_thousand_are_remembered(scene):
    await scene.raw.zadd(scene.gone, {f"peer {number}": number for number in range(1500)})
    dead, other = await scene.peer("1"), await scene.peer("2")
    await scene.time_out(dead)
    await scene.sign(other)

    remembered = await scene.raw.zrange(scene.gone, 0, -1)
    assert len(remembered) == 1000
    assert remembered[-1].decode() == dead.name
    assert await scene.raw.pttl(scene.gone) > 0


async def test_keeper_that_unsubscribes_leaves_its_messages_to_a_sibling(scene):
    keeper = await scene.peer("1")
    await scene.topic.publish("x")
    sibling = await scene.peer("2")
    await scene.topic.publish("y")

    assert await scene.topic.unsubscribe("cache", peer="1") == 2
    assert not await keeper.keep_alive()
    await scene.sign(sibling)
    assert await take(sibling) == ["x", "y"]
    assert await scene.states() == {"2": "on"}


async def test_sibling_of_a_keeper_that_unsubscribed_dies_before_it_was_heard(scene):
    """It is the keeper from then on, and what is only in its queue is not lost with it."""
    for name in "12":
        await scene.peer(name)
    await scene.topic.unsubscribe("cache", peer="1")
    await scene.topic.publish("x")
    await scene.topic.unsubscribe("cache")

    assert await take(await scene.peer("3")) == ["x"]


async def test_any_other_peer_that_unsubscribes_leaves_nothing(scene):
    keeper, other = await scene.peer("1"), await scene.peer("2")
    await scene.topic.publish("x")

    assert await scene.topic.unsubscribe("cache", peer="2") == 0
    assert not await other.keep_alive()
    assert await scene.queues() == {keeper.name}
    assert await take(keeper) == ["x"]


async def test_peer_that_subscribes_again_beside_a_keeper_begins_with_an_empty_queue(scene):
    keeper = await scene.peer("1")
    await scene.topic.publish("x")
    sibling = await scene.peer("2")
    await scene.topic.unsubscribe("cache", peer="1")
    await scene.peer("1")
    await scene.topic.publish("y")

    assert await take(keeper) == ["y"]
    assert await take(sibling) == ["x", "y"]


async def test_unsubscribed_consumer_finds_its_messages_again_once(scene):
    for name in "ab":
        await scene.peer(name)
    await scene.topic.publish("x")
    assert await scene.topic.unsubscribe("cache") == 1
    await scene.topic.publish("waits")

    assert await texts(await scene.peer("c")) == ["x", "waits"]
    assert await texts(await scene.peer("d")) == []
    await scene.topic.unsubscribe("cache", discard=True)
    assert await scene.raw.hkeys(scene.heard) == []


async def test_consumer_misses_nothing_if_the_keepers_queue_is_deleted_by_another_client(scene):
    """Its oldest sibling, which has all that was published since, is the keeper then."""
    keeper, second, third = [await scene.peer(name) for name in "123"]
    await scene.rsmq.delete_queue(keeper.name)
    await scene.topic.publish("x")
    await scene.time_out(second)
    await scene.topic.publish("y")
    await scene.sign(third)
    await scene.time_out(third)
    new = await scene.peer("new")

    assert await take(new) == ["x", "y"]


async def test_waiting_keeps_a_peer_alive(scene):
    peer = await scene.peer("1", peer_timeout=1)
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
    await scene.time_out(peer)
    await SIGNS[sign](peer)
    await scene.sign(sibling)

    assert await scene.states() == {"1": "on", "2": "on"}


async def test_waiting_receive_keeps_a_peer_alive(scene):
    peer = await scene.peer("1", peer_timeout=1)
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


@pytest.mark.parametrize("ahead_us", [100_000, 3_600_000_000])
async def test_messages_whose_ids_run_ahead_of_the_clock_are_not_taken_for_later_ones(
    scene, ahead_us
):
    """A large batch gets a microsecond per message; and clocks are set back."""
    old = await scene.peer("old")
    id = await scene.topic.publish("x")
    ahead = int(id[:10], 36) + ahead_us
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    other = "".join(digits[ahead // 36**place % 36] for place in range(9, -1, -1)) + id[10:]
    await scene.raw.zadd(old._context.keys.zset, {other: 1})
    await scene.raw.hset(old._context.keys.hash, other, "the last of a batch")
    await scene.raw.hset(scene.record, "last", ahead + 1)
    new = await scene.peer("new")
    await scene.topic.publish("y")
    await scene.time_out(old)
    await scene.sign(new)

    assert sorted(await texts(new)) == ["the last of a batch", "x", "y"]


async def test_consumer_may_have_thousands_of_peers(scene, rsmq):
    """More than a script can hand to one command: 8000."""
    first = await scene.peer("0")
    names = [f"{first.name[:-1]}{number}" for number in range(1, 8_100)]
    record = (await scene.raw.hget(scene.record, f"q:{first.name}")).decode().split(" ")
    attributes = await scene.raw.hgetall(first._context.keys.hash)
    pipe = scene.raw.pipeline(transaction=False)
    record[3] = "0"
    for name in names:
        record[5] = name.rpartition("_")[2]
        pipe.hset(scene.record, f"q:{name}", " ".join(record))
        pipe.hset(first._context.sibling(name).hash, mapping=attributes)
    heard = await scene.raw.hget(scene.heard, first.name)
    pipe.hset(scene.heard, mapping=dict.fromkeys(names, heard) | dict.fromkeys(names[:-1], 1))
    pipe.hset(scene.record, "version", "another")
    await pipe.execute()
    await scene.topic.publish("x")
    for name in (first.name, names[0], names[-1]):
        assert [m.text for m in await rsmq.queue(name).peek()] == ["x"]
    await scene.sign(first)

    heard = {field.decode() for field in await scene.raw.hkeys(scene.heard)}
    assert heard == {"clock:cache", first.name, names[-1]}
    assert await scene.states() == {"0": "on", "8099": "on"}


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


async def postpone(queue, count=1):
    """Receive messages and give them back before any work on them began, twice."""
    for _ in range(2):
        found = await queue.receive_many(count)
        assert len(found) == count
        await asyncio.gather(*(message.release(unseen=True) for message in found))


async def pasts(queue, count):
    """Receive once; return attempt and strikes of all that came together."""
    return [(m.attempt, m.strikes) for m in await queue.receive_many(count)]


@pytest.mark.parametrize("later", [0, 1], ids=["renamed", "carried"])
async def test_keeper_knows_what_was_known_of_deliveries_to_a_peer_that_is_gone(scene, later):
    """They come together, and those that were given back unseen do not count."""
    old = await scene.peer("old")
    await scene.topic.publish_many(["a", "b"])
    new = await scene.peer("new")
    await scene.topic.publish_many(["c"] * later)
    await postpone(old, 2 + later)
    await scene.time_out(old)
    await scene.sign(new)

    assert await pasts(new, 9) == [(1, 0)] * (2 + later)
    ttl = await scene.raw.ttl(f"{new._context.keys.deliveries}")
    assert 0 < ttl <= 14 * 86400


@pytest.mark.parametrize(
    ("present", "waiting"), [(0, 2), (2, 2), (2, 1500), (1500, 2), (1500, 1500)]
)
async def test_what_is_known_of_deliveries_moves_with_a_backlog(scene, rsmq, present, waiting):
    topic, own = scene.topic, rsmq.queue("news__")
    subscription = await topic.subscribe("a")
    if present:
        await topic.publish_many(map(str, range(present)))
        await postpone(subscription, present)
    await topic.unsubscribe("a")
    await topic.publish_many(map(str, range(waiting)))
    await postpone(own, waiting)
    await topic.subscribe("a")

    assert await pasts(subscription, 9999) == [(1, 0)] * (present + waiting)
    assert not await scene.raw.exists(own._context.keys.deliveries)


async def test_suspect_that_moves_to_the_keeper_keeps_its_strikes(scene, raw, ns):
    old = await scene.peer("old")
    await scene.topic.publish("struck")
    new = await scene.peer("new")
    for _ in range(3):
        assert await old.receive(vt=10)
        await pass_time(raw, f"{ns}:{old.name}", 11)
    await scene.time_out(old)
    await scene.sign(new)

    assert (await new.receive()).strikes == 3


@pytest.mark.parametrize("side", ["old", "new"])
async def test_queue_that_gets_or_gives_all_messages_keeps_its_own_dedup_keys(scene, rsmq, side):
    """They belong to a queue by name, and not to the messages in it."""
    queues = {"old": rsmq.queue("news__"), "new": rsmq.queue("news__a")}
    await rsmq.create_queue("news__a")
    await scene.topic.publish("x")
    await queues[side].send("once", dedup_key="k")
    await queues["new"].purge()
    await take(await scene.topic.subscribe("a"))

    await queues[side].send("twice", dedup_key="k")

    assert await queues[side].receive() is None
