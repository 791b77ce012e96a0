"""Live figures: one sampler for all pages, no cost without a page, outages are said."""

import asyncio
import json
from contextlib import AsyncExitStack, aclosing

import pytest

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.broker.tokens import ANONYMOUS, Caller
from aiorsmq_ng.dashboard import live_sampler
from aiorsmq_ng.dashboard.live_events import overview_events, queue_events
from aiorsmq_ng.dashboard.live_sampler import LiveSampler
from aiorsmq_ng.testing import PrivateServer

from ..support.counting import script_calls
from ..support.waiting import until


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(live_sampler, "INTERVAL_S", 0.05)


@pytest.fixture
async def streams():
    """Open streams of events that are closed at the end."""
    async with AsyncExitStack() as stack:

        async def opened(stream):
            return await stack.enter_async_context(aclosing(stream))

        yield opened


async def sample(stream):
    """Return the next sample of a stream."""
    while (chunk := await anext(stream)).startswith(b":"):
        pass
    return json.loads(chunk.decode().partition("data: ")[2])


async def test_overview_gets_all_rows_first_and_then_what_changes(rsmq, queue, streams):
    await rsmq.create_queue("calm")
    stream = await streams(overview_events(LiveSampler(rsmq), ANONYMOUS))

    first = await sample(stream)
    await sample(stream)  # rates are known from here on
    await sample(stream)
    await queue.send("x")
    changed = []
    while not changed:
        changed = (await sample(stream))["rows"]

    assert {row["name"] for row in first["rows"]} == {"jobs", "calm"}
    assert [(row["name"], row["ready"]) for row in changed if row["name"] == "jobs"] == [
        ("jobs", 1)
    ]


async def test_overview_says_what_is_gone(rsmq, queue, streams):
    stream = await streams(overview_events(LiveSampler(rsmq), ANONYMOUS))
    await sample(stream)
    await rsmq.delete_queue("jobs")

    gone = []
    while not gone:
        gone = (await sample(stream))["gone"]

    assert gone == ["jobs"]


async def test_overview_shows_a_caller_its_own_queues(rsmq, queue, streams):
    await rsmq.create_queue("other")
    caller = Caller("shop", queues=("other",))
    stream = await streams(overview_events(LiveSampler(rsmq), caller))

    assert [row["name"] for row in (await sample(stream))["rows"]] == ["other"]


async def test_page_of_a_queue_gets_its_history_and_then_single_points(rsmq, queue, streams):
    sampler = LiveSampler(rsmq)
    early = await streams(queue_events(sampler, "jobs"))
    for _ in range(3):
        await sample(early)

    late = await streams(queue_events(sampler, "jobs"))
    first, second = await sample(late), await sample(late)

    assert first["first"]
    assert len(first["points"]["at"]) >= 3
    assert [len(column) for column in second["points"].values()] == [1] * 8


async def test_rates_are_those_between_two_samples(rsmq, queue, streams):
    stream = await streams(queue_events(LiveSampler(rsmq), "jobs"))
    await sample(stream)
    await queue.send_many(["x"] * 100)

    rate = None
    while not rate:
        rate = (await sample(stream))["row"]["in_s"]

    assert rate > 100


async def test_queue_that_is_deleted_while_its_page_is_open_is_gone(rsmq, queue, streams):
    stream = await streams(queue_events(LiveSampler(rsmq), "jobs"))
    await sample(stream)
    await rsmq.delete_queue("jobs")

    while (await sample(stream))["row"] is not None:
        pass


async def test_ten_pages_cost_what_one_costs(rsmq, raw, streams):
    for n in range(5):
        await rsmq.create_queue(f"q{n}")
    sampler = LiveSampler(rsmq)
    looks = 0
    whole = sampler._sample

    async def counted(wanted):
        nonlocal looks
        await whole(wanted)
        looks += 1

    sampler._sample = counted
    pages = [await streams(overview_events(sampler, ANONYMOUS)) for _ in range(10)]
    await asyncio.gather(*map(sample, pages))
    before, done = await script_calls(raw), looks
    for _ in range(3):
        await asyncio.gather(*map(sample, pages))
    calls, done = await script_calls(raw) - before, looks - done

    # One list and five looks for each sample; one sample may be under way at either end.
    assert calls <= 6 * (done + 1)


async def test_no_page_costs_nothing(rsmq, queue, raw):
    sampler = LiveSampler(rsmq)
    async with aclosing(overview_events(sampler, ANONYMOUS)) as stream:
        await sample(stream)
        task = sampler._task
    await until(task.done)
    before = await script_calls(raw)
    await asyncio.sleep(0.5)

    assert await script_calls(raw) == before


async def test_many_queues_are_looked_at_less_often(rsmq, monkeypatch, streams):
    monkeypatch.setattr(live_sampler, "LOOKS_PER_S", 10)
    for n in range(5):
        await rsmq.create_queue(f"q{n}")
    stream = await streams(overview_events(LiveSampler(rsmq), ANONYMOUS))
    clock = asyncio.get_running_loop().time
    await sample(stream)
    began = clock()
    await sample(stream)

    assert clock() - began > 0.4


async def test_outage_is_said_and_figures_come_back(monkeypatch, streams):
    monkeypatch.setattr(live_sampler, "LOOK_S", 0.5)
    async with (
        PrivateServer(persistence="always") as server,
        RSMQ(server.url, options=Options(connect_timeout=30)) as rsmq,
    ):
        await rsmq.create_queue("jobs")
        stream = await streams(overview_events(LiveSampler(rsmq), ANONYMOUS))
        await sample(stream)
        server.kill()
        while not (await sample(stream))["error"]:
            pass
        await server.start()
        while (found := await sample(stream))["error"]:
            pass

    assert found["totals"]["queues"] == 1


async def test_streams_end_when_the_client_is_closed(server_url, ns):
    rsmq = RSMQ(server_url, ns=ns)
    sampler = LiveSampler(await rsmq.open())
    stream = overview_events(sampler, ANONYMOUS)
    await sample(stream)
    ending = asyncio.create_task(anext(stream, None))
    await rsmq.aclose()

    await until(lambda: sampler.closed)
    while await asyncio.wait_for(ending, 30) is not None:
        ending = asyncio.create_task(anext(stream, None))
