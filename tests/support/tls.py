"""A proxy that speaks TLS to clients and plain bytes to a server, with certificates of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from .streams import listening, relay


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
    """One listening port; counts connections, and may replace bytes of replies."""

    def __init__(self, server_url: str, context: ssl.SSLContext) -> None:
        self._target = urlsplit(server_url)
        self._context = context
        #: Connections whose handshake succeeded.
        self.served = 0
        #: Connections, also those whose handshake failed.
        self.attempts = 0
        self.replace: tuple[bytes, bytes] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass the bytes of one connection."""
        self.attempts += 1
        await writer.start_tls(self._context)
        self.served += 1
        if self._target.scheme == "unix":
            server = await asyncio.open_unix_connection(self._target.path)
        else:
            server = await asyncio.open_connection(self._target.hostname, self._target.port)
        replace = self.replace
        await relay(
            (reader, writer),
            server,
            replies=lambda data: data.replace(*replace) if replace else data,
        )


@asynccontextmanager
async def tls_proxy(
    server_url: str, context: ssl.SSLContext
) -> AsyncIterator[tuple[TLSProxy, int]]:
    """Yield a running proxy and its port."""
    proxy = TLSProxy(server_url, context)
    async with listening(proxy.serve) as port:
        yield proxy, port
