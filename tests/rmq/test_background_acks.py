"""``RmqQueue.consume(settle="background")``: blocks that end without waiting for their acks."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from aiorsmq_ng import InvalidValue, LeaseLost, Unavailable
from aiorsmq_ng._protocol.operations.rmq import messages
from aiorsmq_ng.rmq import Rmq, prefetch
from aiorsmq_ng.rmq.queue import keys_of
from aiorsmq_ng.testing import FaultProxy, operation

from ..support.deadlines import PATIENT, hurrying
from ..support.waiting import until
from .test_client import READY, REJECTED, listed


@pytest.fixture
async def proxy(url):
    async with FaultProxy(url) as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy):
    """A client behind the proxy; the server knows the script of acks."""
    async with Rmq(proxy.url, tag="svc", options=PATIENT) as client:
        warm = await client.queue("warm")
        await warm.publish("a")
        async with warm.consume() as consumer, await anext(consumer):
            pass
        yield client


async def handled(consumer, count):
    """Handle *count* deliveries, each in a block; return their texts."""
    texts = []
    while len(texts) < count:
        async with await anext(consumer) as delivery:
            texts.append(delivery.text)
    return texts


async def unacked(rmq, redis):
    """Return what the connection of *rmq* holds, oldest first."""
    return await listed(redis, f"rmq::connection::{rmq.connection}::queue::[things]::unacked")


@pytest.mark.parametrize("prefetch", [1, 10, 1000])
async def test_every_message_is_handled_once_and_gone_after_aclose(rmq, redis, prefetch):
    things = await rmq.queue("things")
    texts = [str(n) for n in range(300)]
    await things.publish(*texts, "left")

    async with things.consume(prefetch=prefetch, settle="background") as consumer:
        assert await handled(consumer, 300) == texts

    assert await unacked(rmq, redis) == []
    assert await listed(redis, READY) == [b"left"]


async def test_acks_of_one_tick_share_a_call(rmq, redis):
    things = await rmq.queue("things")
    await things.publish(*(["x"] * 60))
    async with things.consume(prefetch=60, settle="background") as consumer:
        held = [await anext(consumer) for _ in range(60)]
        await redis.config_resetstat()
        for delivery in held:
            async with delivery:
                pass
        await consumer.aclose()

    calls = await redis.info("commandstats")
    # The script looks at the list once, and removes each payload.
    assert calls["cmdstat_llen"]["calls"] == 1
    assert calls["cmdstat_lrem"]["calls"] == 60


async def test_a_block_that_raises_is_rejected_and_others_are_acked(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("a", "bad", "c")
    async with things.consume(prefetch=3, settle="background") as consumer:
        await handled(consumer, 1)
        with pytest.raises(ValueError, match="bad"):
            async with await anext(consumer):
                raise ValueError("bad")
        async with await anext(consumer) as last:
            await last.release()  # what the block has settled is left as it is

    assert await listed(redis, REJECTED) == [b"bad"]
    assert await listed(redis, READY) == [b"c"]


async def test_a_lost_delivery_is_an_error_of_the_next_step_and_the_loop_goes_on(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("lost", "kept")
    async with things.consume(prefetch=2, settle="background") as consumer:
        async with await anext(consumer) as lost:
            await things.return_unacked(rmq.connection, 1)  # a cleaner takes the oldest
        await until(lambda: lost.lease_lost)
        with pytest.raises(LeaseLost, match=lost.id):
            await anext(consumer)
        # It is in the queue again, for any consumer.
        assert await handled(consumer, 2) == ["kept", "lost"]

    assert await listed(redis, READY) == []


async def test_errors_that_no_step_has_raised_are_raised_by_aclose(rmq):
    things = await rmq.queue("things")
    await things.publish("a", "b")
    consumer = things.consume(prefetch=2, settle="background")
    with pytest.raises(LeaseLost) as caught:
        async with consumer, await anext(consumer), await anext(consumer):
            await things.return_unacked(rmq.connection)

    assert caught.value.__notes__[0].startswith("1 more: ")
    await consumer.aclose()  # raised once


async def test_deliveries_are_in_hand_until_their_acks_are_answered(behind, proxy):
    things = await behind.queue("things")
    await things.publish("a", "b", "c")
    async with things.consume(prefetch=2, settle="background") as consumer:
        ack = proxy.hold_request(operation("rmq_settle"))
        await handled(consumer, 2)
        await ack.caught()
        third = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0.1)
        assert not third.done()
        await ack.release()
        assert (await third).text == "c"


async def test_ack_whose_reply_is_lost_settles_one_of_two_equal_payloads(behind, proxy, redis):
    things = await behind.queue("things")
    await things.publish("same", "same")
    async with things.consume(settle="background") as consumer:
        second = [await anext(consumer), await anext(consumer)][1]
        lost = proxy.drop_reply(operation("rmq_settle"))
        async with second:
            pass
        await lost.done()
        await until(lambda: not consumer._prefetch.acks._open)
        assert await unacked(behind, redis) == [b"same"]


async def test_ack_that_fails_is_an_error_and_its_message_is_delivered_again(
    behind, proxy, redis, monkeypatch
):
    monkeypatch.setattr(prefetch, "_WAIT_S", 3600)  # no look at the list when nothing arrives
    things = await behind.queue("things")
    await things.publish("a")
    async with things.consume(prefetch=1, settle="background") as consumer:
        with hurrying(behind):
            async with await anext(consumer) as first:
                await proxy.refuse()
            await until(lambda: not first.settled)
        await proxy.resume()
        with pytest.raises(Unavailable):
            await anext(consumer)
        async with asyncio.timeout(30):
            assert await handled(consumer, 1) == ["a"]

    assert await unacked(behind, redis) == await listed(redis, READY) == []


async def test_closing_the_client_waits_for_acks_before_it_gives_back(behind, proxy, redis):
    things = await behind.queue("things")
    await things.publish("a", "b")
    consumer = things.consume(settle="background")
    ack = proxy.hold_request(operation("rmq_settle"))
    async with await anext(consumer):
        pass
    closing = asyncio.ensure_future(behind.aclose())
    await ack.caught()
    await asyncio.sleep(0.1)
    assert b"a" not in await listed(redis, READY)
    await ack.release()
    await closing

    assert await listed(redis, READY) == [b"b"]


async def test_a_block_that_ends_after_its_consumer_waits_for_its_ack(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("a", "b")
    consumer = things.consume(settle="background")
    async with await anext(consumer):
        await consumer.aclose()
    assert await unacked(rmq, redis) == []
    assert await listed(redis, READY) == [b"b"]


CARELESS = """
import asyncio, sys
from aiorsmq_ng.rmq import Rmq

async def main():
    things = await Rmq(sys.argv[1], tag="svc").queue("things")
    await things.publish("a", "b", "c")
    async with await anext(things.consume(settle="background")) as delivery:
        print(delivery.text)

asyncio.run(main())
"""


async def test_program_that_ends_without_closing_acks_what_it_has_done(url, redis):
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CARELESS, url, stdout=PIPE, stderr=PIPE
    )
    assert await program.communicate() == (b"a\n", b"")
    assert await listed(redis, READY) == [b"b", b"c"]


async def test_what_is_settled_while_the_list_is_read_is_no_stray(rmq, monkeypatch):
    things = await rmq.queue("things")
    await things.publish("a", "b")
    connection = await rmq._connections.present()
    held = await connection.hold(keys_of(things))
    assert await held.take(2) == [b"a", b"b"]
    run = rmq._transport.run

    async def run_and_ack(asked):
        found = await run(asked)
        if asked.kind is messages.RMQ_UNACKED:
            await run(messages.ack(held.keys, connection.name, [b"a"]))
            held.settled([b"a"])
        return found

    monkeypatch.setattr(rmq._transport, "run", run_and_ack)
    held.doubt()
    assert await held.take(1) == []


async def test_another_word_is_refused(rmq):
    with pytest.raises(InvalidValue, match="background"):
        rmq.queue("things").consume(settle="later")
