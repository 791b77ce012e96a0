"""Cancelling at any moment: connections stay in step, messages are visible again at once."""

import asyncio
import random

import pytest

from aiorsmq_ng import RSMQ, Options


async def conserved(queue, raw, ns):
    """Wait until nothing is leased, then check that keys agree with each other."""
    for _ in range(300):
        attributes = await queue.attributes()
        if attributes.leased == 0:
            break
        await asyncio.sleep(0.01)
    ids = set(await raw.zrange(f"{ns}:jobs", 0, -1))
    fields = set(await raw.hkeys(f"{ns}:jobs:Q"))
    known = {b"vt", b"delay", b"maxsize", b"created", b"modified", b"totalsent", b"totalrecv"}
    bodies = {f for f in fields - known if b":" not in f}
    extras = {f.rsplit(b":", 1)[0] for f in fields - known if b":" in f}
    assert bodies == ids
    assert extras <= ids
    return attributes


@pytest.mark.parametrize("seed", range(3))
async def test_storm_of_cancellations_loses_nothing(server_url, ns, raw, seed):
    """1000 tasks that send, receive, wait and ack are cancelled at random moments, some twice."""
    rng = random.Random(seed)
    async with RSMQ(server_url, ns=ns, options=Options(max_connections=4)) as rsmq:
        queue = await rsmq.create_queue("jobs", vt=600)
        sent, handled = set(), set()

        async def send(i):
            await queue.send(f"{i}")
            sent.add(f"{i}")

        async def receive(_):
            message = await queue.receive(wait=rng.choice([0, 0, 0.01, 5]))
            if message is not None:
                async with message:
                    await asyncio.sleep(0)
                    handled.add(message.text)

        tasks = []
        for i in range(1000):
            tasks.append(asyncio.create_task(rng.choice([send, receive])(i)))
            if rng.random() < 0.6:
                victim = rng.choice(tasks)
                victim.cancel()
                if rng.random() < 0.3:
                    asyncio.get_running_loop().call_soon(victim.cancel)
            if i % 7 == 0:
                await asyncio.sleep(rng.choice([0, 0, 0.001, 0.003]))
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        attributes = await conserved(queue, raw, ns)
        left = {m.text for m in await queue.receive_many(2000)}
        assert attributes.leased == 0
        assert sent <= handled | left
        assert not handled & left
        for i in range(50):
            assert (await queue.attributes()).vt == 600, i


@pytest.mark.parametrize("how", ["cancel", "timeout", "task group"])
async def test_receive_cut_off_while_redis_executes_it_gives_the_message_back(
    rsmq, queue, raw, ns, how
):
    await queue.send_many([str(i) for i in range(5)])
    await raw.execute_command("CLIENT", "PAUSE", "150", "ALL")

    if how == "cancel":
        tasks = [asyncio.create_task(queue.receive(vt=600)) for _ in range(5)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    elif how == "timeout":
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(queue.receive(vt=600), 0.02)
    else:

        async def fail():
            await asyncio.sleep(0.05)
            raise KeyError

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(queue.receive(vt=600))
                group.create_task(fail())

    attributes = await conserved(queue, raw, ns)
    assert (attributes.ready, attributes.leased) == (5, 0)


async def test_waiting_receives_cancelled_as_messages_arrive_give_them_back(queue, raw, ns):
    rng = random.Random(7)
    for _ in range(20):
        waiting = [asyncio.create_task(queue.receive(vt=600, wait=30)) for _ in range(10)]
        await asyncio.sleep(0.002)
        sending = asyncio.create_task(queue.send_many(["x"] * 10))
        await asyncio.sleep(rng.uniform(0, 0.004))
        for task in waiting:
            task.cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        await sending
        for message in results:
            if not isinstance(message, BaseException):
                await message.release()
        attributes = await conserved(queue, raw, ns)
        assert (attributes.msgs, attributes.leased) == (10, 0)
        # Also what a receive without waiters may be about to give back.
        await queue.purge(leased=True)


async def test_client_closed_under_load_leaves_nothing_leased(server_url, ns, raw):
    rsmq = await RSMQ(server_url, ns=ns).open()
    queue = await rsmq.create_queue("jobs", vt=600)
    await queue.send_many([str(i) for i in range(100)])
    tasks = [asyncio.create_task(queue.receive()) for _ in range(50)]
    waiting = [asyncio.create_task(rsmq.receive("jobs", wait=30)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in [*tasks, *waiting]:
        task.cancel()
    await asyncio.gather(*tasks, *waiting, return_exceptions=True)
    await rsmq.aclose()

    async with RSMQ(server_url, ns=ns) as other:
        attributes = await conserved(other.queue("jobs"), raw, ns)
    assert (attributes.ready, attributes.leased) == (100, 0)
