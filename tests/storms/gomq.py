"""Clients of GOMQ on the broker, which know its proto only; peers and the broker are killed.

Three consumers of two peers each that share their messages (``--gomq share``), in a tight loop of
Observe without a pause. Publish has no request id, so one that is repeated may be stored twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from aiorsmq_ng.rpc import routeguide_pb2 as pb
from aiorsmq_ng.rpc.routeguide_pb2_grpc import RouteGuideStub

from .broker import Storm


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
