"""The gRPC channel to a broker, the process that answers there, and single calls."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from .._transport import tls
from .._transport.driver import NotExecuted, ReplyLost
from .._transport.urls import Address
from ..errors import InvalidValue, Unavailable
from ..options import Options
from ..rpc import v1_pb2 as pb
from ..rpc import v1_pb2_grpc as stubs
from ..rpc.error_details import BROKER
from ..rpc.forks import use_grpc
from .status_to_error import call_error

#: How long the search for the cause of an outage may take.
_HANDSHAKE_S = 1.0
_SETTINGS = {
    # Replies are bounded by what is asked for; this bounds those of a broker that is none.
    "grpc.max_receive_message_length": 256 * 1024 * 1024,
    "grpc.max_send_message_length": -1,
    # A silent peer is asked after this long whether it is there, and given up after that long.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 5_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.http2.max_pings_without_data": 0,
    "grpc.initial_reconnect_backoff_ms": 50,
    "grpc.max_reconnect_backoff_ms": 1_000,
    # Only the operation knows whether it may be repeated.
    "grpc.enable_retries": 0,
    # A connection of this client's own, also if this process has others to the same address.
    "grpc.use_local_subchannel_pool": 1,
}


class BrokerChannel:
    """Makes calls, each once. A broker is asked for its namespace before anything else."""

    def __init__(self, address: Address, namespace: str, options: Options) -> None:
        self.namespace = namespace
        #: How many messages one request may be about.
        self.max_batch = 1000
        #: Which process answered last.
        self.broker = ""
        self._address = address
        self._options = options
        token = address.login.get("token")
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = _channel(address, options)
        services = stubs.QueuesStub(self._channel), stubs.TopicsStub(self._channel)
        self._methods: dict[str, Any] = vars(services[0]) | vars(services[1])
        self._greeting = asyncio.Lock()
        self._greeted = False

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
            self._greeted = False
            try:
                info = await self.call("GetInfo", pb.GetInfoRequest(), connecting=True)
            except NotExecuted as outage:
                raise await _explain(self._address, outage) from None
            except ReplyLost as error:
                # What the caller is about to do has certainly not run.
                raise NotExecuted(str(error)) from None
            if info.namespace != self.namespace:
                raise InvalidValue(
                    f"the broker serves namespace {info.namespace!r}, not {self.namespace!r}; "
                    f"open the client with ns={info.namespace!r}"
                )
            self.max_batch = info.max_batch
            self._greeted = True

    async def call(self, method: str, request: Any, *, connecting: bool = False) -> Any:
        """Make one call; the transport limits its time. Raises what ``call_error`` returns."""
        timeout_s = self._options.connect_timeout if connecting else None
        call = self._methods[method](request, timeout=timeout_s, metadata=self._metadata)
        try:
            response = await call
            self.broker = (await call.trailing_metadata()).get(BROKER, self.broker)
        except grpc.aio.AioRpcError as error:
            self.broker = dict(error.trailing_metadata() or ()).get(BROKER, self.broker)
            raise call_error(method, error) from None
        return response

    def watch(self, queues: Sequence[str]) -> Any:
        """Begin to watch queues; to be read until it ends."""
        return self._methods["Watch"](pb.WatchRequest(queues=queues), metadata=self._metadata)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.close()

    def _connected(self) -> bool:
        return self._greeted and self._channel.get_state() is grpc.ChannelConnectivity.READY


def _channel(address: Address, options: Options) -> Any:
    use_grpc()
    target = f"unix:{address.path}"
    for host, port in address.hosts:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    settings = _SETTINGS | {
        # How long one attempt to connect may take.
        "grpc.min_reconnect_backoff_ms": max(1, round(options.connect_timeout * 1000)),
        # Without TLS a proxy that the environment names would read the token, and on this machine
        # it would not even reach the broker.
        "grpc.enable_http_proxy": int(address.tls is not None),
    }
    if address.tls is None:
        return grpc.aio.insecure_channel(target, options=list(settings.items()))
    files = [address.tls.get(f"ssl_{name}") for name in ("ca_certs", "keyfile", "certfile")]
    contents = [None if file is None else Path(file).read_bytes() for file in files]
    credentials = grpc.ssl_channel_credentials(*contents)
    return grpc.aio.secure_channel(target, credentials, options=list(settings.items()))


async def _explain(address: Address, outage: NotExecuted) -> Exception:
    """Return what to raise instead of *outage*, or that itself if TLS is not its cause.

    gRPC says of such a connection that it was closed, or, if the name has several addresses, what
    became of the last one. A handshake of our own finds out; nothing is sent after it. A broker
    speaks first, and one that wants a certificate just closes.
    """
    if not address.hosts:
        return outage
    settings, secure = address.tls or {}, address.tls is not None
    context = tls.client_context(settings)
    context.set_alpn_protocols(["h2"])
    if not secure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # not authenticated, so nothing is sent to it
    elif "ssl_ca_certs" not in settings:
        context.load_default_certs()
    try:
        async with asyncio.timeout(_HANDSHAKE_S):
            reader, writer = await asyncio.open_connection(*address.hosts[0], ssl=context)
            try:
                closes = secure and not await reader.read(1)
            finally:
                writer.transport.abort()
    except ssl.SSLError as error:
        fault = tls.fault(error) if secure else None
        return Unavailable(fault.replace("the server", "the broker")) if fault else outage
    except (OSError, TimeoutError):
        return outage
    if not secure:
        return Unavailable("the broker speaks TLS at this port; use grpcs://")
    if closes and "ssl_certfile" not in settings:
        # Perhaps it only stopped at this moment, so it is asked again.
        text = "it closes the connection after the TLS handshake; it may want a certificate by "
        return NotExecuted(text + "ssl_certfile and ssl_keyfile")
    return outage
