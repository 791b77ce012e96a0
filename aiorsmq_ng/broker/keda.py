"""``externalscaler.ExternalScaler``: KEDA asks a broker how much work a queue has.

A call names the queue, and what is counted, in the metadata of its trigger. With ``external-push``
KEDA keeps a stream open, on which the broker says within milliseconds that there is work.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from aiorsmq_ng import InvalidValue, Unavailable

from ..rpc import externalscaler_pb2 as pb
from ..rpc import externalscaler_pb2_grpc
from ..scaling import DUE_S, Scale, scale_of
from .broker_context import BrokerContext
from .caller_limits import Rule, count_sources
from .error_to_status import BrokerError
from .receive import BoundedReceiver
from .streams import run_until_stop
from .tokens import CONSUMER, PRODUCER

logger = logging.getLogger("aiorsmq_ng.broker")

#: Pause between two looks of a stream: delays and leases that end announce nothing.
LOOK_S = 5.0
#: Pause after a look at a queue that is idle.
_PAUSE_S = 0.02
#: Messages for one replica, if the trigger does not say.
TARGET = 10.0
#: States that may be counted.
_STATES = ("ready", "leased", "delayed", "due_soon")
_COUNT = "ready+leased"
_OURS = ("queue", "ns", "target", "count", "activation", "due", "token", "tokenFromEnv")
#: Keys that KEDA itself reads, and passes on.
_KEDAS = (
    "scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile", "caCert", "tlsClientCert",
    "tlsClientKey",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trigger:
    """The metadata of a trigger, checked."""

    queue: str
    #: Namespace; empty for that of the broker.
    ns: str
    #: Messages for one replica.
    target: float
    #: States that are counted.
    counted: tuple[str, ...]
    #: The queue is active above this number.
    activation: float
    #: Seconds before a delayed message is due at which it activates.
    due: float

    @classmethod
    def read(cls, metadata: Mapping[str, str]) -> Trigger:
        """Return the trigger; ``InvalidValue`` names a key that is missing or wrong."""
        if not metadata.get("queue"):
            raise InvalidValue("the trigger names no queue; add 'queue' to its metadata")
        counted = tuple(metadata.get("count", _COUNT).replace(" ", "").split("+"))
        wrong = [state for state in counted if state not in _STATES]
        if wrong or len(set(counted)) < len(counted):
            raise InvalidValue(
                f"'count' of the trigger is {metadata['count']!r}; it joins some of "
                f"{', '.join(_STATES)} by '+', each once"
            )
        target = _number(metadata, "target", TARGET)
        if target == 0:
            raise InvalidValue("'target' of the trigger must be more than 0")
        return cls(
            metadata["queue"],
            metadata.get("ns", ""),
            target,
            counted,
            _number(metadata, "activation", 0.0),
            _number(metadata, "due", DUE_S),
        )

    @property
    def metric(self) -> str:
        """Name of the metric; names of queues may have characters that those of metrics lack."""
        return "rsmq-" + re.sub(r"[^a-z0-9-]+", "-", self.queue.lower()).strip("-")

    def value(self, scale: Scale) -> int:
        """Return the number that is compared with the target."""
        return sum(getattr(scale, state) for state in self.counted)

    def active(self, scale: Scale) -> bool:
        """Return True if there must be at least one replica."""
        due_soon = 0 if {"due_soon", "delayed"} & set(self.counted) else scale.due_soon
        return self.value(scale) + due_soon > self.activation


def _number(metadata: Mapping[str, str], key: str, default: float) -> float:
    text = metadata.get(key)
    if text is None:
        return default
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise InvalidValue(f"{key!r} of the trigger must be a number from 0 on, not {text!r}")
    return found


def token_of(request: pb.ScaledObjectRef | pb.GetMetricsRequest) -> str | None:
    """Return the token in the metadata of a trigger: KEDA sends no headers.

    KEDA replaces the value of a key that ends in ``FromEnv`` by that of the environment variable.
    """
    ref = request.scaledObjectRef if isinstance(request, pb.GetMetricsRequest) else request
    found: str | None = ref.scalerMetadata.get("tokenFromEnv") or ref.scalerMetadata.get("token")
    return found


class Keda:
    """Serves KEDA, for ``Broker(services=[Keda()])``: its types ``external`` and ``external-push``.

    A token is taken from the metadata of the trigger, ``tokenFromEnv`` or ``token``. Its roles and
    names count as for ``GetStats``.
    """

    #: Name of the gRPC service.
    name = pb.DESCRIPTOR.services_by_name["ExternalScaler"].full_name
    #: What a call of each method needs.
    rules: Mapping[str, Rule] = {
        **{
            method: Rule((PRODUCER, CONSUMER), token_of=token_of)
            for method in ("IsActive", "GetMetricSpec", "GetMetrics")
        },
        "StreamIsActive": Rule((PRODUCER, CONSUMER), waits=True, token_of=token_of),
    }

    def register(self, server: Any, broker: BrokerContext, receiver: BoundedReceiver) -> None:
        """Add the service to a gRPC server. The broker calls it.

        Args:
            server: the server of the broker.
            broker: what services of the broker share.
            receiver: knows when the broker stops.
        """
        service = ScalerService(broker, receiver)
        externalscaler_pb2_grpc.add_ExternalScalerServicer_to_server(service, server)

    async def close(self) -> None:
        """Do nothing: it holds no messages."""


class ScalerService:
    """Every call of the service."""

    def __init__(self, broker: BrokerContext, receiver: BoundedReceiver) -> None:
        self._broker = broker
        self._receiver = receiver

    async def IsActive(self, request: pb.ScaledObjectRef, _: Any) -> pb.IsActiveResponse:
        """Return whether there must be at least one replica."""
        trigger = self._trigger(request)
        return pb.IsActiveResponse(result=trigger.active(await self._scale(trigger)))

    async def StreamIsActive(self, request: pb.ScaledObjectRef, context: Any) -> None:
        """Report whether there must be a replica: at once, and whenever that changes."""
        trigger = self._trigger(request)
        count_sources(1)
        await self._scale(trigger)  # an error is a reply, before the stream begins

        async def report() -> None:
            before = None
            async with aclosing(self._looks(trigger)) as looks:
                async for active in looks:
                    if active is not before:
                        before = active
                        await context.write(pb.IsActiveResponse(result=active))

        await run_until_stop(report(), self._receiver.stop)
        raise BrokerError("stopping", "the broker is being stopped; ask elsewhere")

    async def GetMetricSpec(self, request: pb.ScaledObjectRef, _: Any) -> pb.GetMetricSpecResponse:
        """Return how many messages one replica may have."""
        trigger = self._trigger(request)
        # Once for each start of a trigger. No error: a release of KEDA may pass on another key.
        if unknown := sorted(set(request.scalerMetadata) - {*_OURS, *_KEDAS}):
            logger.warning(
                "the trigger of queue %r has the unknown key %r, which is ignored; known are %s",
                *(trigger.queue, unknown[0], ", ".join(_OURS)),
            )
        await self._scale(trigger)  # a queue that does not exist is said here, too
        spec = pb.MetricSpec(
            metricName=trigger.metric,
            targetSize=max(1, round(trigger.target)),
            targetSizeFloat=trigger.target,
        )
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: pb.GetMetricsRequest, _: Any) -> pb.GetMetricsResponse:
        """Return how many messages there are."""
        trigger = self._trigger(request.scaledObjectRef)
        value = trigger.value(await self._scale(trigger))
        found = pb.MetricValue(
            metricName=request.metricName or trigger.metric,
            metricValue=value,
            metricValueFloat=value,
        )
        return pb.GetMetricsResponse(metricValues=[found])

    def _trigger(self, ref: pb.ScaledObjectRef) -> Trigger:
        trigger = Trigger.read(ref.scalerMetadata)
        self._broker.check_queue(trigger.queue)
        if trigger.ns not in ("", self._broker.rsmq.ns):
            raise InvalidValue(
                f"this broker serves namespace {self._broker.rsmq.ns!r}, not {trigger.ns!r}"
            )
        return trigger

    async def _scale(self, trigger: Trigger) -> Scale:
        return await scale_of(self._broker.queue(trigger.queue), due=trigger.due)

    async def _looks(self, trigger: Trigger) -> AsyncGenerator[bool, None]:
        """Yield whether the queue is active: every few seconds, and when work arrives if not.

        Arrivals in a queue that is active are not looked at: there may be thousands per second.
        """
        woken = asyncio.Event()

        async def wait() -> None:
            async for _ in self._broker.rsmq.watch(trigger.queue):
                woken.set()

        waiting = asyncio.create_task(wait(), name="aiorsmq-ng scaler")
        active = False
        try:
            while not waiting.done():
                woken.clear()
                try:
                    active = trigger.active(await self._scale(trigger))
                    yield active
                except Unavailable as error:
                    if not error.transient:
                        raise
                    logger.debug("cannot look at a queue for a scaler, trying again: %s", error)
                await asyncio.sleep(LOOK_S if active else _PAUSE_S)
                if not active:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await woken.wait()
            waiting.result()
        finally:
            waiting.cancel()
