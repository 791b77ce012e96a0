"""What waiting and settling cost a server, and what a lone call costs the client: all counted."""

import asyncio
from collections import Counter

import pytest

from aiorsmq_ng import RSMQ, LeaseLost, Options

from ..support.counting import script_calls


async def test_one_message_wakes_one_waiter_by_few_commands(queue, raw):
    waiting = [asyncio.create_task(queue.receive(wait=60)) for _ in range(50)]
    await asyncio.sleep(0.3)
    before = await script_calls(raw)

    await queue.send("x")
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    after = await script_calls(raw)

    assert len(done) == 1
    assert done.pop().result().text == "x"
    assert after - before <= 4
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


async def test_idle_consumers_ask_redis_hardly_anything(server_url, ns, raw):
    options = Options(poll_base=0.05, poll_cap=0.5)
    async with RSMQ(server_url, ns=ns, options=options) as rsmq:
        queue = await rsmq.create_queue("jobs")

        async def consume():
            async for message in queue:
                await message.ack()

        tasks = [asyncio.create_task(consume()) for _ in range(100)]
        await asyncio.sleep(1)
        before = await script_calls(raw)
        await asyncio.sleep(2)
        spent = await script_calls(raw) - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # One shared look per half to whole cap, not one per consumer.
    assert spent <= 10


async def test_client_has_one_wake_up_connection_for_all_queues(rsmq, raw, ns):
    queues = [await rsmq.create_queue(f"q{i}") for i in range(10)]
    waiting = [asyncio.create_task(q.receive(wait=60)) for q in queues for _ in range(3)]
    await asyncio.sleep(0.5)
    clients = [c for c in await raw.client_list() if int(c["sub"]) > 0]
    channels = {c.decode() for c in await raw.pubsub_channels(f"{ns}*")}

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len([c for c in clients if int(c["sub"]) == 20]) == 1
    own = {channel.rpartition(":")[0] for channel in channels if ":ng:wake:" in channel}
    assert own == {f"{ns}:q{i}:ng:wake" for i in range(10)}
    assert {c for c in channels if ":rt:" in c} == {f"{ns}:rt:q{i}" for i in range(10)}


@pytest.mark.parametrize("verb", ["ack", "release"])
async def test_fence_tells_receipts_apart_beyond_a_thousand_in_one_call(
    queue, raw, ns, monkeypatch, verb
):
    monkeypatch.setattr("aiorsmq_ng._transport.batching.MAX_WEIGHT", 5000)
    await queue.send_many(["x"] * 1500)
    await queue.receive_many(1000, vt=0)
    # Those beyond the first thousand have other counts than those they could be mistaken for.
    held = sorted(await queue.receive_many(1500, vt=600), key=lambda m: m.rc)
    stale = held[1200]
    await raw.hincrby(f"{ns}:jobs:Q", f"{stale.id}:rc", 1)
    before = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]

    outcomes = await asyncio.gather(*(getattr(m, verb)() for m in held), return_exceptions=True)

    calls = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"] - before
    lost = [m for m, outcome in zip(held, outcomes, strict=True) if outcome is not None]
    assert calls <= 2  # the second if the server did not have the script
    assert [type(o) for o in outcomes if o is not None] == [LeaseLost]
    assert lost == [stale]
    assert [m.id for m in await queue.pending()] == [stale.id]


@pytest.fixture
async def made(monkeypatch):
    """Count what the event loop makes from now on: tasks, timers, futures, callbacks."""
    loop, counts = asyncio.get_running_loop(), Counter()

    def count(name):
        make = getattr(loop, name)

        def counted(*given, **named):
            counts[name] += 1
            return make(*given, **named)

        monkeypatch.setattr(loop, name, counted)

    for name in ("create_task", "call_at", "create_future", "call_soon"):
        count(name)
    return counts


async def test_lone_call_makes_one_future_and_no_task_and_no_timer(queue, made):
    async def cycle():
        await queue.send("x")
        message = await queue.receive()
        await message.ack()

    for _ in range(4):  # scripts are loaded, and calls are known to be lone
        await cycle()
    made.clear()
    for _ in range(10):
        await cycle()

    assert made["create_future"] == 30
    assert made["create_task"] == 0
    assert made["call_at"] <= 1  # one for all calls in flight
    # In C a future schedules its callbacks by itself, so none is counted but what is called here.
    assert made["call_soon"] <= 30


async def test_calls_of_a_crowd_make_one_future_each_and_no_task(queue, made):
    await queue.send("loads the script")
    made.clear()
    await asyncio.gather(*(asyncio.ensure_future(queue.send("x")) for _ in range(50)))

    # The tasks are the test's own, and one future is that of gather.
    assert made["create_task"] == 50
    assert made["create_future"] <= 51
    assert made["call_at"] <= 1
