"""Iterating over messages, some of them leased ahead of time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import anyio

from .backoff import Backoff
from .delivery import Delivery, Origin
from .errors import RSMQError, Unavailable
from .leases import LeaseKeeper

logger = logging.getLogger("aiorsmq_ng.consumer")

_OUTAGE_BASE_S, _OUTAGE_CAP_S = 0.1, 5.0

#: Lease up to so many messages, waiting for the first.
Receive = Callable[[int], Awaitable[list[Delivery]]]


async def consume(
    origin: Origin, receive: Receive, prefetch: int
) -> AsyncGenerator[Delivery, None]:
    """Yield messages one by one, *prefetch* of them leased ahead of time."""
    await origin.transport.start()
    origin.presence.enter(origin.keys)
    try:
        if prefetch == 1:
            while True:
                for delivery in await patiently(receive, 1):
                    yield delivery
        stock = Stock(receive, origin.keeper, prefetch)
        async with aclosing(_from_stock(origin, stock)) as deliveries:
            async for delivery in deliveries:
                yield delivery
    finally:
        with suppress(RSMQError):
            origin.presence.leave(origin.keys)


async def _from_stock(origin: Origin, stock: Stock) -> AsyncGenerator[Delivery, None]:
    origin.transport.spawn(stock.fill)
    try:
        while True:
            yield await stock.take()
    finally:
        # All are on their way before the first wait, so a second cancellation changes nothing.
        if going := stock.close():
            with anyio.CancelScope(shield=True):
                await asyncio.wait(going)


class Stock:
    """Leased messages that nobody works on yet. Their leases are renewed meanwhile."""

    def __init__(self, receive: Receive, keeper: LeaseKeeper, size: int) -> None:
        self._receive = receive
        self._keeper = keeper
        self._size = size
        self._held: deque[Delivery] = deque()
        self._filling = anyio.CancelScope()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._failure: Exception | None = None

    async def fill(self) -> None:
        """Refill whenever half is gone, until closed; never sleep while messages come."""
        with self._filling:
            try:
                while True:
                    while len(self._held) > self._size // 2:
                        self._taken.clear()
                        await self._taken.wait()
                    self._store(await patiently(self._receive, self._size - len(self._held)))
            except Exception as error:
                self._failure = error
                self._arrived.set()

    async def take(self) -> Delivery:
        """Return the next message, waiting for one."""
        while True:
            while not self._held:
                if self._failure is not None:
                    raise self._failure
                self._arrived.clear()
                await self._arrived.wait()
            delivery = self._held.popleft()
            self._keeper.drop(delivery)
            self._taken.set()
            # A message whose lease was lost while it waited here belongs to somebody else.
            if not delivery.lease_lost:
                return delivery

    async def take_many(self, count: int, wait_s: float) -> list[Delivery]:
        """Return *count* messages, or those that came within *wait_s* after the first.

        Their leases are kept while they gather. Cancelled, they go back into the stock.
        """
        taken = [await self.take()]
        try:
            with anyio.move_on_after(wait_s):
                while len(taken) < count:
                    self._keeper.keep(taken[-1])
                    taken.append(await self.take())
        except BaseException:
            self._held.extendleft(reversed(taken))
            raise
        return [delivery for delivery in taken if not delivery.lease_lost]

    def close(self) -> list[asyncio.Future[Any]]:
        """Stop filling and give everything back; return what is under way for that."""
        self._filling.cancel()
        held, self._held = self._held, deque()
        return [delivery.give_back() for delivery in held]

    def _store(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._keeper.keep(delivery)
        self._held.extend(deliveries)
        self._arrived.set()


async def patiently(receive: Receive, count: int) -> list[Delivery]:
    """Wait out outages; a client that was refused or closed is told so."""
    backoff = Backoff(_OUTAGE_BASE_S, _OUTAGE_CAP_S)
    while True:
        try:
            return await receive(count)
        except Unavailable as error:
            if not error.passing:
                raise
            logger.warning("cannot receive, trying again: %s", error)
        await anyio.sleep(backoff.next_s())
