"""Acks in the background when replies are lost, the server is away, or the program ends."""

import asyncio
import sys
from pathlib import Path

import pytest

from aiorsmq_ng import RSMQ, Options, Unavailable
from aiorsmq_ng._runtime import background_acks
from aiorsmq_ng.testing import FaultProxy

from ..support.waiting import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def proxied(server_url, ns):
    options = Options(deadline=30.0, connect_timeout=5.0)
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=options) as rsmq,
    ):
        yield proxy, await rsmq.create_queue("jobs")


async def test_ack_whose_reply_is_lost_is_repeated_and_is_no_loss(proxied):
    proxy, queue = proxied
    await queue.send_many(["a", "b", "c"])

    async with queue.consume(prefetch=3, settle="background") as consumer:
        held = [await anext(consumer) for _ in range(3)]
        proxy.drop_reply(b"EVALSHA")
        for message in held:
            async with message:
                pass

    assert (await queue.attributes()).msgs == 0
    assert all(message.settled for message in held)


async def test_acks_that_cannot_be_made_are_an_error_and_the_messages_come_again(ns, server_url):
    options = Options(deadline=0.5, connect_timeout=0.2)
    async with FaultProxy(server_url) as proxy, RSMQ(proxy.url, ns=ns, options=options) as rsmq:
        queue = await rsmq.create_queue("jobs", vt=600)
        await queue.send_many(["a", "b"])
        consumer = queue.consume(prefetch=2, settle="background")
        held = [await anext(consumer) for _ in range(2)]
        await proxy.refuse()
        await proxy.cut()
        for message in held:
            async with message:
                pass
        await until(lambda: not held[1].settled)
        await proxy.resume()

        with pytest.raises(Unavailable):
            await anext(consumer)
        await consumer.aclose()

    async with RSMQ(server_url, ns=ns) as rsmq:
        found = await rsmq.queue("jobs").attributes()
        assert found.msgs == 2


async def test_client_that_is_closed_sends_the_acks_that_were_handed_over(queue, server_url, ns):
    await queue.send_many(["a", "b", "c"])
    rsmq = await RSMQ(server_url, ns=ns).open()
    consumer = rsmq.queue("jobs").consume(prefetch=3, settle="background")
    async with await anext(consumer), await anext(consumer):
        pass

    await rsmq.aclose()

    attributes = await queue.attributes()
    assert (attributes.msgs, attributes.leased) == (1, 0)


@pytest.mark.parametrize("ending", ["end_of_main", "cancel_everything"])
async def test_program_that_ends_acks_what_it_has_done(queue, server_url, ns, ending):
    await queue.send_many([str(number) for number in range(8)])
    words = ("-m", "tests.support.abrupt_program", server_url, ns, "BlocksInBackground", ending)
    process = await asyncio.create_subprocess_exec(sys.executable, *words, "none", cwd=ROOT)
    await process.wait()

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (5, 0)


async def test_block_that_fills_the_window_waits_and_is_acked_though_cancelled(
    queue, raw, monkeypatch
):
    monkeypatch.setattr(background_acks, "WINDOW", 4)
    await queue.send_many(["x"] * 6)
    consumer = queue.consume(prefetch=6, settle="background")
    held = [await anext(consumer) for _ in range(6)]
    await raw.execute_command("CLIENT", "PAUSE", "300", "ALL")
    ended = []

    async def work():
        for message in held:
            async with message:
                pass
            ended.append(message)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.05)
    assert len(ended) == 3
    task.cancel()
    await asyncio.wait([task])

    for message in held[4:]:
        await message.release()
    await consumer.aclose()
    assert (await queue.attributes()).msgs == 2
