"""What several tests need: a relay in front of a broker, which loses what it is told to lose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiorsmq_ng.broker import Broker


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until *condition* holds."""
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


class Relay:
    """Passes bytes between clients and a broker. Where it leads to may be changed."""

    def __init__(self) -> None:
        #: Host and port of the broker; none: connections are cut at once.
        self.target: tuple[str, int] | None = None
        #: While true, what the broker answers vanishes.
        self.muted = False
        self.url = ""
        self._ends: list[asyncio.StreamWriter] = []

    def lead_to(self, broker: Broker | None) -> None:
        """Cut what stands, and lead new connections to *broker*, or nowhere."""
        self.target = None
        if broker is not None:
            host, _, port = broker.addresses[0].rpartition(":")
            self.target = (host, int(port))
        self.cut()

    def cut(self) -> None:
        """Reset every connection; new ones are answered."""
        self.muted = False
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass the bytes of one connection."""
        if self.target is None:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(*self.target)
        self._ends += [writer, back]
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer, loses=True))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, loses: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not (loses and self.muted):
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def relayed(broker: Broker) -> AsyncIterator[Relay]:
    """Put a relay in front of a broker."""
    relay = Relay()
    relay.lead_to(broker)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.url = f"grpc://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        relay.cut()
        server.close()
