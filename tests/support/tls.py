"""A proxy that speaks TLS to clients and plain bytes to a server, with certificates of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import trustme


class Authority:
    """A certificate authority whose root lies in a file."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def context(self, *names: str, wants_certificate: bool = False) -> ssl.SSLContext:
        """Return what a server needs to be *names*."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ca.issue_cert(*names).configure_cert(context)
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            self._ca.configure_trust(context)
        return context

    def client_files(self) -> tuple[Path, Path]:
        """Return certificate and key of a client, as files."""
        issued = self._ca.issue_cert("client@example.org")
        certificate, key = self._folder / "client.pem", self._folder / "client.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key


class TLSProxy:
    """One listening port; counts who came, and may replace bytes of replies."""

    def __init__(self, server_url: str, context: ssl.SSLContext) -> None:
        self._target = urlsplit(server_url)
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        #: Connections whose handshake succeeded.
        self.served = 0
        #: Connections, whatever became of them.
        self.attempts = 0
        self.replace: tuple[bytes, bytes] | None = None

    async def start(self) -> int:
        """Listen on loopback and return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def aclose(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError):
                await writer.start_tls(self._context)
                self.served += 1
                await self._join(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._target.scheme == "unix":
            upstream = await asyncio.open_unix_connection(self._target.path)
        else:
            upstream = await asyncio.open_connection(self._target.hostname, self._target.port)
        pumps = [
            asyncio.create_task(self._pump(reader, upstream[1], None)),
            asyncio.create_task(self._pump(upstream[0], writer, self.replace)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            upstream[1].close()

    async def _pump(self, source, sink, replace) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                sink.write(data.replace(*replace) if replace else data)
                await sink.drain()


@asynccontextmanager
async def tls_proxy(
    server_url: str, context: ssl.SSLContext
) -> AsyncIterator[tuple[TLSProxy, int]]:
    """Yield a running proxy and its port."""
    proxy = TLSProxy(server_url, context)
    port = await proxy.start()
    try:
        yield proxy, port
    finally:
        await proxy.aclose()
