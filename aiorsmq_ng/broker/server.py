"""The broker as a whole: opens the door, and closes it in good order."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast

import anyio
import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from aiorsmq_ng import RSMQ, InvalidValue, QueueNotFound, RSMQError

from ..rpc import routeguide_pb2, routeguide_pb2_grpc, v1_pb2, v1_pb2_grpc
from ..rpc.forks import use_grpc
from .base import Shared
from .door import Door
from .gomq import RouteGuideService
from .held import Held, Lent
from .messages import MessageCalls, Taking
from .options import BrokerOptions, is_local
from .queues import LookCalls, QueueCalls
from .receipts import Receipts
from .requests import Requests
from .room import Room
from .settling import SettleCalls
from .streams import StreamCalls
from .tokens import Tokens
from .topics import TopicsService

logger = logging.getLogger("aiorsmq_ng.broker")

#: How often the way to Redis is tried for the health service, and how long an answer may take.
_PROBE_S = 2.0
#: What a call has at the end of the time of grace before it is cancelled.
_LAST_S = 0.5
#: A peer that says nothing for so long is asked whether it is there, and given up if it is not.
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 20_000, 10_000

#: Bytes of a request that are received before the door lets it in.
_UNREAD_BYTES = 16 * 1024
#: How long a connection may take before it speaks HTTP/2.
_HANDSHAKE_MS = 10_000


class QueuesService(QueueCalls, LookCalls, MessageCalls, SettleCalls, StreamCalls):
    """``aiorsmq.v1.Queues``, every call of it."""

    def __init__(self, shared: Shared, room: Room, taking: Taking) -> None:
        self._shared = shared
        self._room = room
        self._taking = taking


class Broker:
    """Serves the queues of *rsmq*, which is open, over gRPC.

    ``async with Broker(...)`` starts it and stops it in good order: nothing new is taken, messages
    in the hands of clients can be settled, streams give the rest back, calls under way end.
    """

    def __init__(
        self, rsmq: RSMQ, options: BrokerOptions | None = None, tokens: Tokens | None = None
    ) -> None:
        self._options = options or BrokerOptions()
        self._tokens = tokens or Tokens({})
        self._options.check(tokens=len(self._tokens) > 0)
        self._rsmq = rsmq
        # A single caller need not leave anything to others.
        divided = len(self._tokens) > 1
        self._requests = Requests(divided=divided)
        self._held = Held()
        self._lent = Lent()
        self._room = Room(self._options.limits, divided=divided)
        self._server: Any = None
        self._health = cast(Any, health).aio.HealthServicer()  # known at run time only
        self._probing: asyncio.Task[None] | None = None
        self._gomq: RouteGuideService | None = None
        self._waiting: anyio.CancelScope | None = None
        #: Where it listens, with the ports that were really taken.
        self.addresses: tuple[str, ...] = ()

    async def start(self) -> None:
        """Listen; ``InvalidValue`` if an address cannot be had."""
        use_grpc()
        options = self._options
        receipts = Receipts(options.receipt_key, self._rsmq.ns)
        shared = Shared(self._rsmq, options.limits, receipts, self._requests, self._held)
        self._lent = shared.lent
        self._server = grpc.aio.server(
            interceptors=[Door(self._tokens, self._room, self._requests.broker)],
            options=_channel_options(options),
        )
        taking = Taking(shared, self._room)
        queues = QueuesService(shared, self._room, taking)
        v1_pb2_grpc.add_QueuesServicer_to_server(queues, self._server)
        v1_pb2_grpc.add_TopicsServicer_to_server(TopicsService(shared), self._server)
        if options.gomq:
            self._gomq = RouteGuideService(shared, taking, options.gomq)
            routeguide_pb2_grpc.add_RouteGuideServicer_to_server(self._gomq, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = _services(gomq=options.gomq is not None)
        if options.reflection:
            _reflect(self._server, names)
        self.addresses = tuple(self._bind(address) for address in options.listen)
        await self._tell(names, well=False)  # until Redis has answered
        await self._server.start()
        self._probing = asyncio.create_task(self._probe(names), name="aiorsmq-ng broker health")

    async def stop(self) -> None:
        """Take nothing new, let messages be settled and calls end, for the time of grace."""
        if self._server is None:
            return
        if self._probing is not None:
            self._probing.cancel()
        await self._health.enter_graceful_shutdown()
        self._room.stopping.set()
        until = anyio.current_time() + self._options.grace
        with anyio.move_on_after(self._options.grace) as self._waiting:
            await self._held.empty()
            await self._lent.empty()
            # What waited for messages is answered by now, and what settles them may still come.
            await self._server.stop(max(_LAST_S, until - anyio.current_time()))
        await self._server.stop(_LAST_S)
        self._server = None
        if self._gomq is not None:
            await self._gomq.close()

    @property
    def under_way(self) -> int:
        """How many calls and streams there are."""
        return self._room.under_way

    @property
    def stopping(self) -> bool:
        """Whether it takes nothing new any more."""
        return self._room.stopping.is_set()

    def hurry(self) -> None:
        """Do not wait any longer for those who were asked to stop."""
        if self._waiting is not None:
            self._waiting.cancel()

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
        is_local(address)  # raises for one that is none
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
            raise InvalidValue(
                f"address {address!r} cannot be listened on: it is in use, not of this machine, or "
                "certificate and key do not fit"
            )
        if not local:
            return f"{address.rpartition(':')[0]}:{port}"
        with suppress(OSError):  # an abstract one has no file
            os.chmod(address.removeprefix("unix:").removeprefix("//"), 0o600)
        return address

    async def _probe(self, names: list[str]) -> None:
        """Tell the health service whether Redis answers."""
        told = False
        while True:
            well = await self._answers()
            if well is not told:
                told = well
                await self._tell(names, well=well)
            await anyio.sleep(_PROBE_S)

    async def _tell(self, names: list[str], *, well: bool) -> None:
        states = health_pb2.HealthCheckResponse
        for name in ("", *names):
            await self._health.set(name, states.SERVING if well else states.NOT_SERVING)

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(_PROBE_S):
                await self._rsmq.queue("health").attributes()
        except QueueNotFound:
            return True
        except (RSMQError, TimeoutError):
            return False
        return True


def _services(*, gomq: bool) -> list[str]:
    modules = (v1_pb2, routeguide_pb2) if gomq else (v1_pb2,)
    return [s.full_name for m in modules for s in m.DESCRIPTOR.services_by_name.values()]


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
        # What arrives before the door has read the request: so much of each call, and no more.
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        ("grpc.http2.bdp_probe", 0),  # or it would be more the faster the client is
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # A burst waits for the door, which knows how to refuse; gRPC by itself cancels some of it.
        ("grpc.server.max_pending_requests", most),
        ("grpc.server.max_pending_requests_hard_limit", 2 * most),
        ("grpc.so_reuseport", 0),  # a second broker on the same port is told so
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]
