"""Servers that cannot serve now but may soon: they are waited out, up to the deadline."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Options, Unavailable
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.resp_splitter import Splitter
from aiorsmq_ng.testing.servers import eventually

from ..support.streams import listening, relay

#: What servers say, and whether their place may have gone to another one.
STATES = {
    "LOADING Redis is loading the dataset in memory": False,
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL": False,
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": False,
    "CLUSTERDOWN The cluster is down": False,
    "TRYAGAIN Multiple keys request during rehashing of slot": False,
    "READONLY You can't write against a read only replica.": True,
    "NOREPLICAS Not enough good replicas to write.": True,
    "MISCONF Redis is configured to save RDB snapshots, but is unable to persist": True,
}


class Moody:
    """Stands in front of a server and answers the next *refusals* script calls with *state*."""

    def __init__(self, target: str, state: str) -> None:
        self.target, self.state = target, state
        self.refusals = self.accepted = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        splitter = Splitter()

        def accepted_of(data: bytes) -> bytes:
            """Refuse what is to be refused, and return the rest."""
            passed = []
            for request in splitter.feed(data):
                if self.refusals > 0 and b"EVALSHA" in request:
                    self.refusals -= 1
                    writer.write(f"-{self.state}\r\n".encode())
                else:
                    passed.append(request)
            return b"".join(passed)

        server = await asyncio.open_unix_connection(self.target)
        await relay((reader, writer), server, requests=accepted_of)


@asynccontextmanager
async def behind(server, state, folder, deadline_s):
    """A client of *server*, and the one who stands between them."""
    moody = Moody(server.socket, state)
    path = folder / "moody.sock"
    async with (
        listening(moody.serve, path),
        RSMQ(f"unix://{path}", options=Options(deadline=deadline_s)) as rsmq,
    ):
        yield moody, await rsmq.create_queue("jobs")


@pytest.mark.parametrize(("state", "drops"), STATES.items(), ids=lambda v: str(v).split(" ")[0])
async def test_state_that_passes_is_waited_out(private_server, tmp_path, state, drops):
    async with behind(private_server, state, tmp_path, 30) as (moody, queue):
        await queue.send("the server knows the scripts")
        await (await queue.receive()).ack()
        connected = moody.accepted
        moody.refusals = 3
        await queue.send("a")
        moody.refusals = 3
        message = await queue.receive()
        moody.refusals = 3
        await message.ack()

        attributes = await queue.attributes()
        assert (attributes.totalsent, attributes.totalrecv, attributes.msgs) == (2, 2, 0)
        # Another server may answer to the address by now, or be named by sentinels.
        assert (moody.accepted > connected) == drops


@pytest.mark.parametrize("state", list(STATES)[::5], ids=lambda v: v.split(" ")[0])
async def test_state_that_does_not_pass_ends_the_call_at_its_deadline(
    private_server, tmp_path, state
):
    async with behind(private_server, state, tmp_path, 3) as (moody, queue):
        moody.refusals = 10**9
        with pytest.raises(Unavailable) as caught:
            await queue.send("a")
        moody.refusals = 0

    assert (caught.value.executed, caught.value.transient) == (False, True)


async def test_server_that_is_busy_with_a_script_is_waited_out_and_reported(caplog):
    async with (
        PrivateServer("--busy-reply-threshold", "10") as server,
        Redis.from_url(server.url) as admin,
        Redis.from_url(server.url) as hog,
        RSMQ(server.url, options=Options(deadline=60)) as rsmq,
    ):
        queue = await rsmq.create_queue("jobs")
        endless = asyncio.create_task(hog.eval("while true do end", 0))

        async def told():
            return "busy" in caplog.text

        with caplog.at_level(logging.WARNING, "aiorsmq_ng.transport"):
            await asyncio.sleep(0.1)
            sending = asyncio.create_task(queue.send("a"))
            await eventually(told, "an error says that the server is busy")
            assert not sending.done()
            await admin.script_kill()
            id = await sending
        await asyncio.wait([endless])
        assert endless.exception() is not None

        assert [m.id for m in await queue.peek()] == [id]


async def test_server_that_lacks_replicas_is_waited_out(private_server, admin):
    async with RSMQ(private_server.url, options=Options(deadline=60)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await admin.config_set("min-replicas-to-write", 1)
        sending = asyncio.create_task(queue.send("a"))
        await asyncio.sleep(0.2)
        assert not sending.done()
        await admin.config_set("min-replicas-to-write", 0)

        id = await sending
        assert [m.id for m in await queue.peek()] == [id]
