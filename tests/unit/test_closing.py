"""Closing a transport: what is given back in its last moments still reaches the server."""

import asyncio

import pytest

from aiorsmq_ng import ClientClosed
from aiorsmq_ng._protocol import queues
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
    transport._host.cancel()
    while transport._resting and not transport._resting[-1].done():
        await asyncio.sleep(0)
    late = transport.submit(OPERATION, closing=True)

    with pytest.raises(ClientClosed):
        await late
    await transport.aclose()
