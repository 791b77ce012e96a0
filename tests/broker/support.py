"""What several tests of the broker need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import grpc.aio

from aiorsmq_ng.broker import Broker


def connected(broker: Broker) -> grpc.aio.Channel:
    """Return a connection to a broker that no other test shares."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(broker.addresses[0], options)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until *condition* holds."""
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


class Relay:
    """Passes bytes between a client and a broker, until it is told to cut."""

    def __init__(self) -> None:
        self.address = ""
        self._ends: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        """Reset every connection."""
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()


@asynccontextmanager
async def relayed(broker: Broker) -> AsyncIterator[Relay]:
    """Put a relay in front of a broker."""
    relay = Relay()
    host, _, port = broker.addresses[0].rpartition(":")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        relay._ends += [writer, back]
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    relay.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        relay.cut()
        server.close()
