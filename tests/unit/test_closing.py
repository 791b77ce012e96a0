"""Closing a transport: what is given back in its last moments still reaches the server."""

import asyncio

import pytest

from aiorsmq_ng import ClientClosed
from aiorsmq_ng._protocol import messages, queues
from aiorsmq_ng._protocol.keys import Namespace

from ..support.driver import ScriptedDriver, transport_on

OPERATION = queues.announce(Namespace("rsmq").queue("jobs"), "me", 0, [])


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
    while transport._resting and not transport._resting[-1].done():
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
