"""Rare states of a queue, and the corners of its verbs that ordinary use never reaches."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options, QueueCorrupt, QueueNotFound, Retry
from aiorsmq_ng._runtime.prefetch import IDLE_S

from ..support.clock import server_ms
from ..support.keys import lasting_keys

#: No client polls within a test: a waiter gets a wake-up, or no message.
RARELY = Options(poll_base=60, poll_cap=60)


def phantoms(count):
    return {f"phantom{i:025d}": 1 for i in range(count)}


async def leased(queue, body="x", **options):
    await queue.send(body)
    return await queue.receive(**options)


async def looked(queue):
    """Wait until the look that follows a subscription is over: the next one is far away."""
    receiver, loop = queue._long_poll, asyncio.get_running_loop()
    async with asyncio.timeout(10):
        while receiver._woken_on or receiver._due < loop.time() + 10 or not receiver._waiters:
            await asyncio.sleep(0.005)


@asynccontextmanager
async def hearing(raw, subscribed, channel):
    pubsub = raw.pubsub(ignore_subscribe_messages=True)
    await pubsub.subscribe(channel)
    await subscribed(channel)
    try:
        yield pubsub
    finally:
        await pubsub.aclose()


async def next_publication(pubsub):
    async with asyncio.timeout(10):
        while True:
            message = await pubsub.get_message(timeout=1)
            if message is not None:
                return message["data"]


@pytest.fixture
async def patient(server_url, ns):
    """A client that hardly ever looks without being told."""
    async with RSMQ(server_url, ns=ns, options=RARELY) as rsmq:
        yield rsmq


@pytest.mark.parametrize("count", [1, 2500])
async def test_pop_gets_past_ids_without_a_body(queue, raw, ns, count):
    await raw.zadd(f"{ns}:jobs", phantoms(count))
    await queue.send("real")

    assert (await queue.pop()).text == "real"
    assert await raw.zcard(f"{ns}:jobs") == 0


@pytest.mark.parametrize("verb", ["pop", "receive"])
async def test_id_without_a_body_leaves_no_field_behind(queue, raw, ns, verb):
    id = "p" * 32
    await raw.zadd(f"{ns}:jobs", {id: 1})
    await raw.hset(f"{ns}:jobs:Q", mapping={f"{id}:rc": 3, f"{id}:fr": 17})

    assert await getattr(queue, verb)() is None

    assert not [f for f in await raw.hkeys(f"{ns}:jobs:Q") if f.startswith(id.encode())]


async def test_delete_clears_a_body_that_has_no_place_in_the_queue(queue, raw, ns):
    id = "o" * 32
    await raw.hset(f"{ns}:jobs:Q", mapping={id: "orphan", f"{id}:rc": 1, f"{id}:fr": 17})

    assert not await queue.delete(id)

    assert not [f for f in await raw.hkeys(f"{ns}:jobs:Q") if f.startswith(id.encode())]


async def test_notes_on_later_deliveries_do_not_stay_for_ever(queue, raw, ns):
    await leased(queue, vt=0)
    assert (await queue.receive()).rc == 2

    assert 0 < await raw.ttl(f"{ns}:jobs:ng:deliveries") <= 14 * 86400


async def test_extend_wakes_no_waiter(queue, raw, ns, subscribed):
    message = await leased(queue, vt=30)
    async with hearing(raw, subscribed, f"{ns}:jobs:ng:wake") as pubsub:
        await message.extend(60)
        await raw.publish(f"{ns}:jobs:ng:wake", "nothing before this")

        assert await next_publication(pubsub) == b"nothing before this"


async def test_forward_to_a_queue_of_another_layout_changes_nothing(rsmq, queue, raw, ns):
    await rsmq.create_queue("next")
    message = await leased(queue)
    await raw.set(f"{ns}:next", "not a sorted set")
    before = {k: await raw.dump(k) for k in await lasting_keys(raw, ns)}

    with pytest.raises(QueueCorrupt):
        await message.forward("next")

    assert {k: await raw.dump(k) for k in await lasting_keys(raw, ns)} == before


async def test_reject_where_the_dead_letters_cannot_be_kept_changes_nothing(queue, raw, ns):
    """The dead-letter queue is missing; it must not be created halfway, either."""
    message = await leased(queue)
    await raw.set(f"{ns}:jobs-dead", "not a sorted set")
    before = {k: await raw.dump(k) for k in await lasting_keys(raw, ns)}

    with pytest.raises(QueueCorrupt):
        await message.reject("a reason")

    assert {k: await raw.dump(k) for k in await lasting_keys(raw, ns)} == before


@pytest.mark.parametrize("verb", ["forward", "reject"])
async def test_move_wakes_who_waits_on_the_target(patient, raw, ns, verb, subscribed):
    target = await patient.create_queue("next")
    await patient.create_queue("jobs")
    message = await leased(patient.queue("jobs", dead_letter="next"))
    waiting = asyncio.create_task(target.receive(wait=100))
    await subscribed(f"{ns}:rt:next")
    await looked(target)

    await (message.forward("next") if verb == "forward" else message.reject())

    async with asyncio.timeout(10):
        assert (await waiting).id == message.id


@pytest.mark.parametrize("verb", ["forward", "reject"])
async def test_move_by_a_realtime_client_is_published_on_rsmqs_channel(
    server_url, ns, raw, verb, subscribed
):
    async with RSMQ(server_url, ns=ns, realtime=True) as rsmq:
        await rsmq.create_queue("jobs")
        await rsmq.create_queue("next")
        message = await leased(rsmq.queue("jobs", dead_letter="next"))
        async with hearing(raw, subscribed, f"{ns}:rt:next") as pubsub:
            await (message.forward("next") if verb == "forward" else message.reject())

            assert await next_publication(pubsub) == b"1"


async def test_wait_on_several_queues_ends_when_a_delayed_message_becomes_visible(patient):
    await patient.create_queue("a")
    await (await patient.create_queue("b")).send("delayed", delay=0.5)

    async with asyncio.timeout(10):
        assert (await patient.receive("a", "b", wait=100)).text == "delayed"


async def test_wait_that_learns_of_an_earlier_message_shares_it_with_who_waits_already(
    patient, raw, ns, subscribed
):
    """A foreign sender publishes nothing; only the second waiter's first look tells of it."""
    queue = await patient.create_queue("jobs")
    first = asyncio.create_task(queue.receive(wait=100))
    await subscribed(f"{ns}:rt:jobs")
    await looked(queue)
    await raw.hset(f"{ns}:jobs:Q", "g" * 32, "silent")
    await raw.zadd(f"{ns}:jobs", {"g" * 32: await server_ms(raw) + 500})
    second = asyncio.create_task(queue.receive(wait=100))

    async with asyncio.timeout(10):
        assert (await first).text == "silent"
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_burst_reaches_more_waiters_than_one_look_serves(patient, raw, ns, subscribed):
    queue = await patient.create_queue("jobs")
    waiting = [asyncio.create_task(queue.receive(wait=100)) for _ in range(150)]
    await subscribed(f"{ns}:rt:jobs")
    await looked(queue)
    await queue.send_many([str(i) for i in range(150)])

    async with asyncio.timeout(10):
        received = await asyncio.gather(*waiting)
    assert sorted(int(m.text) for m in received) == list(range(150))


async def test_prefetched_messages_are_out_of_reach_for_others_beyond_their_lease(queue):
    await queue.send_many(["a", "b", "c"])
    async with queue.consume(prefetch=3, vt=4) as consumer:
        await (await anext(consumer)).ack()

        assert await queue.receive(vt=0, wait=5) is None


@pytest.mark.parametrize("prefetch", [1, 5])
async def test_iteration_goes_on_after_a_timeout(queue, prefetch):
    async with queue.consume(prefetch=prefetch) as consumer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.1)
        await queue.send("x")

        async with asyncio.timeout(10):
            message = await anext(consumer)
        await message.ack()
    assert message.text == "x"


@pytest.mark.parametrize("prefetch", [1, 5])
async def test_wait_that_follows_a_timeout_at_once_is_not_ended_by_the_rest(queue, prefetch):
    async with queue.consume(prefetch=prefetch) as consumer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.01)
        waiting = asyncio.create_task(anext(consumer))
        await asyncio.sleep(2 * IDLE_S)
        await queue.send("x")

        async with asyncio.timeout(10):
            assert (await waiting).text == "x"


async def rested(queue):
    """Wait until *queue* has no consumer and no lease, and return how many messages are ready.

    A consumer that ends says so while its messages are on their way back.
    """
    async with asyncio.timeout(10):
        while (stats := await queue.stats()).consumers or stats.leased:
            await asyncio.sleep(0.01)
    return stats.ready


@pytest.mark.parametrize("prefetch", [1, 5])
async def test_consumer_that_is_kept_after_a_timeout_takes_nothing_until_asked(queue, prefetch):
    consumer = queue.consume(prefetch=prefetch, vt=600)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(consumer), 0.1)
    await queue.send_many(["a", "b", "c"])

    assert await rested(queue) == 3
    async with asyncio.timeout(10):
        texts = {(await anext(consumer)).text for _ in range(3)}
    assert texts == {"a", "b", "c"}
    await consumer.aclose()


async def test_consumer_of_a_subscription_that_is_kept_after_a_timeout_rests(rsmq):
    topic = rsmq.topic("news")
    subscription = await topic.subscribe("a")
    with pytest.raises(TimeoutError) as kept:
        await asyncio.wait_for(anext(subscription.consume(prefetch=5, vt=600)), 0.1)
    await topic.publish("x")

    assert await rested(subscription) == 1
    assert kept.value.__traceback__ is not None


async def test_waiting_goes_on_while_another_call_is_cancelled(queue):
    async with queue.consume(prefetch=5) as consumer:
        waiting, leaving = (asyncio.create_task(anext(consumer)) for _ in range(2))
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.sleep(2 * IDLE_S)
        await queue.send("x")

        async with asyncio.timeout(10):
            assert (await waiting).text == "x"


async def test_consumer_goes_on_after_an_error_has_passed(rsmq, queue):
    async with queue.consume(prefetch=5) as consumer:
        await rsmq.delete_queue("jobs")
        with pytest.raises(QueueNotFound):
            await anext(consumer)
        await rsmq.create_queue("jobs")
        await queue.send("x")

        async with asyncio.timeout(10):
            assert (await anext(consumer)).text == "x"


async def test_iteration_cancelled_twice_gives_back_what_was_prefetched(queue):
    await queue.send_many([str(i) for i in range(10)])
    started = asyncio.Event()

    async def iterate():
        async with queue.consume(prefetch=10, vt=600) as consumer:
            async for message in consumer:
                await message.ack()
                started.set()
                await asyncio.sleep(60)

    task = asyncio.create_task(iterate())
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(10):
        while (await queue.attributes()).leased:
            await asyncio.sleep(0.01)

    assert (await queue.attributes()).ready == 9


async def test_wrong_arguments_are_named(rsmq, queue):
    with pytest.raises(InvalidValue, match="prefetch must be between 1 and"):
        queue.consume(prefetch=0)
    with pytest.raises(InvalidValue, match="vt of a consumer must be more than 0"):
        queue.consume(vt=0)
    with pytest.raises(InvalidValue, match="retry must be a Retry, not 5"):
        rsmq.queue("jobs", retry=5)
    with pytest.raises(InvalidValue, match="takes deliveries of that queue"):
        await queue.ack_many(["x"])

    async def listener(_): ...

    class Listener:
        async def __call__(self, _): ...

    for refused in (listener, Listener()):
        with pytest.raises(InvalidValue, match="is never awaited"):
            rsmq.dead_letters.listen(refused)


async def test_name_without_room_for_that_of_a_dead_letter_queue(rsmq):
    """Such a queue has none until one is named; all that needs none works."""
    name = "n" * 160
    queue = await rsmq.create_queue(name)
    await queue.send("a")
    stats = await queue.stats()
    assert (stats.attributes.msgs, stats.dead) == (1, 0)
    message = await queue.receive()
    for needs_one in (message.reject, queue.redrive):
        with pytest.raises(InvalidValue, match="pass dead_letter= to name another"):
            await needs_one()
    with pytest.raises(InvalidValue, match="pass dead_letter= to name another"):
        rsmq.queue(name, retry=Retry(3))
    await message.release()
    named = rsmq.queue(name, dead_letter="graves", retry=Retry(3))
    message = await named.receive()
    await message.reject()
    assert (await rsmq.queue("graves").attributes()).msgs == 1
