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
from .base import Shared, seconds
from .held import Key
from .receipts import BadReceipt, Proof
from .tokens import CALLER, Refused

Verb = Callable[[Delivery], Awaitable[None]]
#: Errors that concern the whole call, not one receipt.
_OF_ALL = (Unavailable, AccessDenied, NotSupported, ClientClosed)


class SettleCalls:
    """The calls that end a delivery, or make it longer."""

    _shared: Shared

    async def Ack(self, request: pb.AckRequest, _: Any) -> pb.SettleResponse:
        """Delete messages that are done with."""
        return await self._settle(request.receipts, lambda delivery: delivery.ack())

    async def Extend(self, request: pb.ExtendRequest, _: Any) -> pb.SettleResponse:
        """Hold messages longer."""
        vt = request.vt_ms / 1000
        return await self._settle(
            request.receipts, lambda delivery: delivery.extend(vt), lasts_s=vt
        )

    async def Release(self, request: pb.ReleaseRequest, _: Any) -> pb.SettleResponse:
        """Give messages back."""
        delay = request.delay_ms / 1000
        unseen = request.unseen
        return await self._settle(
            request.receipts, lambda delivery: delivery.release(delay, unseen=unseen)
        )

    async def Reject(self, request: pb.RejectRequest, _: Any) -> pb.SettleResponse:
        """Move messages to the dead-letter queue."""
        if request.dead_letter:
            self._shared.check_target(request.dead_letter)
        return await self._settle(
            request.receipts,
            lambda delivery: delivery.reject(request.reason or None),
            dead_letter=request.dead_letter,
        )

    async def Forward(self, request: pb.ForwardRequest, _: Any) -> pb.SettleResponse:
        """Move messages to another queue."""
        self._shared.check_target(request.target)
        target, delay = self._shared.queue(request.target), seconds(request, "delay_ms")
        return await self._settle(
            request.receipts, lambda delivery: delivery.forward(target, delay=delay)
        )

    async def _settle(
        self,
        receipts: Sequence[str],
        verb: Verb,
        *,
        lasts_s: float | None = None,
        dead_letter: str | None = None,
    ) -> pb.SettleResponse:
        """Do *verb*; *dead_letter*: where it moves them to, empty for where the receipts say."""
        self._shared.batch("receipts", receipts)
        # Run together, so that they share script calls.
        done = await asyncio.gather(
            *(self._settle_one(receipt, verb, lasts_s, dead_letter) for receipt in receipts)
        )
        errors = [error for _, error in done]
        if (first := errors[0]) is not None and all(isinstance(e, _OF_ALL) for e in errors):
            raise first
        response = pb.SettleResponse(outcomes=[outcome for outcome, _ in done])
        for index, error in enumerate(errors):
            if error is not None:
                response.errors.add(index=index, code=error.code, message=str(error))
        return response

    async def _settle_one(
        self, receipt: str, verb: Verb, lasts_s: float | None, dead_letter: str | None
    ) -> tuple[pb.Outcome, RSMQError | None]:
        shared = self._shared
        try:
            proof = shared.receipts.read(receipt, CALLER.get().identity)
            shared.check_proof(proof)  # the right may have been taken since
            if dead_letter == "" and proof.dead_letter:
                shared.check_target(proof.dead_letter)  # and this one
        except (BadReceipt, Refused):
            return pb.OUTCOME_BAD_RECEIPT, None
        key = proof[:4]
        held = shared.held.find(key)
        try:
            # The one that a stream holds knows of its renewals, so nothing overtakes them.
            await verb(held if held and not dead_letter else self._proven(proof, dead_letter))
        except LeaseLost as error:
            self._over(key)
            return (pb.OUTCOME_GONE if error.gone else pb.OUTCOME_RECEIVED_SINCE), None
        except RSMQError as error:
            return pb.OUTCOME_FAILED, error
        if lasts_s is None:
            self._over(key)
        else:
            shared.lent.extend(key, lasts_s)
        return pb.OUTCOME_DONE, None

    def _over(self, key: Key) -> None:
        self._shared.held.settled(key)
        self._shared.lent.settled(key)

    def _proven(self, proof: Proof, dead_letter: str | None) -> Delivery:
        queue = self._shared.rsmq.queue(
            proof.queue, dead_letter=dead_letter or proof.dead_letter or None
        )
        return queue.delivery((proof.id, proof.rc, proof.fr), vt=proof.vt_ms / 1000)
