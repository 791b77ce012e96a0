"""Ack, Extend, Release, Reject, Forward: every receipt has an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiorsmq_ng import (
    AccessDenied,
    ClientClosed,
    Delivery,
    LeaseLost,
    NotSupported,
    RSMQError,
    Unavailable,
)

from ..rpc import v1_pb2 as pb
from .broker_context import BrokerContext
from .error_to_status import error_status
from .receipts import BadReceipt, ReceiptContent
from .request_limits import seconds
from .tokens import CALLER, Refused
from .unsettled_deliveries import DeliveryKey

Verb = Callable[[Delivery], Awaitable[None]]
#: Errors that concern the whole call, not one receipt.
_OF_ALL = (Unavailable, AccessDenied, NotSupported, ClientClosed)


class SettleCalls:
    """End a delivery, or extend its lease."""

    _broker: BrokerContext

    async def Ack(self, request: pb.AckRequest, _: Any) -> pb.SettleResponse:
        """Delete processed messages."""
        return await self._settle(request.receipts, lambda delivery: delivery.ack())

    async def Extend(self, request: pb.ExtendRequest, _: Any) -> pb.SettleResponse:
        """Extend the leases of messages."""
        vt = request.vt_ms / 1000
        return await self._settle(
            request.receipts, lambda delivery: delivery.extend(vt), lease_s=vt
        )

    async def Release(self, request: pb.ReleaseRequest, _: Any) -> pb.SettleResponse:
        """Release messages, which become visible again."""
        delay = request.delay_ms / 1000
        unseen = request.unseen
        return await self._settle(
            request.receipts, lambda delivery: delivery.release(delay, unseen=unseen)
        )

    async def Reject(self, request: pb.RejectRequest, _: Any) -> pb.SettleResponse:
        """Move messages to the dead-letter queue."""
        if request.dead_letter:
            self._broker.check_target(request.dead_letter)
        return await self._settle(
            request.receipts,
            lambda delivery: delivery.reject(request.reason or None),
            dead_letter=request.dead_letter,
        )

    async def Forward(self, request: pb.ForwardRequest, _: Any) -> pb.SettleResponse:
        """Move messages to another queue."""
        self._broker.check_target(request.target)
        target, delay = self._broker.queue(request.target), seconds(request, "delay_ms")
        return await self._settle(
            request.receipts, lambda delivery: delivery.forward(target, delay=delay)
        )

    async def _settle(
        self,
        receipts: Sequence[str],
        verb: Verb,
        *,
        lease_s: float | None = None,
        dead_letter: str | None = None,
    ) -> pb.SettleResponse:
        """Apply *verb*; *dead_letter* is where it moves them, empty for what the receipts say."""
        self._broker.checks.batch("receipts", len(receipts))
        # Run concurrently, so that they share script calls.
        done = await asyncio.gather(
            *(self._settle_one(receipt, verb, lease_s, dead_letter) for receipt in receipts)
        )
        errors = [error for _, error in done]
        if (first := errors[0]) is not None and all(isinstance(e, _OF_ALL) for e in errors):
            raise first
        response = pb.SettleResponse(outcomes=[outcome for outcome, _ in done])
        for index, error in enumerate(errors):
            if error is not None:
                response.errors.add(index=index, error=error_status(error).as_message())
        return response

    async def _settle_one(
        self, receipt: str, verb: Verb, lease_s: float | None, dead_letter: str | None
    ) -> tuple[pb.Outcome, RSMQError | None]:
        broker = self._broker
        try:
            content = broker.receipts.verify(receipt, CALLER.get().identity)
            broker.check_receipt(content)  # the token may have changed
            if dead_letter == "" and content.dead_letter:
                broker.check_target(content.dead_letter)  # likewise
        except (BadReceipt, Refused):
            return pb.OUTCOME_BAD_RECEIPT, None
        key = content[:4]
        held = broker.streamed.find(key)
        try:
            # The delivery of a stream orders the verb after a renewal in flight.
            await verb(
                held if held and not dead_letter else self._delivery_of(content, dead_letter)
            )
        except LeaseLost as error:
            self._settled(key)
            return (pb.OUTCOME_GONE if error.gone else pb.OUTCOME_RECEIVED_SINCE), None
        except RSMQError as error:
            return pb.OUTCOME_FAILED, error
        if lease_s is None:
            self._settled(key)
        else:
            broker.loaned.extend(key, lease_s)
        return pb.OUTCOME_DONE, None

    def _settled(self, key: DeliveryKey) -> None:
        self._broker.streamed.settled(key)
        self._broker.loaned.settled(key)

    def _delivery_of(self, content: ReceiptContent, dead_letter: str | None) -> Delivery:
        queue = self._broker.rsmq.queue(
            content.queue, dead_letter=dead_letter or content.dead_letter or None
        )
        return queue.delivery((content.id, content.rc, content.fr), vt=content.vt_ms / 1000)
