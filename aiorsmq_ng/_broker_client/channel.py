"""The gRPC channel to a broker, the process that answers there, and single calls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from .._transport import tls
from .._transport.calls import Call
from .._transport.driver import ReplyLost
from .._transport.urls import Address
from ..errors import InvalidValue, Unavailable
from ..options import Options
from ..rpc import v1_pb2 as pb
from ..rpc import v1_pb2_grpc as stubs
from ..rpc.errors import BROKER
from ..rpc.forks import use_grpc
from .errors import Failure, NoBroker, metadata

#: A silent peer is asked after this long whether it is there, and given up after that long.
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 10_000, 5_000
_BACKOFF_MS, _BACKOFF_CAP_MS = 50, 1_000
#: The largest reply that is taken.
_REPLY_BYTES = 256 * 1024 * 1024
#: How long the search for the cause of an outage may take.
_HANDSHAKE_S = 1.0


class BrokerChannel:
    """Makes calls, each once. A broker is asked for its namespace before anything else."""

    def __init__(self, address: Address, namespace: str, options: Options) -> None:
        self.namespace = namespace
        self._address = address
        self._options = options
        token = address.login.get("token")
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = _channel(address, options)
        self._queues: Any = stubs.QueuesStub(self._channel)
        self._topics: Any = stubs.TopicsStub(self._channel)
        self._greeting = asyncio.Lock()
        #: What the broker told of itself when the channel was last connected.
        self.info: Any = None
        #: Which process answered last.
        self.broker = ""

    async def ready(self, *, again: bool = False) -> None:
        """Be connected to a broker of the right namespace; ``NotExecuted`` if there is none now.

        The channel connects by itself, but does not tell why it cannot. The first call does, and
        nothing is at stake with this one.
        """
        if not again and self._connected():
            return
        async with self._greeting:
            if not again and self._connected():
                return
            self.info = None
            stub, timeout_s = self._queues.GetInfo, self._options.connect_timeout
            try:
                info = await self._make("GetInfo", stub, pb.GetInfoRequest(), timeout_s)
            except NoBroker as outage:
                raise await _explain(self._address, outage) from None
            except ReplyLost as error:
                # What the caller is about to do has certainly not run.
                raise NoBroker(str(error)) from None
            if info.namespace != self.namespace:
                raise InvalidValue(
                    f"the broker serves namespace {info.namespace!r}, not {self.namespace!r}; "
                    f"open the client with ns={info.namespace!r}"
                )
            self.info = info

    @property
    def max_batch(self) -> int:
        """How many messages one request may be about."""
        return self.info.max_batch if self.info else 1000

    async def call(self, method: str, request: Any, call: Call) -> Any:
        """Make one call. Raises what ``Failure.error`` returns."""
        await self.ready()
        stub = getattr(self._queues, method, None) or getattr(self._topics, method)
        call.written = True
        return await self._make(method, stub, request, self._options.deadline)

    def watch(self, queues: Sequence[str]) -> Any:
        """Begin to watch queues; to be read until it ends."""
        return self._queues.Watch(pb.WatchRequest(queues=queues), metadata=self._metadata)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.close()

    def _connected(self) -> bool:
        return self.info is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def _make(self, method: str, stub: Any, request: Any, timeout_s: float) -> Any:
        call = stub(request, timeout=timeout_s, metadata=self._metadata)
        try:
            response = await call
            self._heard(await call.trailing_metadata())
        except grpc.aio.AioRpcError as error:
            self._heard(error.trailing_metadata())
            raise Failure.of(method, error).error() from None
        return response

    def _heard(self, said: Any) -> None:
        self.broker = metadata(said).get(BROKER) or self.broker


def _channel(address: Address, options: Options) -> Any:
    use_grpc()
    host, port = address.hosts[0]
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    settings = [
        # Replies are bounded by what is asked for; this bounds those of a broker that is none.
        ("grpc.max_receive_message_length", _REPLY_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", _BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", _BACKOFF_CAP_MS),
        # How long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", max(1, round(options.connect_timeout * 1000))),
        # Only the operation knows whether it may be repeated.
        ("grpc.enable_retries", 0),
        # Without TLS a proxy that the environment names would read the token, and on this machine
        # it would not even reach the broker.
        ("grpc.enable_http_proxy", int(address.tls is not None)),
        # A connection of this client's own, whatever others this process has to the same address.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if address.tls is None:
        return grpc.aio.insecure_channel(target, options=settings)
    files = (address.tls.get(f"ssl_{name}") for name in ("ca_certs", "keyfile", "certfile"))
    credentials = grpc.ssl_channel_credentials(*map(_contents, files))
    return grpc.aio.secure_channel(target, credentials, options=settings)


def _contents(file: str | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()


async def _explain(address: Address, outage: NoBroker) -> Exception:
    """Return what to raise instead of *outage*, or that itself if TLS is not its cause.

    gRPC says of such a connection that it was closed, or, if the name has several addresses, what
    became of the last one. A handshake of our own finds out; nothing is sent after it.
    """
    try:
        async with asyncio.timeout(_HANDSHAKE_S):
            goes_on = await _shake_hands(address)
    except ssl.SSLError as error:
        found = None if address.tls is None else tls.fault(error)
        return Unavailable(found.replace("the server", "the broker")) if found else outage
    except (OSError, TimeoutError):
        return outage
    if address.tls is None:
        return Unavailable("the broker speaks TLS at this port; use grpcs://")
    if goes_on or "ssl_certfile" in address.tls:
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
    context = tls.client_context(address.tls or {})
    if address.tls is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # not authenticated, so nothing is sent to it
    elif "ssl_ca_certs" not in address.tls:
        context.load_default_certs()
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        return bool(address.tls is None or await reader.read(1))
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
