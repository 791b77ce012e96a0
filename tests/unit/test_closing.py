"""Closing a transport: what is given back in its last moments still reaches the server."""

import asyncio
import gc
import warnings

import pytest

from aiorsmq_ng import ClientClosed, Unavailable
from aiorsmq_ng._common.tasks import TaskGroup
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, presence

from ..support.driver import ScriptedDriver, transport_on

ID = "g73zkl38qz" + "x" * 22
OPERATION = presence.announce(Namespace("rsmq").queue("jobs"), "me", 0, [])


@pytest.mark.parametrize("ticks", [0, 1, 3])
async def test_what_is_submitted_some_ticks_after_closing_began_is_made(ticks):
    driver = ScriptedDriver(lambda _: 1)
    transport = transport_on(driver)
    await transport.run(OPERATION)
    submitted = []

    def later(left):
        if left:
            asyncio.get_running_loop().call_soon(later, left - 1)
        else:
            submitted.append(transport.submit(OPERATION, closing=True))

    transport.closers.add(lambda: later(ticks))
    await transport.aclose()

    await submitted[0]
    assert len(driver.commands) == 2


async def test_what_is_submitted_too_late_fails_as_closed():
    """The tasks that make calls are cancelled, and have not ended yet."""
    transport = transport_on(ScriptedDriver(lambda _: 1), connections=1)
    await transport.run(OPERATION)
    transport._finished = True
    transport._host.cancel()
    while transport._lanes._resting and not transport._lanes._resting[-1].done():
        await asyncio.sleep(0)
    late = transport.submit(OPERATION, closing=True)

    with pytest.raises(ClientClosed):
        await late
    await transport.aclose()


async def test_what_is_submitted_while_all_tasks_are_cancelled_is_made():
    """As asyncio.run does when it ends; it waits for the tasks."""
    driver = ScriptedDriver(lambda _: 1)
    transport = transport_on(driver, connections=1)
    await transport.run(OPERATION)
    closed = []
    transport.closers.add(lambda: closed.append(transport.submit(OPERATION, closing=True)))
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.sleep(0)
    late = transport.submit(OPERATION)
    await asyncio.wait(others)

    assert (late.done(), late.exception()) == (True, None)
    assert [made.exception() for made in closed] == [None]
    assert len(driver.commands) == 3
    assert driver.closed
    with pytest.raises(ClientClosed):
        await transport.run(OPERATION)


async def test_call_that_is_interrupted_by_a_cancellation_of_all_tasks_is_recalled():
    """It may have leased messages, and its caller gets none of them."""
    never = asyncio.get_running_loop().create_future()
    driver = ScriptedDriver(lambda seen: [] if seen.numbered[2] == 0 else never)
    transport = transport_on(driver, connections=1)
    await transport.start()
    spec = messages.ReceiveSpec(Namespace("rsmq").queue("jobs"))
    receiving = asyncio.ensure_future(transport.run(messages.receive(spec, 5, vt_ms=1000)))
    while not driver.commands:
        await asyncio.sleep(0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait(others)

    assert receiving.done()
    assert [seen.numbered[2] for seen in driver.commands] == [1, 0]


def cancel_all_others():
    """Do what asyncio.run does at its end; return the tasks that it would wait for."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    return others


def release():
    keys = Namespace("rsmq").queue("jobs")
    return messages.visibility(keys, ID, vt_ms=0, receipt=None, channel=keys.wake)


def settle(transport):
    """Settle a message in a task, as the end of a block does."""

    async def leave():
        await transport.see_through(release())

    return asyncio.ensure_future(leave())


def give_back(transport):
    """Give a message back for a caller that is gone."""
    transport.begin([release()])


@pytest.mark.parametrize("begin", [settle, give_back])
async def test_what_is_begun_is_made_if_its_runner_is_cancelled_before_its_first_step(begin):
    driver = ScriptedDriver(lambda _: [1])
    transport = transport_on(driver, connections=1)
    await transport.start()
    kept = begin(transport)
    if not transport._lanes._due:
        await asyncio.sleep(0)
    assert transport._lanes._due
    await asyncio.wait(cancel_all_others())

    assert [seen.kind.name for seen in driver.commands] == ["visibility"]
    del kept


@pytest.mark.parametrize("begin", [settle, give_back])
async def test_what_is_begun_is_made_if_its_call_is_interrupted(begin):
    """Its command may be lost with the connection, and its message would stay leased."""
    never = asyncio.get_running_loop().create_future()
    driver = ScriptedDriver(lambda seen: never if seen.numbered[2] == 1 else [1])
    transport = transport_on(driver, connections=1)
    await transport.start()
    kept = begin(transport)
    while not driver.commands:
        await asyncio.sleep(0)
    await asyncio.wait(cancel_all_others())

    assert len({seen.numbered[:2] for seen in driver.commands}) == 1
    assert [seen.numbered[2] for seen in driver.commands] == [1, 2]
    del kept


async def test_what_is_interrupted_twice_is_made():
    """A program may cancel all tasks before asyncio.run does."""
    never = asyncio.get_running_loop().create_future()
    another = asyncio.get_running_loop().create_future()
    replies = [never, another, [1]]
    driver = ScriptedDriver(lambda _: replies.pop(0))
    transport = transport_on(driver, connections=1)
    await transport.start()
    made = transport.submit(release())
    for calls in (1, 2):
        for _ in range(100):
            if len(driver.commands) < calls:
                await asyncio.sleep(0)
        others = cancel_all_others()
    await asyncio.wait(others)

    assert [seen.numbered[2] for seen in driver.commands] == [1, 2, 3]
    assert (made.done(), made.exception()) == (True, None)


async def test_call_of_a_cancelled_caller_is_not_repeated():
    never = asyncio.get_running_loop().create_future()
    driver = ScriptedDriver(lambda _: never)
    transport = transport_on(driver, connections=1)
    await transport.start()
    extending = asyncio.ensure_future(transport.run(release()))
    while not driver.commands:
        await asyncio.sleep(0)
    await asyncio.wait(cancel_all_others())

    assert extending.cancelled()
    assert len(driver.commands) == 1


async def test_callers_of_a_call_that_closing_interrupts_fail_as_unknown(monkeypatch):
    monkeypatch.setattr("aiorsmq_ng._transport.transport.CLOSE_S", 0.01)
    never = asyncio.get_running_loop().create_future()
    transport = transport_on(ScriptedDriver(lambda _: never), connections=1)
    await transport.start()
    made = transport.submit(release())
    await transport.aclose()

    assert isinstance(made.exception(), Unavailable)


@pytest.mark.parametrize("started", [False, True])
async def test_task_that_is_cancelled_before_its_first_step_leaves_no_warning(started):
    """Python warns of a coroutine that "was never awaited", and hides nothing else by it."""
    transport = transport_on(ScriptedDriver(lambda _: 1), connections=1)
    await transport.start()
    ran = []

    async def background():
        ran.append(True)
        await asyncio.sleep(3600)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        transport.spawn(background)
        if started:
            await asyncio.sleep(0)
        await asyncio.wait(cancel_all_others())
        await transport.aclose()
        del transport
        gc.collect()

    assert (ran, [str(w.message) for w in seen]) == ([True] * started, [])


async def test_group_of_tasks_keeps_none_that_has_begun():
    """A client that runs for months starts many."""
    async with TaskGroup() as tasks:
        for _ in range(50):
            tasks.start_soon(asyncio.sleep, 0)
            await asyncio.sleep(0)
        tasks.start_soon(asyncio.sleep, 0)

        assert len(tasks._new) == 1
