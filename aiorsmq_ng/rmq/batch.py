"""Batches of deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ..errors import LeaseLost
from .delivery import RmqDelivery, RmqOutcome, settle, settle_block


class RmqBatch(list[RmqDelivery]):
    """Deliveries of one queue that are settled together, or one by one.

    The verbs settle those that are not settled yet, by one call, and return the errors of those
    that were lost. ``async with batch`` does what a delivery's block does, for all of them.
    """

    async def ack(self) -> list[LeaseLost]:
        """Remove the payloads: they are done."""
        return await self._settle("acked")

    async def reject(self) -> list[LeaseLost]:
        """Move the payloads to the rejected list."""
        return await self._settle("rejected")

    async def push(self) -> list[LeaseLost]:
        """Move the payloads to the push queue; without one, reject them."""
        return await self._settle("pushed")

    async def release(self) -> list[LeaseLost]:
        """Give the payloads back to the front of the queue, in order."""
        return await self._settle("released")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for group in self._by_connection():
            await settle_block(group, error)

    async def _settle(self, outcome: RmqOutcome) -> list[LeaseLost]:
        lost: list[LeaseLost] = []
        for group in self._by_connection():
            try:
                lost += await settle(group, outcome)
            except LeaseLost as error:
                lost.append(error)
        return lost

    def _by_connection(self) -> Sequence[list[RmqDelivery]]:
        """Return the open ones; a batch may have deliveries of two connections after an outage."""
        groups: dict[str, list[RmqDelivery]] = {}
        for delivery in self:
            if not delivery.settled:
                groups.setdefault(delivery.id.rpartition("#")[0], []).append(delivery)
        return list(groups.values())
