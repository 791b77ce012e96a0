"""The gRPC server of a broker: starts it, reports its health, stops it gracefully."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, cast

import anyio
import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from aiorsmq_ng import RSMQ, InvalidValue, RSMQError

from ..rpc import v1_pb2, v1_pb2_grpc
from ..rpc.forks import use_grpc
from .admin import AdminCalls
from .broker_context import BrokerContext
from .caller_limits import Admission
from .extra_service import Service
from .idempotency import IdempotentCalls
from .inspection import InspectionCalls
from .interceptor import BrokerInterceptor
from .options import BrokerOptions, check_free, is_local
from .receipts import ReceiptSigner
from .receive import BoundedReceiver, ReceiveCalls
from .send import SendCalls
from .settle import SettleCalls
from .streams import ConsumeCalls
from .tokens import Tokens
from .topics import TopicsService

logger = logging.getLogger("aiorsmq_ng.broker")

#: Interval and timeout of the Redis check of the health service, seconds.
_PROBE_S = 2.0
#: Seconds after the grace period at which calls are cancelled.
_LAST_S = 0.5
#: Interval of keep-alive pings on idle connections, and the timeout of their answers.
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 20_000, 10_000

#: Bytes of a request that are received before the call is admitted.
_UNREAD_BYTES = 16 * 1024
#: Timeout of the HTTP/2 handshake of a connection.
_HANDSHAKE_MS = 10_000


class QueuesService(
    AdminCalls, InspectionCalls, SendCalls, ReceiveCalls, SettleCalls, ConsumeCalls
):
    """``aiorsmq.v1.Queues``, every call of it."""

    def __init__(
        self, broker: BrokerContext, admission: Admission, receiver: BoundedReceiver
    ) -> None:
        self._broker = broker
        self._admission = admission
        self._receiver = receiver


class Broker:
    """Serves the queues of *rsmq*, which is open, over gRPC.

    ``async with Broker(...)`` starts it and stops it gracefully: nothing new is accepted, clients
    can settle the messages they hold, streams give the rest back, and calls in flight end.

    Args:
        rsmq: an open client, whose queues are served.
        options: addresses, TLS, limits; by default this machine only.
        tokens: tokens that callers need; without them every caller may do everything.
        services: what is served in addition, e.g. ``aiorsmq_ng.compat.gomq.Gomq()``.
    """

    def __init__(
        self,
        rsmq: RSMQ,
        options: BrokerOptions | None = None,
        tokens: Tokens | None = None,
        services: Sequence[Service] = (),
    ) -> None:
        self._options = options or BrokerOptions()
        self._tokens = tokens or Tokens({})
        self._options.check(tokens=len(self._tokens) > 0)
        self._rsmq = rsmq
        self._services = tuple(services)
        # A single caller may use all: no share needs to be left for others.
        divided = len(self._tokens) > 1
        self._admission = Admission(self._options.limits, divided=divided)
        receipts = ReceiptSigner(self._options.receipt_key, rsmq.ns)
        idempotency = IdempotentCalls(divided=divided)
        self._context = BrokerContext(rsmq, self._options.limits, receipts, idempotency)
        self._server: Any = None
        self._health = cast(Any, health).aio.HealthServicer()  # known at run time only
        self._health_check: asyncio.Task[None] | None = None
        self._grace: anyio.CancelScope | None = None
        #: The addresses it listens on, with the actual ports.
        self.addresses: tuple[str, ...] = ()

    async def start(self) -> None:
        """Listen; ``InvalidValue`` if an address cannot be bound."""
        use_grpc()
        options, broker = self._options, self._context
        rules = {
            f"/{service.name}/{method}": rule
            for service in self._services
            for method, rule in service.rules.items()
        }
        interceptor = BrokerInterceptor(
            self._tokens, self._admission, broker.idempotency.broker_id, rules
        )
        self._server = grpc.aio.server(
            interceptors=[interceptor], options=_channel_options(options)
        )
        receiver = BoundedReceiver(broker, self._admission)
        queues = QueuesService(broker, self._admission, receiver)
        v1_pb2_grpc.add_QueuesServicer_to_server(queues, self._server)
        v1_pb2_grpc.add_TopicsServicer_to_server(TopicsService(broker), self._server)
        for service in self._services:
            service.register(self._server, broker, receiver)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [s.full_name for s in v1_pb2.DESCRIPTOR.services_by_name.values()]
        names += [service.name for service in self._services]
        if options.reflection:
            _reflect(self._server, names)
        self.addresses = tuple(self._bind(address) for address in options.listen)
        await self._report_health(names, serving=False)  # until Redis has answered
        await self._server.start()
        self._health_check = asyncio.create_task(
            self._check_health(names), name="aiorsmq-ng broker health"
        )

    async def stop(self) -> None:
        """Refuse new work, and let clients settle and calls end within the grace period."""
        if self._server is None:
            return
        if self._health_check is not None:
            self._health_check.cancel()
        await self._health.enter_graceful_shutdown()
        self._admission.stopping.set()
        until = anyio.current_time() + self._options.grace
        with anyio.move_on_after(self._options.grace) as self._grace:
            await self._context.streamed.empty()
            await self._context.loaned.empty()
            # Calls that waited for messages have ended by now; those that settle may still come.
            grace = max(_LAST_S, until - anyio.current_time())
            # Shielded: gRPC's own task would be cancelled, and every later stop with it.
            await asyncio.shield(self._server.stop(grace))
        await self._server.stop(_LAST_S)
        self._server = None
        for service in self._services:
            await service.close()

    @property
    def under_way(self) -> int:
        """Number of calls and streams in flight."""
        return self._admission.under_way

    @property
    def stopping(self) -> bool:
        """True if the broker is stopping and accepts no new work."""
        return self._admission.stopping.is_set()

    @property
    def state(self) -> Literal["starting", "running", "stopping", "stopped"]:
        """What the broker is doing, for probes."""
        if self.stopping:
            return "stopping" if self._server is not None else "stopped"
        return "running" if self._health_check is not None else "starting"

    def end_grace(self) -> None:
        """End the grace period of a stop in progress."""
        if self._grace is not None:
            self._grace.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _bind(self, address: str) -> str:
        tls, local = self._options.tls, address.startswith("unix:")
        is_local(address)  # raises for an invalid address
        try:
            if tls is None or local:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(
                    address,
                    grpc.ssl_server_credentials(
                        [(tls.key, tls.certificate)], tls.client_ca, tls.client_ca is not None
                    ),
                )
        except (RuntimeError, ValueError):
            port = 0
        if port == 0:
            check_free(address)  # gRPC does not say why
            raise InvalidValue(f"cannot listen on {address}: certificate and key do not match")
        if not local:
            return f"{address.rpartition(':')[0]}:{port}"
        with suppress(OSError):  # an abstract one has no file
            os.chmod(address.removeprefix("unix:").removeprefix("//"), 0o600)
        return address

    async def _check_health(self, names: list[str]) -> None:
        """Report to the health service whether Redis answers."""
        reported = False
        while True:
            serving = await self._redis_answers()
            if serving is not reported:
                reported = serving
                await self._report_health(names, serving=serving)
            await anyio.sleep(_PROBE_S)

    async def _report_health(self, names: list[str], *, serving: bool) -> None:
        states = health_pb2.HealthCheckResponse
        for name in ("", *names):
            await self._health.set(name, states.SERVING if serving else states.NOT_SERVING)

    async def _redis_answers(self) -> bool:
        try:
            async with asyncio.timeout(_PROBE_S):
                await self._rsmq.queue("health").exists()
        except (RSMQError, TimeoutError):
            return False
        return True


def _reflect(server: Any, names: list[str]) -> None:
    try:
        from grpc_reflection.v1alpha import reflection  # noqa: PLC0415 - only where it is wanted
    except ImportError:
        raise InvalidValue(
            'reflection needs grpcio-reflection: pip install "aiorsmq-ng[grpc]"'
        ) from None
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)


def _channel_options(options: BrokerOptions) -> list[tuple[str, int]]:
    limits = options.limits
    most = limits.calls + limits.streams
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),  # replies are bounded where they are made
        ("grpc.max_concurrent_streams", limits.connection_streams),
        # Bytes of each call that arrive before the broker reads its request, and no more.
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        ("grpc.http2.bdp_probe", 0),  # it would raise the window for fast clients
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # The interceptor limits bursts: it refuses calls, where gRPC would cancel some of them.
        ("grpc.server.max_pending_requests", most),
        ("grpc.server.max_pending_requests_hard_limit", 2 * most),
        ("grpc.so_reuseport", 0),  # a second broker on the same port is refused
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]
