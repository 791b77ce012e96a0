"""Clients of GOMQ on the broker, which know its proto only; peers and the broker are killed.

Three consumers of two peers each that share their messages (``--gomq share``), in a tight loop of
Observe without a pause. Publish has no request id, so one that is repeated may be stored twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import grpc.aio

from aiorsmq_ng import RSMQ
from aiorsmq_ng.broker import Broker, BrokerOptions
from aiorsmq_ng.compat.gomq import Gomq
from aiorsmq_ng.rpc import routeguide_pb2 as pb
from aiorsmq_ng.rpc.routeguide_pb2_grpc import RouteGuideStub
from aiorsmq_ng.testing import PrivateServer

from ..lab import Verdict, Violation
from .broker import Storm

Figures = tuple[dict[str, Any], Verdict | None]


class GomqStorm(Storm):
    """One run."""

    peer: ClassVar[list[str]] = [str(Path(__file__).with_name("gomq_peer.py"))]
    settings: ClassVar[tuple[str, ...]] = ("--gomq", "share")
    stub: ClassVar[Any] = RouteGuideStub

    async def _subscribe(self, guide: Any, consumer: str) -> None:
        request = pb.Subscription(key="storm", consumerID=consumer)
        await guide.Subscribe(request, wait_for_ready=True)

    async def _publish_one(self, guide: Any, number: int) -> None:
        await self._until_answered(guide, pb.PublishRecord(key="storm", payload=b"%d" % number))


async def slow(messages: int, work_s: float) -> Figures:
    """Let a consumer of GOMQ's work for *work_s* on each message before it observes again.

    A reply has up to 50 messages, so it is away for longer than a peer may be silent.
    """
    handled: Counter[bytes] = Counter()
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        async with (
            Broker(rsmq, BrokerOptions(listen=("127.0.0.1:0",)), services=[Gomq()]) as broker,
            grpc.aio.insecure_channel(broker.addresses[0]) as channel,
        ):
            guide = RouteGuideStub(channel)
            await guide.Subscribe(pb.Subscription(key="storm", consumerID="slow"))
            for number in range(messages):
                await guide.Publish(pb.PublishRecord(key="storm", payload=b"%d" % number))
            empty = longest = 0
            while empty < 3:
                found = (await guide.Observe(pb.Identification(consumerID="slow"))).records
                handled.update(record.value.payload for record in found)
                empty = 0 if found else empty + 1
                longest = max(longest, len(found))
                await asyncio.sleep(work_s * len(found))
        (left,) = (await rsmq.topic("storm").describe()).subscriptions
    again = sum(handled.values()) - len(handled)
    verdict = Verdict(lost=messages - len(handled))
    if verdict.lost or again or left.attributes.msgs:
        what = f"{verdict.lost} lost, {again} again, {left.attributes.msgs} left"
        verdict.violations.append(Violation("gomq", what))
    return {
        "messages": messages, "handled": sum(handled.values()), "again": again,
        "seconds between two Observes": longest * work_s,
    }, verdict  # fmt: skip
