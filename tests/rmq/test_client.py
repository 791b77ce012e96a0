"""Publishing, consuming and settling on the keys of rmq."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from aiorsmq_ng import ClientClosed, InvalidValue, LeaseLost, QueueCorrupt, QueueNotFound
from aiorsmq_ng.rmq import Rmq

from ..support.deadlines import PATIENT
from ..support.waiting import until

READY = "rmq::queue::[things]::ready"
REJECTED = "rmq::queue::[things]::rejected"


async def listed(redis, key):
    """Return a list, the element that is taken next first."""
    return [*reversed(await redis.lrange(key, 0, -1))]


async def taken(queue, count, **how):
    """Return *count* deliveries, and the consumer that holds them."""
    consumer = queue.consume(**how)
    return [await anext(consumer) for _ in range(count)], consumer


async def test_messages_are_taken_in_the_order_of_their_publication(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("a", b"b", {"n": 1})

    assert await listed(redis, READY) == [b"a", b"b", b'{"n":1}']
    got = []
    async with things.consume(prefetch=2) as deliveries:
        async for delivery in deliveries:
            async with delivery:
                got.append(delivery.body)
            if len(got) == 3:
                break
    assert got == [b"a", b"b", b'{"n":1}']
    assert await redis.exists(READY) == 0


async def test_a_publisher_leaves_nothing_but_the_messages(url, redis):
    async with Rmq(url, tag="svc") as rmq:
        await (await rmq.queue("things")).publish("a")

    assert sorted(await redis.keys("*")) == [READY.encode(), b"rmq::queues"]
    assert await redis.smembers("rmq::queues") == {b"things"}


async def test_a_handle_that_was_not_awaited_lists_its_queue_when_it_publishes(rmq, redis):
    await rmq.queue("things").publish("a")

    assert await redis.smembers("rmq::queues") == {b"things"}


async def test_a_consumer_has_the_keys_of_a_connection_of_rmq(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("a", "b")
    [first], consumer = await taken(things, 1)

    name = rmq.connection
    assert name.startswith("svc-")
    assert len(name) == len("svc-") + 6
    assert await redis.smembers("rmq::connections") == {name.encode()}
    assert await redis.get(f"rmq::connection::{name}::heartbeat") == b"1"
    assert 50 < await redis.ttl(f"rmq::connection::{name}::heartbeat") <= 60
    assert await redis.smembers(f"rmq::connection::{name}::queues") == {b"things"}
    consumers = await redis.smembers(f"rmq::connection::{name}::queue::[things]::consumers")
    assert [c.startswith(b"svc-") for c in consumers] == [True]
    unacked = f"rmq::connection::{name}::queue::[things]::unacked"
    assert await redis.lrange(unacked, 0, -1) == [b"b", b"a"]
    await first.ack()
    assert await redis.lrange(unacked, 0, -1) == [b"b"]
    await consumer.aclose()
    assert await listed(redis, READY) == [b"b"]


@pytest.mark.parametrize(
    ("verb", "ready", "rejected"),
    [
        ("ack", [b"b"], []),
        ("reject", [b"b"], [b"a"]),
        ("push", [b"b"], [b"a"]),
        ("release", [b"a", b"b"], []),
    ],
)
async def test_a_delivery_is_settled_once(rmq, redis, verb, ready, rejected):
    things = await rmq.queue("things")
    await things.publish("a", "b")
    [first], consumer = await taken(things, 1, prefetch=1)

    await getattr(first, verb)()

    with pytest.raises(InvalidValue, match="already"):
        await first.ack()
    await consumer.aclose()
    assert (await listed(redis, READY), await listed(redis, REJECTED)) == (ready, rejected)


async def test_push_moves_to_the_push_queue(rmq, redis):
    things = await rmq.queue("things", push="retry")
    await things.publish("a")
    [first], _ = await taken(things, 1)

    await first.push()

    assert await listed(redis, "rmq::queue::[retry]::ready") == [b"a"]
    assert await redis.smembers("rmq::queues") == {b"things", b"retry"}


async def test_a_block_that_raises_rejects_and_one_that_is_cancelled_gives_back(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("bad", "slow")
    [bad, slow], consumer = await taken(things, 2)

    with pytest.raises(RuntimeError):
        async with bad:
            raise RuntimeError
    with pytest.raises(asyncio.CancelledError):
        async with slow:
            raise asyncio.CancelledError

    assert await listed(redis, REJECTED) == [b"bad"]
    assert (bad.outcome, slow.outcome) == ("rejected", "released")
    await consumer.aclose()
    assert await listed(redis, READY) == [b"slow"]


@pytest.mark.parametrize("verb", ["ack", "reject", "push", "release"])
async def test_a_delivery_that_a_cleaner_moved_is_lost_and_not_doubled(rmq, redis, verb):
    things = await rmq.queue("things")
    await things.publish("a")
    [first], consumer = await taken(things, 1, prefetch=1)
    await things.return_unacked(rmq.connection)

    with pytest.raises(LeaseLost):
        await getattr(first, verb)()

    assert first.lease_lost
    await consumer.aclose()
    assert (await listed(redis, READY), await listed(redis, REJECTED)) == ([b"a"], [])


async def test_equal_payloads_are_settled_one_by_one(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("same", "same", "same")
    [one, two, three], consumer = await taken(things, 3)
    unacked = f"rmq::connection::{rmq.connection}::queue::[things]::unacked"

    await asyncio.gather(one.ack(), two.reject())

    assert await redis.lrange(unacked, 0, -1) == [b"same"]
    await three.ack()
    assert await redis.exists(unacked) == 0
    await consumer.aclose()


async def test_prefetch_limits_what_is_in_hand(rmq, redis):
    things = await rmq.queue("things")
    await things.publish(*"abcdef")
    [a, b], consumer = await taken(things, 2, prefetch=2)
    assert await listed(redis, READY) == [b"c", b"d", b"e", b"f"]

    waiting = asyncio.ensure_future(anext(consumer))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await a.ack()
    assert (await waiting).body == b"c"
    await b.ack()
    await consumer.aclose()


async def test_a_message_that_arrives_wakes_every_consumer_that_waits_and_one_takes_it(rmq, url):
    things = await rmq.queue("things")
    async with Rmq(url, tag="other") as other:
        one = asyncio.ensure_future(anext(things.consume()))
        two = asyncio.ensure_future(anext(other.queue("things").consume()))
        await asyncio.sleep(0.2)
        await things.publish("a")
        done, waiting = await asyncio.wait([one, two], return_when="FIRST_COMPLETED", timeout=20)
        assert len(done) == 1
        await things.publish("b")
        done, _ = await asyncio.wait([one, two], timeout=20)
        assert sorted(task.result().body for task in done) == [b"a", b"b"]
        await asyncio.gather(*(task.result().ack() for task in done))


async def test_a_wait_that_is_cancelled_takes_nothing_and_the_iteration_goes_on(rmq, redis):
    things = await rmq.queue("things")
    consumer = things.consume()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.05)
    await things.publish("a")
    assert (await anext(consumer)).body == b"a"
    await consumer.aclose()


async def test_closing_gives_everything_back_in_order_and_leaves_no_names(url, redis):
    async with Rmq(url, tag="svc") as rmq:
        things = await rmq.queue("things")
        await things.publish(*"abcdefg")
        [a, b, c], consumer = await taken(things, 3, prefetch=5)
        await b.ack()
        name = rmq.connection

    assert await listed(redis, READY) == [b"a", b"c", b"d", b"e", b"f", b"g"]
    heartbeat = f"rmq::connection::{name}::heartbeat".encode()
    assert sorted(await redis.keys("*")) == [heartbeat, READY.encode(), b"rmq::queues"]
    with pytest.raises(ClientClosed):
        await a.ack()
    with pytest.raises((ClientClosed, StopAsyncIteration)):
        await anext(consumer)


async def test_an_iteration_that_is_left_gives_back_what_was_taken_ahead(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("a", "b", "c")
    async for delivery in things:
        await delivery.ack()
        break

    async def is_back():
        return await listed(redis, READY) == [b"b", b"c"]

    await until(is_back)


CARELESS = """
import asyncio, sys
from aiorsmq_ng.rmq import Rmq

async def main():
    things = await Rmq(sys.argv[1], tag="svc").queue("things")
    await things.publish("a", "b", "c")
    print((await anext(things.consume())).text)

asyncio.run(main())
"""


async def test_program_that_ends_without_closing_gives_everything_back(url, redis):
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CARELESS, url, stdout=PIPE, stderr=PIPE
    )
    said, errors = await program.communicate()

    assert (said, errors) == (b"a\n", b"")
    assert await listed(redis, READY) == [b"a", b"b", b"c"]


async def test_batches_are_full_or_what_came_in_time_and_are_acked_together(rmq, redis):
    things = await rmq.queue("things")
    await things.publish(*"abcde")
    sizes = []
    async with things.consume_batches(size=3, wait=0.05) as batches:
        async for batch in batches:
            async with batch:
                sizes.append(len(batch))
            if sum(sizes) == 5:
                break
    assert sizes == [3, 2]
    assert (await things.lengths()) == (0, 0)


async def test_outcomes_of_a_batch_are_one_by_one_if_wanted(rmq, redis):
    things = await rmq.queue("things")
    await things.publish(*"abcd")
    batch = await anext(things.consume_batches(size=4, wait=1))
    await batch[1].reject()
    await things.return_unacked(rmq.connection, 1)  # a cleaner takes the oldest

    lost = await batch.ack()

    assert [error.id for error in lost] == [batch[0].id]
    assert [d.outcome for d in batch] == [None, "rejected", "acked", "acked"]
    assert await listed(redis, REJECTED) == [b"b"]


async def test_headers_reach_the_consumer_and_are_written_as_go_does(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("a", headers={"traceparent": "00-1", "x-many": ["1", "2\n"]})

    assert await listed(redis, READY) == [
        b'\xff\x00\xbe\xbeJ{"Traceparent":["00-1"],"X-Many":["1","2\\n"]}\na'
    ]
    [first], _ = await taken(things, 1)
    assert (first.body, first.header("TraceParent")) == (b"a", "00-1")
    assert first.headers == {"Traceparent": ["00-1"], "X-Many": ["1", "2\n"]}
    assert first.header("missing") is None
    await first.ack()


@pytest.mark.parametrize("headers", [{"n": 5}, {"n": None}, {"n": [5]}, {"n": b"x"}, {5: "n"}])
async def test_headers_that_are_no_texts_are_refused(rmq, headers):
    with pytest.raises(InvalidValue, match="must be a text, or a list of texts"):
        await rmq.queue("things").publish("a", headers=headers)


async def test_a_body_that_looks_like_a_header_arrives_as_it_is(rmq):
    body = b"\xff\x00\xbe\xbeJ not a header"
    things = await rmq.queue("things")
    await things.publish(body)
    [first], _ = await taken(things, 1)
    assert (first.body, first.headers) == (body, {})
    await first.ack()


@pytest.mark.parametrize(
    "payload", [b"\xff\x00\xbe\xbeJ{}", b"\xff\x00\xbe\xbeJ[]\na", b"\xff\x00\xbe\xbeJ\xff\na"]
)
async def test_a_payload_with_a_bad_header_is_rejected_and_others_go_on(rmq, redis, payload):
    things = await rmq.queue("things")
    await redis.lpush(READY, payload, b"good")
    [good], _ = await taken(things, 1)
    assert good.body == b"good"
    await good.ack()

    async def is_rejected():
        return await listed(redis, REJECTED) == [payload]

    await until(is_rejected)


async def test_a_key_of_another_type_is_said(rmq, redis):
    await redis.set(READY, "no list")
    with pytest.raises(QueueCorrupt, match="rmq queue"):
        await rmq.queue("things").publish("a")
    with pytest.raises(QueueCorrupt):
        await anext(rmq.queue("things").consume())


async def test_names_that_cannot_be_are_refused():
    for name in ("", None, "x" * 1001, "\ud800"):
        with pytest.raises(InvalidValue):
            Rmq("redis://x").queue(name)
    with pytest.raises(InvalidValue, match="brace"):
        Rmq("redis://x", cluster=True).queue("a}b")
    with pytest.raises(InvalidValue, match="brace"):
        Rmq("redis://x", cluster=True, tag="{a}")
    with pytest.raises(InvalidValue, match="own push queue"):
        Rmq("redis://x").queue("a", push="a")
    with pytest.raises(InvalidValue, match="broker"):
        Rmq("grpc://localhost")
    with pytest.raises(InvalidValue, match="cluster"):
        Rmq("redis+cluster://x", cluster=False)
    for wrong in ({"size": 0, "wait": 1}, {"size": 4, "wait": 1, "prefetch": 3}):
        with pytest.raises(InvalidValue):
            Rmq("redis://x").queue("a").consume_batches(**wrong)


async def test_return_purge_drain_and_destroy(rmq, redis):
    things = await rmq.queue("things")
    await things.publish(*"abcdef")
    assert await things.drain(1) == [b"a"]
    [b, c], consumer = await taken(things, 2, prefetch=2)
    await b.reject()
    await c.reject()
    await consumer.aclose()

    assert await things.return_rejected(1) == 1
    assert await listed(redis, READY) == [b"d", b"e", b"f", b"b"]
    assert await things.lengths() == (4, 1)
    assert await things.destroy() == (4, 1)
    assert await rmq.list_queues() == []
    with pytest.raises(QueueNotFound):
        await things.destroy()


async def test_memory_url_works_without_a_server():
    async with Rmq("memory://rmq-test") as rmq:
        things = await rmq.queue("things")
        await things.publish("a", headers={"a": "b"})
        [first], consumer = await taken(things, 1)
        await first.ack()
        await consumer.aclose()
        assert await things.lengths() == (0, 0)


async def test_options_of_the_library_hold(url):
    async with Rmq(url, options=PATIENT) as rmq:
        assert rmq.server_status.last_reply is not None
        assert "password" not in repr(rmq)


@pytest.mark.parametrize("verb", ["ack", "reject", "push"])
async def test_settlement_whose_caller_is_cancelled_goes_on_and_makes_room(
    rmq_server, rmq, redis, verb
):
    """Each delivery counts for the prefetch until it is settled."""
    things = await rmq.queue("things", push="retry")
    await things.publish("a", "b")
    async with things.consume(prefetch=1) as deliveries:
        first = await anext(deliveries)
        rmq_server.pause()  # no reply comes before the caller is cancelled
        try:
            settling = asyncio.create_task(getattr(first, verb)())
            await asyncio.sleep(0)
            settling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await settling
        finally:
            rmq_server.resume()
        second = await asyncio.wait_for(anext(deliveries), 30)
        assert (second.body, first.settled) == (b"b", True)
        await second.ack()
    retry = await listed(redis, "rmq::queue::[retry]::ready")
    moved = {"ack": ([], []), "reject": ([b"a"], []), "push": ([], [b"a"])}
    assert (await listed(redis, REJECTED), retry) == moved[verb]
    assert await listed(redis, READY) == []


async def test_settlement_that_fails_after_its_caller_is_cancelled_is_delivered_again(
    rmq_server, rmq, redis
):
    things = await rmq.queue("things")
    await things.publish("a")
    await redis.hset(REJECTED, "not", "of rmq")
    async with things.consume(prefetch=1) as deliveries:
        first = await anext(deliveries)
        rmq_server.pause()
        try:
            settling = asyncio.create_task(first.reject())
            await asyncio.sleep(0)
            settling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await settling
        finally:
            rmq_server.resume()
        again = await asyncio.wait_for(anext(deliveries), 30)
        assert again.body == b"a"
        await again.ack()
    assert await listed(redis, READY) == []
