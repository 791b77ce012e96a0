"""Why a broker cannot be reached, where gRPC does not tell: the one side speaks TLS, or wants more.

gRPC says of such a connection that it was closed, or, if the name has several addresses, what
became of the last one. A handshake of our own finds out; nothing is sent after it.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from .._transport import tls
from .._transport.urls import Address
from ..errors import Unavailable
from .errors import NoBroker

#: How long it may take. A peer that takes longer has other troubles than TLS.
_PATIENCE_S = 1.0


async def explain(address: Address, outage: NoBroker) -> Exception:
    """Return what to raise instead of *outage*, or that itself if TLS is not its cause."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            talks = await _shake_hands(address)
    except ssl.SSLError as error:
        found = None if address.tls is None else tls.fault(error)
        return Unavailable(found.replace("the server", "the broker")) if found else outage
    except (OSError, TimeoutError):
        return outage
    if address.tls is None:
        return Unavailable("the broker speaks TLS at this port; use grpcs://")
    if talks or "ssl_certfile" in address.tls:
        return outage
    # Perhaps it only stopped at this moment, so it is asked again.
    return NoBroker(
        "it closes the connection after the TLS handshake; it may want a certificate by "
        "ssl_certfile and ssl_keyfile"
    )


async def _shake_hands(address: Address) -> bool:
    """Agree on TLS, or raise what the two sides do not agree on; return True if it goes on then.

    A broker speaks first. One that wants a certificate just closes.
    """
    host, port = address.hosts[0]
    reader, writer = await asyncio.open_connection(host, port, ssl=_context(address))
    try:
        return bool(address.tls is None or await reader.read(1))
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


def _context(address: Address) -> ssl.SSLContext:
    if address.tls is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # not authenticated, so nothing is sent to it
    else:
        context = ssl.create_default_context(cafile=address.tls.get("ssl_ca_certs"))
        if certificate := address.tls.get("ssl_certfile"):
            context.load_cert_chain(certificate, address.tls.get("ssl_keyfile"))
    context.set_alpn_protocols(["h2"])
    return context
