"""A proxy between client and server that loses things on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit


class FaultProxy:
    """Passes bytes on until told otherwise."""

    def __init__(self, server_url: str) -> None:
        self._target = urlsplit(server_url)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._doomed: set[asyncio.StreamWriter] = set()
        #: Requests go through, replies vanish: the peer looks alive and is not.
        self.swallow_replies = False
        #: Nothing goes through, and the peer does not notice.
        self.black_hole = False
        #: Bytes of a request after which its connection is cut before the reply comes.
        self.cut_after_request: bytes | None = None
        self.connections = 0

    async def start(self, folder: Path) -> str:
        """Listen on a socket in *folder* and return the url."""
        self._path = folder / "proxy.sock"
        await self.resume()
        return f"unix://{self._path}"

    async def resume(self) -> None:
        """Accept connections (again)."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def refuse(self) -> None:
        """Cut everything and accept nothing, as if the server were gone."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._path.unlink(missing_ok=True)
        await self.cut()

    async def cut(self) -> None:
        """Cut all connections; new ones are accepted."""
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        await self.refuse()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            upstream_reader, upstream_writer = await self._connect()
        except OSError:
            writer.close()
            return
        self._writers |= {writer, upstream_writer}
        pumps = [
            asyncio.create_task(self._requests(reader, upstream_writer, writer)),
            asyncio.create_task(self._replies(upstream_reader, writer)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, upstream_writer):
            self._writers.discard(end)
            end.close()
            with suppress(OSError):
                await end.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.scheme == "unix":
            return await asyncio.open_unix_connection(self._target.path)
        return await asyncio.open_connection(self._target.hostname, self._target.port or 6379)

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.black_hole:
                    continue
                marker = self.cut_after_request
                fatal = marker is not None and marker in data
                if fatal:
                    self._doomed.add(client)
                upstream.write(data)
                await upstream.drain()
                if fatal:
                    self.cut_after_request = None
                    await asyncio.sleep(0.05)  # let the server execute it
                    client.transport.abort()
                    return

    async def _replies(self, upstream: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await upstream.read(65536):
                if self.swallow_replies or client in self._doomed:
                    continue
                client.write(data)
                await client.drain()


@asynccontextmanager
async def fault_proxy(server_url: str, folder: Path) -> AsyncIterator[tuple[FaultProxy, str]]:
    """Yield a running proxy and its url."""
    proxy = FaultProxy(server_url)
    url = await proxy.start(folder)
    try:
        yield proxy, url
    finally:
        await proxy.aclose()
