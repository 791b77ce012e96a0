"""``routeguide.RouteGuide``: GOMQ's interface, so that its clients work unchanged.

The next Observe of a peer acknowledges what its last one returned. So nothing is lost on the way,
and what a client held when it crashed is delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import anyio

from aiorsmq_ng import InvalidValue, MessageTooLong, QueueNotFound, RSMQError, Topic

from ..._common.queue_defaults import DEFAULT_MAXSIZE
from ...broker.broker_context import BrokerContext
from ...broker.caller_limits import Rule
from ...broker.error_to_status import BrokerError
from ...broker.receive import BoundedReceiver
from ...broker.tokens import CALLER, CONSUMER, PRODUCER, Refused
from ...rpc import routeguide_pb2 as pb
from ...rpc import routeguide_pb2_grpc
from .connections import endpoint
from .peer import Peer
from .peer_registry import GomqMode, Peers
from .records import LIMIT, name_of, record, record_size

logger = logging.getLogger("aiorsmq_ng.broker")

#: Seconds that an Observe waits if there are no messages: GOMQ's clients ask again at once.
WAIT_S = 0.5
#: Seconds before the deadline of a call after which nothing is leased for it.
_MARGIN_S = 0.3


class Gomq:
    """Serves GOMQ's clients, for ``Broker(services=[Gomq()])``.

    Args:
        mode: ``copy``: each peer of a consumer gets its own copy of a message; ``share``: they
            share one.
    """

    #: Name of the gRPC service.
    name = pb.DESCRIPTOR.services_by_name["RouteGuide"].full_name
    #: What a call of each method needs.
    rules: Mapping[str, Rule] = {
        "Publish": Rule((PRODUCER,)),
        "Subscribe": Rule((CONSUMER,)),
        "Unsubscribe": Rule((CONSUMER,)),
        "Observe": Rule((CONSUMER,), waits=True, settles=True, fallback_response=pb.RecordSet),
    }

    def __init__(self, mode: GomqMode = "copy") -> None:
        self.mode: GomqMode = mode
        self._service: RouteGuideService | None = None

    def register(self, server: Any, broker: BrokerContext, receiver: BoundedReceiver) -> None:
        """Add the service to a gRPC server. The broker calls it.

        Args:
            server: the server of the broker.
            broker: what services of the broker share.
            receiver: leases messages within the limits of the broker.
        """
        self._service = RouteGuideService(broker, receiver, self.mode)
        routeguide_pb2_grpc.add_RouteGuideServicer_to_server(self._service, server)

    async def close(self) -> None:
        """Give back what was returned and is not acknowledged."""
        if self._service is not None:
            await self._service.close()


class RouteGuideService:
    """Every call of the service."""

    def __init__(self, broker: BrokerContext, receiver: BoundedReceiver, mode: GomqMode) -> None:
        self._broker = broker
        self._peers = Peers(broker, receiver, mode)

    async def Publish(self, request: pb.PublishRecord, _: Any) -> pb.Result:
        """Put a message into every subscription. It is stored when this returns."""
        topic = self._broker.topic(name_of(request.key))
        if record_size(request.key, len(request.payload)) > LIMIT:
            raise BrokerError(
                "messageTooLong",
                f"payload of {len(request.payload)} bytes does not fit into a reply of "
                f"{LIMIT} bytes, so no Observe could return it",
            )
        try:
            await topic.publish(request.payload)
        except MessageTooLong:
            # GOMQ limits only the size of a call. A limit that a user has set is kept.
            if not await _lift_limit(topic):
                raise
            await topic.publish(request.payload)
        return pb.Result(code=0)

    async def Subscribe(self, request: pb.Subscription, context: Any) -> pb.Result:
        """Subscribe the consumer, and this peer of it."""
        key, consumer = name_of(request.key), name_of(request.consumerID)
        self._broker.subscriber(key, consumer)
        await self._peers.subscribe(consumer, address(context), key)
        return pb.Result(code=0)

    async def Unsubscribe(self, request: pb.Subscription, _: Any) -> pb.Result:
        """End the subscription of the consumer for all its peers, as GOMQ does."""
        key, consumer = name_of(request.key), name_of(request.consumerID)
        self._broker.subscriber(key, consumer)
        await self._peers.unsubscribe(consumer, key)
        return pb.Result(code=0)

    async def Observe(self, request: pb.Identification, context: Any) -> pb.RecordSet:
        """Return ready messages for this peer, and acknowledge its last reply.

        An error is answered with an empty set, because GOMQ's clients crash on an error status.
        """
        caller, consumer = CALLER.get(), name_of(request.consumerID)
        try:
            peer = await self._peers.find(consumer, address(context))
            if peer is None:
                await anyio.sleep(WAIT_S)
                return pb.RecordSet()
            return await self._observe(
                peer,
                lambda key: caller.sees_subscription(key, consumer),
                context.time_remaining(),
            )
        except (RSMQError, Refused) as error:
            logger.warning("an Observe got an empty response: %s", error)
        except Exception:
            logger.exception("an Observe failed in an unexpected way; please report it")
        await anyio.sleep(WAIT_S)
        return pb.RecordSet()

    async def _observe(
        self, peer: Peer, allowed: Callable[[str], bool], remaining_s: float | None
    ) -> pb.RecordSet:
        arrived = anyio.current_time()
        upto, deadline = (
            peer.unacknowledged.arrive(),
            math.inf if remaining_s is None else arrived + remaining_s,
        )
        until = deadline - _MARGIN_S
        taken: list[tuple[str, Any]] = []
        try:
            if not await _acquired(peer.lock, until - arrived):
                # Another Observe of this peer is in flight, and this one has reached its deadline.
                peer.unacknowledged.leave()
                return pb.RecordSet()
            try:
                # First, or messages that the client has would be received again.
                await peer.unacknowledged.acknowledge(upto, arrived, expired=True)
                await self._peers.refresh(peer, allowed)
                # A reply after the deadline would count as received.
                if (left_s := until - anyio.current_time()) > 0:
                    taken = await peer.take(min(WAIT_S, left_s))
                # Only now: if the connection breaks before this, replies may be lost with it. Their
                # leases are renewed until then.
                await peer.unacknowledged.acknowledge(upto, arrived)
                peer.reply(taken, deadline)
            finally:
                peer.lock.release()
        except BaseException as error:
            peer.unacknowledged.leave()
            for _, delivery in taken:
                delivery.release_nowait(unseen=True)
            if isinstance(error, asyncio.CancelledError):
                logger.info("a peer disconnected during an Observe; its messages are given back")
            raise
        peer.unacknowledged.leave(answered=True)
        reply = pb.RecordSet(records=[record(key, delivery) for key, delivery in taken])
        for _, delivery in taken:
            delivery.body = b""  # in the reply; only the lease is kept
        return reply

    async def close(self) -> None:
        """Give back what was returned and is not acknowledged."""
        await self._peers.close()


def address(context: Any) -> str:
    """Return the caller's address as GOMQ writes it: ``127.0.0.1:5467``, ``[::1]:5467``."""
    peer: str = context.peer()
    if peer.startswith("unix"):
        # All clients would be one peer, and an Observe would acknowledge replies of another client.
        raise InvalidValue(
            "clients of GOMQ are identified by their addresses, and have none on a unix socket; "
            "connect by TCP"
        )
    host, _, port = unquote(peer).removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")
    return endpoint(host.strip("[]"), int(port)) if port.isdigit() else peer or "unknown"


async def _acquired(lock: asyncio.Lock, within_s: float) -> bool:
    """Acquire a lock. Return True if that was possible in time."""
    with anyio.move_on_after(max(0.0, within_s)):
        await lock.acquire()
        return True
    return False


async def _lift_limit(topic: Topic) -> bool:
    """Remove the size limit of the topic's own queue if it is the default one."""
    try:
        if (await topic.backlog.attributes()).maxsize != DEFAULT_MAXSIZE:
            return False
    except QueueNotFound:
        pass
    await topic.set_backlog(maxsize=-1)
    return True
