"""Iterating over messages, some of them leased ahead of time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Self

import anyio

from ._runtime.outage_retries import retry_through_outages
from ._runtime.prefetch import Prefetch, still_leased
from ._runtime.queue_context import QueueContext
from .delivery import Delivery

#: Leases up to a number of messages; waits for the first.
Receive = Callable[[int], Awaitable[list[Delivery]]]

#: A consumer whose call to ``anext`` was cancelled goes on if the next call follows within this
#: time: a loop that calls it with a timeout costs no more.
IDLE_S = 0.1
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
        self._session: _Session | None = None
        self._closed = False

    async def __anext__(self) -> Delivery:
        session = self._session
        if (session is None or session.ended) and not self._closed:
            await self._context.transport.start()
            session = self._begin()
        if self._closed or session is None:
            raise StopAsyncIteration
        self._context.transport.check()
        return session.take_now() or await session.take()

    async def aclose(self) -> None:
        """End the iteration, and wait up to 2 s until messages leased ahead are given back.

        The give-backs go on if the caller is cancelled.
        """
        if going := self._close():
            await asyncio.wait(going, timeout=_GIVE_BACK_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # Called by the garbage collector at any moment, in any thread: the rest is done by the
        # event loop, which is not in the middle of anything then.
        if self._session is not None and not self._session.ended:
            self._context.transport.call_soon(self._session.end)

    def _begin(self) -> _Session | None:
        # Another task may have begun, or closed, meanwhile.
        if (self._session is None or self._session.ended) and not self._closed:
            self._session = _Session(self._context, self._receive, self._prefetch)
        return self._session

    def _close(self) -> list[asyncio.Future[Any]]:
        transport = self._context.transport
        if not transport.is_gone:
            transport.check()
        closed, self._closed = self._closed, True
        if closed or self._session is None or transport.is_gone:
            return []
        return self._session.end()


class _Session:
    """A consumer at work, from a call to ``anext`` until it ends.

    It also ends when a call was cancelled or has failed and no other follows soon. The consumer may
    never be collected then: a traceback that the program keeps (of a task, of a ``TimeoutError``)
    refers to it. A session does not refer to its consumer.
    """

    def __init__(self, context: QueueContext, receive: Receive, prefetch: int) -> None:
        self._context = context
        self._receive = receive
        self._prefetch = Prefetch(receive, context, prefetch) if prefetch > 1 else None
        self._takers = 0
        self._waiting: set[anyio.CancelScope] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self.ended = False
        context.presence.enter(context.keys)
        if self._prefetch is not None:
            context.transport.spawn(self._prefetch.fill)

    def take_now(self) -> Delivery | None:
        """Return the next message if there is one; a caller keeps the session going."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        return None if self._prefetch is None else self._prefetch.take_now()

    async def take(self) -> Delivery:
        """Return the next message, waiting for one; ``StopAsyncIteration`` once it has ended."""
        self._takers += 1
        try:
            return await (self._take_one() if self._prefetch is None else self._prefetch.take())
        except asyncio.CancelledError:
            if self._takers == 1 and not self.ended:
                self._idle_timer = asyncio.get_running_loop().call_later(IDLE_S, self.end)
            raise
        except Exception:
            if self._takers == 1:
                self.end()
            raise
        finally:
            self._takers -= 1

    async def _take_one(self) -> Delivery:
        # Not a prefetch of one: that would lease the next message while this one is worked on.
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                while True:
                    received = await retry_through_outages(partial(self._receive, 1))
                    for delivery in still_leased(received):
                        return delivery
            finally:
                self._waiting.discard(scope)
        raise StopAsyncIteration

    def end(self) -> list[asyncio.Future[Any]]:
        """End the session; return the give-backs in flight."""
        if self.ended:
            return []
        self.ended = True
        for scope in self._waiting:
            scope.cancel()
        self._context.presence.leave(self._context.keys)
        return [] if self._prefetch is None else self._prefetch.close()
