"""However a connect ends, no connection is open after the client was closed."""

import asyncio
import gc
import warnings
from contextlib import asynccontextmanager, suppress
from itertools import product

import pytest

from aiorsmq_ng import RSMQ, Options, RSMQError
from aiorsmq_ng.testing import FaultProxy
from aiorsmq_ng.testing.resp_splitter import Splitter

from ..support.streams import listening, relay
from ..support.tls import Authority, tls_proxy
from ..support.waiting import until

#: What a server may do instead of a reply; an empty one is silence, none is the end.
INSTEAD = {
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "busy": b"-BUSY Redis is busy running a script.\r\n",
    "no auth": b"-NOAUTH Authentication required.\r\n",
    "full": b"-ERR max number of clients reached\r\n",
    "garbage": b"\0\xff, I beg your pardon\r\n",
    "silence": b"",
    "end": None,
}
#: The handshake of redis-py and the first calls of ours have about as many commands.
COMMANDS = range(6)
#: Ticks of the event loop within which a client connects and makes its first calls.
TICKS = range(60)
URLS = {
    "tcp": "redis://127.0.0.1:{port}",
    "login": "redis://user:secret@127.0.0.1:{port}/1",
    "sentinel": "redis+sentinel://127.0.0.1:{port}/primary",
    "cluster": "redis+cluster://127.0.0.1:{port}",
}


class FailingServer:
    """A real server whose connections from the *first* on give *at* replies, no more."""

    def __init__(self, url: str, instead: bytes | None, first: int, at: int) -> None:
        self._server = FaultProxy(url)
        self._instead, self._first, self._at = instead, first, at
        self.accepted = self.replies = self.failures = self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self._at if self.accepted >= self._first else 10**9
        self.accepted += 1
        self.open += 1
        splitter = Splitter()

        def given(data: bytes) -> bytes:
            nonlocal left
            passed = b""
            for reply in splitter.feed(data):
                self.replies += 1
                left -= 1
                if left >= 0:
                    passed += reply
                    continue
                self.failures += 1
                if self._instead is None:
                    writer.close()
                    break
                passed += self._instead
            return passed

        try:
            await relay((reader, writer), await self._server.connect(), replies=given)
        finally:
            self.open -= 1


@asynccontextmanager
async def nothing_left():
    """Fail if a socket is dropped instead of closed; none is collected meanwhile."""
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            yield
    finally:
        gc.enable()
    assert [str(each.message) for each in seen] == []


async def calls(rsmq):
    """Use connections of both kinds: for calls, and for wake-ups."""
    waiting = asyncio.create_task(rsmq.queue("jobs").receive(wait=60))
    try:
        while not waiting.done():
            await rsmq.queue("jobs").attributes()
        await waiting
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def end(rsmq, task, ending):
    """Close the client, after its call was cancelled or while it is made."""
    if ending == "cancelled":
        task.cancel()
        await asyncio.wait([task])
    await rsmq.aclose()
    with suppress(RSMQError, asyncio.CancelledError):
        await task


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
@pytest.mark.parametrize("url", URLS)
async def test_no_connection_is_left_after_a_failed_handshake(server_url, ns, queue, url, ending):
    async def connect(instead: bytes | None, first: int, at: int) -> None:
        server = FailingServer(server_url, instead, first, at)
        async with listening(server.serve) as port:
            rsmq = RSMQ(URLS[url].format(port=port), ns=ns, options=Options(deadline=0.5))
            task = asyncio.create_task(calls(rsmq))
            # No failure if no connection has more than 5 replies.
            await until(lambda: server.failures or server.replies > 50 or task.done())
            await end(rsmq, task, ending)
            await until(lambda: server.open == 0)

    async with nothing_left():
        ways = product(INSTEAD.values(), (0, 1), COMMANDS)
        await asyncio.gather(*(connect(*way) for way in ways))


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
@pytest.mark.parametrize("url", [*URLS, "tls"])
async def test_no_connection_is_left_after_a_connect_cut_off_at_any_tick(
    server_url, ns, queue, tmp_path, url, ending
):
    authority = Authority(tmp_path)
    async with nothing_left():
        server = FailingServer(server_url, None, 10**9, 0)
        async with (
            listening(server.serve) as port,
            tls_proxy(server_url, authority.context("127.0.0.1")) as (proxy, secure_port),
        ):
            target = URLS.get(url, "").format(port=port)
            if url == "tls":
                target = f"rediss://127.0.0.1:{secure_port}?ssl_ca_certs={authority.file}"
            for ticks in TICKS:
                rsmq = RSMQ(target, ns=ns, options=Options(deadline=2))
                task = asyncio.create_task(calls(rsmq))
                for _ in range(ticks):
                    await asyncio.sleep(0)
                await end(rsmq, task, ending)
            await until(lambda: server.open == 0)
    assert server.accepted or proxy.attempts


async def test_wake_up_connection_is_closed_with_its_listener_not_only_with_the_client(
    server_url, ns
):
    server = FailingServer(server_url, None, 10**9, 0)
    async with (
        nothing_left(),
        listening(server.serve) as port,
        RSMQ(URLS["tcp"].format(port=port), ns=ns) as rsmq,
    ):
        await rsmq.list_queues()
        before = server.open
        listener = (await rsmq._transport.driver()).listener()
        await listener.subscribe("channel")
        await until(lambda: server.open == before + 1)

        await listener.aclose()
        await until(lambda: server.open == before)
