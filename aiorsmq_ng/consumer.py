"""Iterating over messages."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio

from .backoff import Backoff
from .delivery import Delivery
from .errors import Unavailable
from .leases import LeaseKeeper

logger = logging.getLogger("aiorsmq_ng.consumer")

_OUTAGE_BASE_S, _OUTAGE_CAP_S = 0.1, 5.0


async def consume(
    receive: Callable[[], Awaitable[list[Delivery]]], keeper: LeaseKeeper
) -> AsyncGenerator[Delivery, None]:
    """Yield what *receive* brings, one by one; keep the leases of those still in hand."""
    buffer: deque[Delivery] = deque()
    try:
        while True:
            if not buffer:
                buffer.extend(await _patiently(receive))
                for delivery in list(buffer)[1:]:
                    keeper.keep(delivery)
            delivery = buffer.popleft()
            keeper.drop(delivery)
            # A message whose lease was lost while it waited here belongs to somebody else.
            if not delivery.lease_lost:
                yield delivery
    finally:
        # All are on their way before the first wait, so a second cancellation changes nothing.
        if going := [delivery.give_back() for delivery in buffer]:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(going)


async def _patiently(receive: Callable[[], Awaitable[list[Delivery]]]) -> list[Delivery]:
    """Wait out outages; a client that was refused or closed is told so."""
    backoff = Backoff(_OUTAGE_BASE_S, _OUTAGE_CAP_S)
    while True:
        try:
            return await receive()
        except Unavailable as error:
            if not error.passing:
                raise
            logger.warning("cannot receive, trying again: %s", error)
        await anyio.sleep(backoff.next_s())
