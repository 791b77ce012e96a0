"""Iterating over messages, some of them leased ahead of time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import anyio

from ._runtime.prefetch import Session
from ._runtime.queue_context import QueueContext
from .delivery import Delivery
from .errors import RSMQError

#: Leases up to a number of messages; waits for the first.
Receive = Callable[[int], Awaitable[list[Delivery]]]

#: How long ``aclose`` waits for give-backs; they go on afterwards.
_GIVE_BACK_S = 2.0


class Consumer(AsyncIterator[Delivery]):
    """Iterates over the messages of a queue without end, some leased ahead of time.

    Ends by ``aclose``, from any task, at the end of an ``async with``, or when no reference to it
    is left (after a ``break``). Messages leased ahead are then given back. A call to ``anext``
    that is cancelled or times out takes no message, and the iteration can go on: the next call
    starts the consumer again if it does not follow at once.
    """

    def __init__(self, context: QueueContext, receive: Receive, prefetch: int) -> None:
        self._context = context
        self._receive = receive
        self._prefetch = prefetch
        self._session: Session[Delivery] | None = None
        self._closed = False

    async def __anext__(self) -> Delivery:
        session = self._session
        if (session is None or session.ended) and not self._closed:
            await self._context.transport.start()
            session = self._begin()
        if self._closed or session is None:
            raise StopAsyncIteration
        self._context.transport.check()
        if (acks := self._context.background_acks) is not None:
            acks.raise_error()
        return session.take_now() or await session.take()

    async def aclose(self) -> None:
        """End the iteration, and wait up to 2 s until messages leased ahead are given back.

        The give-backs go on if the caller is cancelled. A consumer that settles in the background
        waits for the replies to its acks, too, and raises the errors of those that failed.
        """
        if going := self._close():
            await asyncio.wait(going, timeout=_GIVE_BACK_S)
        if (acks := self._context.background_acks) is not None:
            await acks.drain()
            acks.raise_last()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        # A cancelled caller does not wait for a server that is away.
        limit_s = None if error is None else _GIVE_BACK_S
        try:
            with anyio.move_on_after(limit_s):
                await self.aclose()
        except RSMQError:
            # Failed acks are logged; what ends the loop is not replaced by them.
            if error is None:
                raise

    def __del__(self) -> None:
        # Called by the garbage collector at any moment, in any thread: the rest is done by the
        # event loop, which is not in the middle of anything then.
        if self._session is not None and not self._session.ended:
            self._context.transport.call_soon(self._session.end)

    def _begin(self) -> Session[Delivery] | None:
        # Another task may have begun, or closed, meanwhile.
        if (self._session is None or self._session.ended) and not self._closed:
            self._session = Session(self._context, self._receive, self._prefetch)
        return self._session

    def _close(self) -> list[asyncio.Future[Any]]:
        transport = self._context.transport
        if not transport.is_gone:
            transport.check()
        closed, self._closed = self._closed, True
        if closed or self._session is None or transport.is_gone:
            return []
        return self._session.end()
