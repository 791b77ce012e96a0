"""Servers and relays of the tests' own, on loopback; they leave no connection and no task open.

A handler that asyncio's stream server runs is owned by that server only weakly: when a client
resets its connection, the handler ends with an error, and what it had opened is found by the
garbage collector in a later test. So every test that listens does it by ``listening``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiorsmq_ng.broker import Broker

#: What asyncio hands to a server and to a client: where to read and where to write.
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Returns what is passed on of some bytes.
Change = Callable[[bytes], bytes]


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    path: Path | None = None,
) -> AsyncIterator[int]:
    """Serve connections on loopback, or at the Unix socket *path*; yield the port (0 without one).

    A connection is closed when its handler ends, and a client that resets it is no error. At the
    end all handlers are cancelled and waited for.
    """
    handlers: set[asyncio.Task[None]] = set()
    ended = False

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            if not ended:
                with suppress(OSError):
                    await serve(reader, writer)
        except asyncio.CancelledError:
            pass  # by us, below; asyncio would log it
        finally:
            handlers.discard(task)
            writer.close()

    if path is None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
    else:
        server, port = await asyncio.start_unix_server(handle, path), 0
    try:
        yield port
    finally:
        ended = True
        server.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers)


async def relay(
    client: Ends, server: Ends, *, requests: Change = bytes, replies: Change = bytes
) -> None:
    """Pass bytes both ways until one side ends; then end the other.

    *requests* and *replies* say what is passed on of the bytes of each direction.
    """
    pumps = [
        asyncio.create_task(_pump(client[0], server[1], requests)),
        asyncio.create_task(_pump(server[0], client[1], replies)),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        for _, writer in (client, server):
            writer.close()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, change: Change) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(change(data))
            await sink.drain()


class Relay:
    """Passes bytes between clients and a broker. The broker behind it may be changed."""

    def __init__(self, broker: Broker) -> None:
        #: While true, the replies of the broker are lost.
        self.muted = False
        self.address = ""
        self._clients: set[asyncio.StreamWriter] = set()
        self.lead_to(broker)

    @property
    def url(self) -> str:
        """URL for a client."""
        return f"grpc://{self.address}"

    def lead_to(self, broker: Broker | None) -> None:
        """Cut all connections, and lead new ones to *broker*; without one, cut them at once."""
        self._target = broker and broker.addresses[0].rpartition(":")
        self.cut()

    def cut(self) -> None:
        """Reset every connection; new ones are accepted."""
        self.muted = False
        for writer in self._clients:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass the bytes of one connection."""
        if self._target is None:
            return
        host, _, port = self._target
        self._clients.add(writer)
        try:
            server = await asyncio.open_connection(host, int(port))
            await relay((reader, writer), server, replies=lambda b: b"" if self.muted else b)
        finally:
            self._clients.discard(writer)


@asynccontextmanager
async def relayed(broker: Broker) -> AsyncIterator[Relay]:
    """Put a relay in front of a broker."""
    relay = Relay(broker)
    async with listening(relay.serve) as port:
        relay.address = f"127.0.0.1:{port}"
        yield relay
