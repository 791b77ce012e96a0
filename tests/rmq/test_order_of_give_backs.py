"""What a consumer gives back is at the front of the ready list, in the order of publication."""

from __future__ import annotations

import asyncio

import pytest

from aiorsmq_ng import Worker
from aiorsmq_ng.rmq.connection import Held

from ..support.waiting import until
from .test_client import READY, listed

BODIES = [f"{n:02}" for n in range(40)]


async def published(rmq):
    things = await rmq.queue("things")
    await things.publish(*BODIES)
    return things


async def left(redis):
    return [body.decode() for body in await listed(redis, READY)]


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)


async def test_consumer_that_is_cancelled_inside_a_block(rmq, redis):
    things, begun = await published(rmq), asyncio.Event()

    async def consume():
        async with things.consume(prefetch=10) as deliveries:
            async for delivery in deliveries:
                async with delivery:
                    if delivery.body == b"03":
                        begun.set()
                        await asyncio.sleep(3600)

    task = asyncio.create_task(consume())
    await begun.wait()
    await cancelled(task)
    assert await left(redis) == BODIES[3:]


async def test_consumer_that_is_cancelled_inside_the_block_of_a_batch(rmq, redis):
    things, begun = await published(rmq), asyncio.Event()

    async def consume():
        async with things.consume_batches(size=5, wait=0.05) as batches:
            async for batch in batches:
                async with batch:
                    if batch[0].body == b"05":
                        begun.set()
                        await asyncio.sleep(3600)

    task = asyncio.create_task(consume())
    await begun.wait()
    await cancelled(task)
    assert await left(redis) == BODIES[5:]


async def test_take_in_flight_at_the_end_is_given_back_behind_what_was_taken_before(
    rmq, redis, monkeypatch
):
    """The reply of the second take arrives after the consumer was closed."""
    things, take = await published(rmq), Held.take
    in_flight, gate = asyncio.Event(), asyncio.Event()

    async def slow_take(held, wanted):
        payloads = await take(held, wanted)
        if payloads and payloads[0] != b"00":
            in_flight.set()
            await gate.wait()
        return payloads

    monkeypatch.setattr(Held, "take", slow_take)
    consumer = things.consume(prefetch=10)
    for _ in range(6):
        await (await anext(consumer)).ack()
    await in_flight.wait()
    closing = asyncio.create_task(consumer.aclose())
    await asyncio.sleep(0.05)
    gate.set()
    await closing
    assert await left(redis) == BODIES[6:]


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_worker_whose_handlers_are_cancelled(rmq, redis, how):
    things, begun = await published(rmq), []
    worker = Worker(concurrency=3, grace=0)

    @worker.handler(things)
    async def handle(body: str) -> None:
        begun.append(body)
        await asyncio.sleep(3600)

    task = asyncio.create_task(worker.run(signals=False))
    await until(lambda: len(begun) == 3)
    if how == "stop":
        worker.stop()
        await asyncio.wait_for(task, 30)
    else:
        await cancelled(task)

    async def all_are_back():
        return await redis.llen(READY) == len(BODIES)

    await until(all_are_back)
    assert await left(redis) == BODIES


async def test_consumer_that_goes_on_after_a_cancelled_block_gets_the_delivery_next(rmq):
    things, got = await published(rmq), []
    async with things.consume(prefetch=4) as deliveries:
        async for delivery in deliveries:
            try:
                async with asyncio.timeout(None if got else 0), delivery:
                    await asyncio.sleep(0)
                    got.append(delivery.body.decode())
            except TimeoutError:
                got.append("late")
            if len(got) == 9:
                break
    assert got == ["late", *BODIES[:8]]
