"""memory:// for users' own unit tests: the same verbs, no server."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, LeaseLost, MessageTooLong, Options, QueueNotFound


async def test_memory_runs_every_verb():
    async with RSMQ("memory://") as rsmq:
        queue = await rsmq.create_queue("jobs", maxsize=1024)
        ids = await queue.send_many(["a", "b", b"\xff"])
        with pytest.raises(MessageTooLong):
            await queue.send("x" * 2000)
        assert [m.body for m in await queue.peek()] == [b"a", b"b", b"\xff"]
        stale = await queue.receive(vt=0)
        first, second, third = await queue.receive_many(3)
        assert {m.id for m in await queue.pending()} == set(ids)
        with pytest.raises(LeaseLost):
            await stale.ack()
        await first.extend(5)
        await first.release()
        await third.release()
        await second.reject("no")
        assert await rsmq.list_queues() == ["jobs", "jobs-dead"]
        assert await rsmq.queue("jobs-dead").reason(second.id) == "no"
        assert len(await queue.pop_many(5)) == 2
        attributes = await queue.attributes()
        assert (attributes.msgs, attributes.totalsent) == (0, len(ids))
        waiting = asyncio.create_task(queue.receive(wait=10))
        await asyncio.sleep(0.05)
        await queue.send("wake up")
        async with await waiting as message:
            assert message.text == "wake up"
        assert await queue.purge() == 0
        await rsmq.delete_queue("jobs")
        with pytest.raises(QueueNotFound):
            await queue.send("x")


async def test_memory_is_shared_by_name_while_it_is_in_use():
    async with RSMQ("memory://shared") as one, RSMQ("memory://shared") as two:
        await one.create_queue("jobs")
        assert await two.list_queues() == ["jobs"]
        async with RSMQ("memory://other") as other:
            assert await other.list_queues() == []
    async with RSMQ("memory://shared") as again:
        assert await again.list_queues() == []


async def test_clients_of_one_memory_call_each_other():
    rarely = Options(poll_base=600, poll_cap=600)
    async with (
        RSMQ("memory://calls", options=rarely) as one,
        RSMQ("memory://calls", options=rarely) as two,
        RSMQ("memory://calls") as sender,
    ):
        queue = await sender.create_queue("jobs")
        waiting = [asyncio.create_task(r.queue("jobs").receive(wait=600)) for r in (one, two)]
        await asyncio.sleep(0.1)
        await queue.send("now")
        await queue.send("later", delay=0.2)
        async with asyncio.timeout(20):
            assert {(await task).text for task in waiting} == {"now", "later"}


async def test_memory_has_topics():
    async with RSMQ("memory://") as rsmq:
        topic = rsmq.topic("news")
        await topic.publish("waits")
        shared = await topic.subscribe("a")
        copy = await topic.subscribe("b", mode="broadcast", peer="1")
        await topic.publish("x")
        assert [m.text for m in await shared.observe()] == ["waits", "x"]
        assert [m.text for m in await copy.observe()] == ["x"]
        assert await topic.unsubscribe("a") == 2
        assert [s.state for s in (await topic.describe()).subscriptions] == ["left", "on"]
        assert await topic.delete()
        assert await rsmq.list_queues() == []
