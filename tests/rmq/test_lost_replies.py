"""Replies that are lost: publications, settlements and takes."""

from __future__ import annotations

import asyncio

import pytest

from aiorsmq_ng.rmq import Rmq, prefetch
from aiorsmq_ng.testing import FaultProxy, operation

from ..support.deadlines import PATIENT
from .test_client import READY, listed


@pytest.fixture
async def proxy(url):
    async with FaultProxy(url) as proxy:
        yield proxy


@pytest.fixture
async def rmq(proxy):
    async with Rmq(proxy.url, tag="svc", options=PATIENT) as client:
        # The server knows the scripts then: the reply that is lost is not that it lacks one.
        warm = await client.queue("warm")
        await warm.publish("a")
        async with warm.consume() as consumer:
            await (await anext(consumer)).reject()
        await warm.return_rejected()
        yield client


async def test_publication_whose_reply_is_lost_is_stored_once(rmq, proxy, redis):
    things = await rmq.queue("things")
    lost = proxy.drop_reply(operation("rmq_publish"))
    await things.publish("a", "b")
    await lost.done()
    assert await listed(redis, READY) == [b"a", b"b"]


async def test_ack_whose_reply_is_lost_settles_one_of_two_equal_payloads(rmq, proxy, redis):
    things = await rmq.queue("things")
    await things.publish("same", "same")
    consumer = things.consume()
    first, second = await anext(consumer), await anext(consumer)
    lost = proxy.drop_reply(operation("rmq_settle"))

    await first.ack()

    await lost.done()
    unacked = f"rmq::connection::{rmq.connection}::queue::[things]::unacked"
    assert await redis.lrange(unacked, 0, -1) == [b"same"]
    await second.ack()
    assert await redis.exists(unacked) == 0
    await consumer.aclose()


async def test_messages_of_a_take_whose_reply_is_lost_are_delivered_once(
    rmq, proxy, redis, monkeypatch
):
    monkeypatch.setattr(prefetch, "_WAIT_S", 3600)  # no look at the list when nothing arrives
    things = await rmq.queue("things")
    await things.publish("a", "b", "a")
    lost = proxy.drop_reply(operation("rmq_take"))
    async with things.consume() as consumer, asyncio.timeout(30):
        got = [await anext(consumer) for _ in range(3)]
        await lost.done()
        assert [delivery.body for delivery in got] == [b"a", b"b", b"a"]
        for delivery in got:
            await delivery.ack()
    assert await things.lengths() == (0, 0)
    stats = (await rmq.stats()).queues["things"]
    assert stats.unacked == 0


async def test_return_whose_reply_is_lost_moves_no_more_than_asked_for(rmq, proxy, redis):
    things = await rmq.queue("things")
    await redis.lpush("rmq::queue::[things]::rejected", *"abcd")
    lost = proxy.drop_reply(operation("rmq_return"))
    assert await things.return_rejected(2) == 2
    await lost.done()
    assert await listed(redis, READY) == [b"a", b"b"]
