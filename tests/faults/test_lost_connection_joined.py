"""A connection that is lost while further calls are submitted: none of them is written to it."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, Options


@pytest.mark.parametrize("verb", ["pop", "receive", "send"])
async def test_call_of_the_tick_in_which_its_connection_is_lost_takes_another(server_url, ns, verb):
    # The only connection: a call that finds it in use would join it.
    options = Options(max_connections=1, deadline=6.0)
    async with RSMQ(server_url, ns=ns, options=options) as rsmq:
        jobs = await rsmq.create_queue("jobs")
        mails = await rsmq.create_queue("mails")
        id = await mails.send("m")
        driver = await rsmq._transport.driver()
        in_flight = asyncio.create_task(jobs.attributes())
        while not driver._shared:
            await asyncio.sleep(0)
        (connection,) = driver._pipelined.values()
        assert connection._replies

        connection._transport.abort()  # as a reset by the server does
        call = {"pop": mails.pop, "receive": mails.receive, "send": lambda: mails.send("n")}[verb]
        done = await call()

        # A pop is never repeated, so it was written once, to a connection that lived.
        assert done if verb == "send" else done.id == id
        assert (await in_flight).msgs == 0
