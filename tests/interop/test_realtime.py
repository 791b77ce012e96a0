"""Wake-ups and the counts they carry, between clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from aiorsmq_ng import RSMQ, Options

from ..support.waiting import until
from .peers import Foreign, Ours, Peer
from .wire import Wire

HOURS_S = 10_000
#: A client that does not look again by itself within the time of a test.
WOKEN_ONLY = Options(poll_base=300, poll_cap=300)


@pytest.fixture(params=["ours", pytest.param("node", marks=pytest.mark.node)])
async def loud(request: pytest.FixtureRequest, server_url: str, ns: str) -> AsyncIterator[Peer]:
    """Return a client that announces what it sends."""
    if request.param == "ours":
        async with RSMQ(server_url, ns=ns, realtime=True) as rsmq:
            yield Ours(rsmq)
    else:
        yield Foreign("node", request.getfixturevalue("node_driver"), ns, realtime=True)


@pytest.fixture
async def ears(raw: Redis, wire: Wire) -> AsyncIterator[PubSub]:
    """Subscribe to the channel of the queue, without any client."""
    async with raw.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(wire.key("rt:jobs"))
        yield listener


async def heard(ears: PubSub, count: int) -> list[str]:
    told: list[str] = []
    async with asyncio.timeout(10):
        while len(told) < count:
            message = await ears.get_message(timeout=10)
            if message:
                told.append(message["data"].decode())
    return told


async def test_send_with_realtime_tells_other_clients_the_count(
    loud: Peer, foreign: Foreign, wire: Wire, ears: PubSub
) -> None:
    """Subscribers of any kind hear how many messages there are, delayed and leased ones too."""
    channel = wire.key("rt:jobs")
    await loud.create("jobs")
    await foreign.subscribe(channel)
    await loud.send("jobs", "one")
    await foreign.receive("jobs")
    await loud.send("jobs", "two", delay=HOURS_S)
    await loud.send("jobs", "three")

    assert await foreign.hear(channel, 3) == ["1", "2", "3"]
    assert await heard(ears, 3) == ["1", "2", "3"]


async def test_send_many_with_realtime_tells_once(
    server_url: str, ns: str, foreign: Foreign, wire: Wire, raw: Redis
) -> None:
    """A batch wakes subscribers once, with the count after it."""
    channel = wire.key("rt:jobs")
    await foreign.subscribe(channel)
    async with RSMQ(server_url, ns=ns, realtime=True) as rsmq:
        await (await rsmq.create_queue("jobs")).send_many(["one", "two", "three"])
    await raw.publish(channel, "end")

    assert await foreign.hear(channel, 2) == ["3", "end"]


async def test_send_without_realtime_publishes_nothing(
    sender: Peer, foreign: Foreign, wire: Wire, raw: Redis
) -> None:
    """Who did not ask for announcements makes none that other clients hear."""
    channel = wire.key("rt:jobs")
    await foreign.subscribe(channel)
    await sender.create("jobs")
    await sender.send("jobs", "quietly")
    await raw.publish(channel, "end")

    assert await foreign.hear(channel, 1) == ["end"]


async def test_wait_for_announced_message_wakes_at_once(
    server_url: str, ns: str, loud: Peer, wire: Wire, raw: Redis
) -> None:
    """While I wait, the announcement of any client brings me its message."""
    channel = wire.key("rt:jobs")

    async def subscribers() -> bool:
        return (await raw.pubsub_numsub(channel))[0][1] > 0

    async def looks() -> int:
        return (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]

    async def looked_since() -> bool:
        return await looks() > looked

    await loud.create("jobs")
    async with RSMQ(server_url, ns=ns, options=WOKEN_ONLY) as rsmq, asyncio.timeout(20):
        queue = rsmq.queue("jobs")
        waiting = asyncio.create_task(queue.receive(wait=60))
        await until(subscribers)
        first = await loud.send("jobs", "one")
        one = await waiting

        # The first may have been found by the look that follows a subscription, this one not.
        looked = await looks()
        waiting = asyncio.create_task(queue.receive(wait=60))
        await until(looked_since)
        second = await loud.send("jobs", "two")
        two = await waiting

    assert one
    assert two
    assert [one.id, two.id] == [first, second]


async def test_wait_for_unannounced_message_finds_it(rsmq: RSMQ, foreign: Foreign) -> None:
    """While I wait, I also get the messages of clients that announce nothing."""
    queue = await rsmq.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=60))
    await asyncio.sleep(0)
    id = await foreign.send("jobs", "quietly")
    delivery = await waiting

    assert delivery
    assert delivery.id == id


async def test_wait_for_delayed_message_of_other_client_ends_when_it_is_due(
    server_url: str, ns: str, foreign: Foreign
) -> None:
    """While I wait, I get a delayed message when it is due, though no client announces that."""
    await foreign.create("jobs")
    id = await foreign.send("jobs", "later", delay=1)
    async with RSMQ(server_url, ns=ns, options=WOKEN_ONLY) as rsmq:
        delivery = await rsmq.queue("jobs").receive(wait=30)

    assert delivery
    assert delivery.id == id
