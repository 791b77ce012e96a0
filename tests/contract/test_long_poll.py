"""Waiting for messages: never a busy loop, never a lost message, few commands."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, LeaseLost, Options, Queue, QueueNotFound

from ..support.counting import script_calls


async def test_wait_ends_with_nothing_when_time_is_up(queue):
    loop = asyncio.get_running_loop()
    started = loop.time()

    assert await queue.receive(wait=0.3) is None
    assert loop.time() - started >= 0.3


async def test_wait_is_over_as_soon_as_a_message_is_sent(queue):
    waiting = asyncio.create_task(queue.receive(wait=60))
    await asyncio.sleep(0.2)
    await queue.send("x")

    async with asyncio.timeout(5):
        assert (await waiting).text == "x"


async def test_wait_sees_a_message_sent_by_another_client_with_or_without_realtime(
    server_url, ns, queue
):
    for realtime in (True, False):
        async with RSMQ(server_url, ns=ns, realtime=realtime) as other:
            waiting = asyncio.create_task(queue.receive(wait=60))
            await asyncio.sleep(0.2)
            await other.queue("jobs").send("x")
            async with asyncio.timeout(5):
                message = await waiting
            assert message.text == "x"
            await message.ack()


async def test_wait_sees_what_a_silent_foreign_sender_stored(server_url, ns, raw):
    options = Options(poll_base=0.02, poll_cap=0.1)
    async with RSMQ(server_url, ns=ns, options=options) as rsmq:
        queue = await rsmq.create_queue("jobs")
        waiting = asyncio.create_task(queue.receive(wait=60))
        await asyncio.sleep(0.3)
        await raw.hset(f"{ns}:jobs:Q", "g" * 32, "silent")
        await raw.zadd(f"{ns}:jobs", {"g" * 32: 1})

        async with asyncio.timeout(5):
            assert (await waiting).text == "silent"


async def test_wait_ends_when_a_delayed_message_becomes_visible(server_url, ns, raw):
    """Nothing is published then; the empty receive told when to look again."""
    options = Options(poll_base=30, poll_cap=30)
    async with RSMQ(server_url, ns=ns, options=options) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("delayed", delay=0.5)
        before = await script_calls(raw)

        async with asyncio.timeout(10):
            assert (await queue.receive(wait=60)).text == "delayed"
        assert await script_calls(raw) - before <= 5


async def test_wait_ends_when_a_lease_runs_out(server_url, ns):
    async with RSMQ(server_url, ns=ns, options=Options(poll_base=30, poll_cap=30)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        await queue.receive(vt=0.5)

        async with asyncio.timeout(10):
            assert (await queue.receive(wait=60)).rc == 2


async def test_wait_ends_when_a_message_is_released(server_url, ns):
    async with RSMQ(server_url, ns=ns, options=Options(poll_base=30, poll_cap=30)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        held = await queue.receive(vt=600)
        waiting = asyncio.create_task(queue.receive(wait=60))
        await asyncio.sleep(0.2)
        await held.release()

        async with asyncio.timeout(10):
            assert (await waiting).rc == 2


async def test_wait_on_a_queue_that_is_deleted_says_so(server_url, ns):
    async with RSMQ(server_url, ns=ns, options=Options(poll_base=0.05, poll_cap=0.1)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        waiting = asyncio.create_task(queue.receive(wait=60))
        await asyncio.sleep(0.1)
        await rsmq.delete_queue("jobs")

        with pytest.raises(QueueNotFound):
            await waiting


async def test_burst_reaches_all_waiters(queue):
    waiting = [asyncio.create_task(queue.receive(wait=60)) for _ in range(150)]
    await asyncio.sleep(0.2)
    await queue.send_many([str(i) for i in range(150)])

    async with asyncio.timeout(10):
        received = await asyncio.gather(*waiting)
    assert sorted(int(m.text) for m in received) == list(range(150))


async def test_waiters_with_wishes_of_their_own_get_them(queue):
    one = asyncio.create_task(queue.receive_many(3, vt=100, wait=60))
    await asyncio.sleep(0.05)
    two = asyncio.create_task(queue.receive_many(2, vt=200, wait=60))
    await asyncio.sleep(0.2)
    await queue.send_many([str(i) for i in range(5)])

    async with asyncio.timeout(5):
        first, second = await one, await two
    assert ([m.text for m in first], first[0].lease.vt) == (["0", "1", "2"], 100)
    assert ([m.text for m in second], second[0].lease.vt) == (["3", "4"], 200)


async def test_wait_that_is_cancelled_takes_no_message_with_it(queue):
    for _ in range(50):
        waiting = asyncio.create_task(queue.receive(wait=60))
        sending = asyncio.create_task(queue.send("x"))
        await asyncio.sleep(0.001)
        waiting.cancel()
        try:
            message = await waiting
        except asyncio.CancelledError:
            message = None
        await sending
        if message is None:
            async with asyncio.timeout(5):
                message = await queue.receive(wait=5)
        await message.ack()

    assert (await queue.attributes()).msgs == 0


async def test_closing_sends_waiters_home(server_url, ns):
    rsmq = await RSMQ(server_url, ns=ns).open()
    queue = await rsmq.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=60))
    await asyncio.sleep(0.1)
    await rsmq.aclose()

    with pytest.raises(Exception, match="closed"):
        await waiting


async def test_watch_names_a_queue_when_something_arrives(rsmq: RSMQ, queue: Queue):
    other = await rsmq.create_queue("other")
    watching = rsmq.watch(queue, "other")
    assert await anext(watching) == {"jobs", "other"}
    seen: set[str] = set()
    while seen != {"jobs"}:  # each is named once more when its subscription stands
        await queue.send("x")
        seen = await anext(watching)
    sent = 0
    while seen != {"other"}:  # a late wake-up of the first queue may come with the first ones
        await other.send("y")
        sent += 1
        seen = await anext(watching)
    await watching.aclose()

    assert (await other.attributes()).ready == sent


async def test_watch_ends_with_its_client(server_url, ns):
    async with RSMQ(server_url, ns=ns) as client:
        watching = client.watch("jobs")
        assert await anext(watching) == {"jobs"}
        rest = asyncio.create_task(_all(watching))
    async with asyncio.timeout(10):
        await rest
        assert [names async for names in watching] == []


async def _all(watching):
    return [names async for names in watching]


async def test_receive_now_tells_when_the_next_message_is_due(rsmq: RSMQ, queue: Queue):
    assert await rsmq.gateway.receive_now([queue], 5) == ([], None)
    await queue.send("later", delay=60)

    nothing, due = await rsmq.gateway.receive_now([queue], 5)
    assert nothing == []
    assert 50 < due <= 60
    await queue.send("now")
    (delivery,), due = await rsmq.gateway.receive_now([queue], 5)
    assert (delivery.text, due) == ("now", None)


async def test_a_delivery_is_settled_by_its_receipt_alone(rsmq: RSMQ, queue: Queue):
    await queue.send("x")
    received = await queue.receive()

    await rsmq.queue("jobs").delivery(received.receipt).ack()

    assert (await queue.attributes()).msgs == 0
    with pytest.raises(LeaseLost):
        await received.ack()
