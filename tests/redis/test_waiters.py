"""Many clients wait on one queue: a message wakes one of them, and none is left behind."""

import asyncio
import contextlib
import signal
import sys
import time

import pytest

from aiorsmq_ng import RSMQ, Options

from ..support.waiting import until

#: No client finds anything by polling.
RARELY = Options(poll_base=600, poll_cap=600)
CLIENTS = 30
#: A process that waits for messages, prints them and forgets to come back.
STOPPED = """
import asyncio, sys
from aiorsmq_ng import RSMQ, Options

async def main(url, ns):
    async with RSMQ(url, ns=ns, options=Options(poll_base=600, poll_cap=600)) as rsmq:
        await rsmq.queue("jobs").receive(wait=600)

asyncio.run(main(*sys.argv[1:]))
"""


async def scripts(raw):
    stats = await raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


async def registered(raw, ns, number, queue="jobs"):
    """Return True if *number* waiters are registered and have no wake-up."""
    waiters = f"{ns}:{queue}:ng:waiters"
    return await raw.zcount(waiters, time.time() * 1000 + 1000, "+inf") >= number


async def present(raw, ns, number):
    """Return True if *number* waiters are registered, woken or not."""
    return await raw.zcard(f"{ns}:jobs:ng:waiters") >= number


@contextlib.asynccontextmanager
async def clients(url, ns, number, options=RARELY):
    async with contextlib.AsyncExitStack() as stack:
        opened = [RSMQ(url, ns=ns, options=options) for _ in range(number)]
        for rsmq in opened:
            await stack.enter_async_context(rsmq)
        yield opened


@contextlib.contextmanager
def tasks(*coroutines):
    running = [asyncio.create_task(one) for one in coroutines]
    yield running
    for task in running:
        task.cancel()


async def consume(rsmq, arrived, queue="jobs"):
    while True:
        if (message := await rsmq.queue(queue).receive(wait=600)) is not None:
            await message.ack()
            arrived.put_nowait((rsmq, message.text))


async def take(arrived):
    async with asyncio.timeout(20):
        return (await arrived.get())[1]


@pytest.fixture
async def herd(server_url, ns, queue, raw):
    """Clients that wait, and where what they receive ends up."""
    arrived = asyncio.Queue()
    async with clients(server_url, ns, CLIENTS) as opened:
        with tasks(*(consume(rsmq, arrived) for rsmq in opened)):
            await until(registered, raw, ns, CLIENTS)
            yield arrived


async def test_message_that_thirty_clients_wait_for_costs_five_scripts(queue, raw, ns, herd):
    """Send, look, ack, look again, and the one who makes sure a moment later."""
    before = await scripts(raw)
    for number in range(40):
        await queue.send(str(number))
        assert await take(herd) == str(number)
    await until(registered, raw, ns, CLIENTS)

    assert await scripts(raw) - before <= 5 * 40


async def test_waiters_outlast_a_queue_that_is_deleted_and_made_again(rsmq, raw, ns, herd):
    await rsmq.delete_queue("jobs")
    queue = await rsmq.create_queue("jobs")
    await queue.send("x")

    assert await take(herd) == "x"
    assert await raw.ttl(f"{ns}:jobs:ng:waiters") > 0


async def test_messages_of_one_call_wake_as_many_clients(queue, raw, ns, herd):
    before = await scripts(raw)
    await queue.send_many(["x"] * CLIENTS)
    for _ in range(CLIENTS):
        await take(herd)
    await until(registered, raw, ns, CLIENTS)

    assert await scripts(raw) - before <= 1 + 4 * CLIENTS


async def test_delayed_message_is_looked_for_by_few_when_it_is_due(queue, raw, ns, herd):
    before = await scripts(raw)
    await queue.send("late", delay=0.5)
    assert await take(herd) == "late"
    await until(registered, raw, ns, CLIENTS)

    assert await scripts(raw) - before <= 6


async def test_delayed_messages_that_follow_each_other_find_a_waiter_each(queue, raw, ns, herd):
    before = await scripts(raw)
    for number in range(10):
        await queue.send(str(number), delay=0.3 + number / 20)
    # Each goes to another client, so which of them reports first is open.
    assert {await take(herd) for _ in range(10)} == {str(number) for number in range(10)}
    await until(registered, raw, ns, CLIENTS)

    assert await scripts(raw) - before <= 8 * 10


async def test_message_of_a_holder_that_vanished_reaches_a_waiter(server_url, ns, queue, raw):
    arrived = asyncio.Queue()
    async with clients(server_url, ns, 3) as opened:
        with tasks(opened[0].queue("jobs").receive(wait=600, vt=0.5)) as (holder,):
            await until(registered, raw, ns, 1)
            await queue.send("x")
            assert (await holder).rc == 1
        with tasks(*(consume(rsmq, arrived) for rsmq in opened[1:])):
            assert await take(arrived) == "x"


async def test_lease_that_begins_while_others_wait_is_looked_for_when_it_ends(
    server_url, ns, queue, raw
):
    """They were not called for the message, and yet one of them comes when its lease ends."""
    arrived = asyncio.Queue()
    async with clients(server_url, ns, 3) as opened:
        with tasks(*(consume(rsmq, arrived) for rsmq in opened)):
            await until(registered, raw, ns, 3)
            # Taken by a client that does not wait, in the script call that follows.
            id = await queue.send("x", delay=600)
            await raw.zadd(f"{ns}:jobs", {id: 1})
            assert (await queue.receive(vt=0.5)).rc == 1
            assert await take(arrived) == "x"


async def test_released_message_wakes_one_of_many(queue, raw, ns, herd):
    id = await queue.send("x", delay=600)
    await raw.zadd(f"{ns}:jobs", {id: 1})
    held = await queue.receive(vt=500)
    await held.extend(400)  # so that the server has the script
    before = await scripts(raw)
    await held.release()
    assert await take(herd) == "x"
    await until(registered, raw, ns, CLIENTS)

    assert await scripts(raw) - before <= 5


async def test_waiters_whose_connections_are_gone_are_skipped(server_url, ns, queue, raw):
    async with clients(server_url, ns, 1) as (rsmq,):
        with tasks(rsmq.queue("jobs").receive(wait=600)) as (waiting,):
            await until(registered, raw, ns, 1)
            dead = {f"dead{number}": (time.time() + 900) * 1000 for number in range(20)}
            await raw.zadd(f"{ns}:jobs:ng:waiters", dead)
            await queue.send("x")
            async with asyncio.timeout(20):
                assert (await waiting).text == "x"


@pytest.mark.parametrize(("signal_", "number"), [(signal.SIGSTOP, 1), (signal.SIGKILL, 3)])
async def test_processes_that_stop_cost_the_others_a_moment(
    server_url, ns, queue, raw, signal_, number
):
    command = [sys.executable, "-c", STOPPED, server_url, ns]
    stopped = [await asyncio.create_subprocess_exec(*command) for _ in range(number)]
    arrived = asyncio.Queue()
    try:
        await until(registered, raw, ns, number)
        for process in stopped:
            process.send_signal(signal_)
        async with clients(server_url, ns, 1) as opened:
            with tasks(consume(opened[0], arrived)):
                await until(registered, raw, ns, number + 1)
                # More than can be swallowed.
                for body in map(str, range(8)):
                    await queue.send(body)
                    assert await take(arrived) == body
    finally:
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            process._transport.close()


@pytest.fixture
def lingering(monkeypatch):
    """Loops without waiters stay, so that their end does not make up for what they leave undone."""
    monkeypatch.setattr("aiorsmq_ng._runtime.long_poll._LINGER_S", 600)


@pytest.mark.usefixtures("lingering")
async def test_call_for_a_waiter_that_was_cancelled_is_passed_on(server_url, ns, queue, raw):
    waiters = f"{ns}:jobs:ng:waiters"
    async with clients(server_url, ns, 2) as (gone, here):
        with tasks(gone.queue("jobs").receive(wait=600)) as (cancelled,):
            await until(registered, raw, ns, 1)
            (name,) = await raw.zrange(waiters, 0, -1)
            cancelled.cancel()
            with tasks(here.queue("jobs").receive(wait=600)) as (waiting,):
                await until(registered, raw, ns, 2)
                # As a send would do whose choice falls on it.
                await raw.zadd(f"{ns}:jobs", {"a" * 32: 1})
                await raw.hset(f"{ns}:jobs:Q", "a" * 32, "x")
                assert await raw.publish(f"{ns}:jobs:ng:wake:{name.decode()}", "0") == 1
                async with asyncio.timeout(20):
                    assert (await waiting).text == "x"

        async def forgotten():
            return await raw.zscore(waiters, name) is None

        await until(forgotten)


async def test_silent_foreign_sender_is_noticed_by_one_who_calls_the_others(
    server_url, ns, queue, raw
):
    arrived = asyncio.Queue()
    eager = Options(poll_base=0.1, poll_cap=0.2)
    async with clients(server_url, ns, 5) as herd, clients(server_url, ns, 1, eager) as (one,):
        with tasks(*(consume(rsmq, arrived) for rsmq in herd)):
            await until(registered, raw, ns, 5)
            bodies = {f"{number}" * 32: str(number) for number in range(6)}
            await raw.hset(f"{ns}:jobs:Q", mapping=bodies)
            await raw.zadd(f"{ns}:jobs", dict.fromkeys(bodies, 1))
            with tasks(one.queue("jobs").receive(wait=600)):
                async with asyncio.timeout(20):
                    served = {(await arrived.get())[0] for _ in range(5)}
    assert len(served) >= 2


async def test_waiter_on_several_queues_is_called_for_each(server_url, ns, rsmq, raw):
    for name in ("a", "b"):
        await rsmq.create_queue(name)
    async with clients(server_url, ns, 1) as (waiter,):
        for name in ("b", "a", "b"):
            with tasks(waiter.receive("a", "b", wait=600)) as (waiting,):
                await until(registered, raw, ns, 1, "a")
                await until(registered, raw, ns, 1, "b")
                await rsmq.queue(name).send(name)
                async with asyncio.timeout(20):
                    assert (await waiting).text == name


@pytest.mark.usefixtures("lingering")
async def test_waiter_that_was_served_elsewhere_hands_its_call_on(server_url, ns, rsmq, raw):
    """It waits on two queues, is called for both, and has room for one message."""
    for name in ("a", "b"):
        await rsmq.create_queue(name)
    async with clients(server_url, ns, 2) as (both, one):
        with tasks(both.receive("a", "b", wait=600)) as (first,):
            await until(registered, raw, ns, 1, "b")
            await asyncio.gather(rsmq.queue("a").send("a"), rsmq.queue("b").send("b"))
            with tasks(one.queue("b").receive(wait=600)) as (second,):
                async with asyncio.timeout(20):
                    assert {(await first).text, (await second).text} == {"a", "b"}


async def test_side_key_of_another_type_leaves_waiters_to_look_by_themselves(
    server_url, ns, queue, raw
):
    await raw.set(f"{ns}:jobs:ng:waiters", "not ours", ex=600)
    async with clients(server_url, ns, 1, Options(poll_base=0.05, poll_cap=0.1)) as (rsmq,):
        with tasks(rsmq.queue("jobs").receive(wait=600)) as (waiting,):
            await asyncio.sleep(0.3)
            await queue.send("x")
            async with asyncio.timeout(20):
                assert (await waiting).text == "x"


async def test_names_of_waiters_are_forgotten_by_themselves(queue, raw, ns):
    await queue.receive(wait=0.5)

    assert 0 < await raw.ttl(f"{ns}:jobs:ng:waiters") <= 70


async def test_client_that_looks_often_leaves_names_of_patient_ones_alone(
    server_url, ns, queue, raw
):
    waiters = f"{ns}:jobs:ng:waiters"
    async with clients(server_url, ns, 1) as (patient,):
        with tasks(patient.queue("jobs").receive(wait=600)):
            await until(registered, raw, ns, 1)
            ((_, at),) = await raw.zrange(waiters, 0, -1, withscores=True)
            async with clients(server_url, ns, 1, Options(poll_base=0.1, poll_cap=0.2)) as (often,):
                with tasks(often.queue("jobs").receive(wait=600)):
                    await until(present, raw, ns, 2)
                    # They are there at least until the patient one looks.
                    assert time.time() + await raw.ttl(waiters) > at / 1000


async def test_waiter_that_looks_early_still_looks_when_a_message_is_due(rsmq, raw, ns, server_url):
    """What it has promised itself is not taken for the promise of another one."""
    waiters = f"{ns}:jobs:ng:waiters"
    await rsmq.create_queue("jobs")
    async with clients(server_url, ns, 1) as (only,):
        jobs = only.queue("jobs")
        with tasks(jobs.receive(wait=600)):
            await until(registered, raw, ns, 1)
            id = await rsmq.queue("jobs").send("x", delay=300)
            due = await raw.zscore(f"{ns}:jobs", id)
            for _ in range(3):
                assert await jobs.receive(wait=0.01) is None
            ((_, at),) = await raw.zrange(waiters, 0, -1, withscores=True)
            assert due <= at <= due + 5


@contextlib.asynccontextmanager
async def left_behind(url, ns, queue, raw):
    """Yield two clients that have promised to look for a message, and one that relies on them."""
    async with clients(url, ns, 2) as leavers, clients(url, ns, 1) as (stays,):
        with tasks(*(one.queue("jobs").receive(wait=600) for one in leavers)) as leaving:
            await until(registered, raw, ns, 2)
            await queue.send("x", delay=1)
            with tasks(stays.queue("jobs").receive(wait=600)) as (waiting,):
                await until(registered, raw, ns, 1)
                yield leavers, leaving, waiting


@pytest.mark.usefixtures("lingering")
async def test_promise_of_waiters_that_left_is_kept_by_another(server_url, ns, queue, raw):
    async with left_behind(server_url, ns, queue, raw) as (_, leaving, waiting):
        for task in leaving:
            task.cancel()
        async with asyncio.timeout(20):
            assert (await waiting).text == "x"


async def test_promise_of_clients_that_were_closed_is_kept_by_another(server_url, ns, queue, raw):
    async with left_behind(server_url, ns, queue, raw) as (leavers, _, waiting):
        for rsmq in leavers:
            await rsmq.aclose()
        async with asyncio.timeout(20):
            assert (await waiting).text == "x"


async def test_promise_of_loops_that_ended_is_kept_by_another(
    server_url, ns, queue, raw, monkeypatch
):
    monkeypatch.setattr("aiorsmq_ng._runtime.long_poll._LINGER_S", 0.01)
    async with left_behind(server_url, ns, queue, raw) as (_, leaving, waiting):
        for task in leaving:
            task.cancel()
        async with asyncio.timeout(20):
            assert (await waiting).text == "x"


@pytest.mark.usefixtures("lingering")
async def test_waiters_that_have_left_and_are_asked_to_look_let_another_do_so(
    server_url, ns, queue, raw
):
    waiters = f"{ns}:jobs:ng:waiters"
    async with clients(server_url, ns, 3) as (*leavers, stays):
        with tasks(*(one.queue("jobs").receive(wait=600) for one in leavers)) as leaving:
            await until(registered, raw, ns, 2)
            # So that the choice falls on them.
            late = {name: (time.time() + 900) * 1000 for name in await raw.zrange(waiters, 0, -1)}
            for task in leaving:
                task.cancel()
        with tasks(stays.queue("jobs").receive(wait=600)) as (waiting,):
            await until(registered, raw, ns, 3)
            await raw.zadd(waiters, late)
            await queue.send("x", delay=1)
            async with asyncio.timeout(20):
                assert (await waiting).text == "x"


async def test_short_waits_one_after_the_other_cost_a_script_each(server_url, ns, queue, raw):
    async with clients(server_url, ns, 1) as (rsmq,):
        jobs = rsmq.queue("jobs")
        with tasks(jobs.receive(wait=600)):
            await until(registered, raw, ns, 1)
        before = await scripts(raw)
        for _ in range(40):
            assert await jobs.receive(wait=0.005) is None

        assert await scripts(raw) - before <= 40 + 5


async def test_no_call_is_lost_when_sends_and_waits_race(server_url, ns, queue, raw):
    """Waits begin and are cancelled all the time; a message left behind would wait for 600 s."""
    arrived = asyncio.Queue()

    async def hasty(rsmq, number):
        jobs = rsmq.queue("jobs")
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.003 * (1 + number)):
                    message = await jobs.receive(wait=600, vt=30)
                    await message.ack()
                    arrived.put_nowait((rsmq, message.text))

    async with clients(server_url, ns, 6) as opened:
        patient, *others = opened
        hasties = (hasty(rsmq, number) for number, rsmq in enumerate(others))
        with tasks(consume(patient, arrived), *hasties):
            for number in range(300):
                await queue.send(str(number))
                await asyncio.sleep(0.002 * (number % 5))
            async with asyncio.timeout(20):
                while (await queue.attributes()).msgs:
                    await asyncio.sleep(0.05)
    # One that was cancelled during its ack is not among them; none may be there twice.
    bodies = [arrived.get_nowait()[1] for _ in range(arrived.qsize())]
    assert len(set(bodies)) == len(bodies) > 0
    assert set(bodies) <= {str(number) for number in range(300)}
