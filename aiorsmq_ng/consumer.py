"""Iterating over messages, some of them leased ahead of time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Self

import anyio

from ._runtime.context import QueueContext
from ._runtime.outages import outlast
from ._transport.batching import GIVE_BACK_S
from .delivery import Delivery, fresh, give_back
from .errors import ClientClosed

#: Lease up to so many messages, waiting for the first.
Receive = Callable[[int], Awaitable[list[Delivery]]]

#: How soon after a cancelled call to ``anext`` the next has to follow: a consumer that is asked in
#: a loop with a time limit goes on, and costs no more.
REST_S = 0.1


class Consumer(AsyncIterator[Delivery]):
    """Iterates over the messages of a queue for ever, some leased ahead of time.

    Ends by ``aclose``, from any task, at the end of an ``async with``, or when it is no longer
    referred to (after a ``break``). Then what was leased ahead is given back. A call to ``anext``
    that is cancelled or times out takes no message, and the iteration can go on: the next call
    starts the consumer again if it does not follow at once.
    """

    def __init__(self, origin: QueueContext, receive: Receive, prefetch: int) -> None:
        self._origin = origin
        self._receive = receive
        self._prefetch = prefetch
        self._shift: _Shift | None = None
        self._closed = False

    async def __anext__(self) -> Delivery:
        shift = self._shift
        if (shift is None or shift.ended) and not self._closed:
            await self._origin.transport.start()
            shift = self._begin()
        if self._closed or shift is None:
            raise StopAsyncIteration
        self._origin.transport.check()
        return shift.take_now() or await shift.take()

    async def aclose(self) -> None:
        """End the iteration, and wait a few seconds at most until what was leased ahead is back.

        Giving it back goes on if the caller is cancelled meanwhile.
        """
        if going := self._close():
            await asyncio.wait(going, timeout=GIVE_BACK_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # Called by the garbage collector at any moment, in any thread: the rest is done by the
        # event loop, which is not in the middle of anything then.
        if self._shift is not None and not self._shift.ended:
            self._origin.transport.call_soon(self._shift.end)

    def _begin(self) -> _Shift | None:
        # Another task may have begun, or closed, meanwhile.
        if (self._shift is None or self._shift.ended) and not self._closed:
            self._shift = _Shift(self._origin, self._receive, self._prefetch)
        return self._shift

    def _close(self) -> list[asyncio.Future[Any]]:
        transport = self._origin.transport
        if not transport.is_gone:
            transport.check()
        closed, self._closed = self._closed, True
        if closed or self._shift is None or transport.is_gone:
            return []
        return self._shift.end()


class _Shift:
    """A consumer at work, from a call to ``anext`` until it ends or rests.

    It rests when a call was cancelled or has failed and no other follows: the consumer may never be
    collected then, for a traceback that the program keeps (of a task, of a ``TimeoutError``) refers
    to it. A shift does not refer to its consumer.
    """

    def __init__(self, origin: QueueContext, receive: Receive, prefetch: int) -> None:
        self._origin = origin
        self._receive = receive
        self._stock = Stock(receive, origin, prefetch) if prefetch > 1 else None
        self._takers = 0
        self._waiting: set[anyio.CancelScope] = set()
        self._rest: asyncio.TimerHandle | None = None
        self.ended = False
        origin.presence.enter(origin.keys)
        if self._stock is not None:
            origin.transport.spawn(self._stock.fill)

    def take_now(self) -> Delivery | None:
        """Return the next message if there is one; a caller keeps the shift from its rest."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        return None if self._stock is None else self._stock.take_now()

    async def take(self) -> Delivery:
        """Return the next message, waiting for one; ``StopAsyncIteration`` once it has ended."""
        self._takers += 1
        try:
            return await (self._take_one() if self._stock is None else self._stock.take())
        except asyncio.CancelledError:
            if self._takers == 1 and not self.ended:
                self._rest = asyncio.get_running_loop().call_later(REST_S, self.end)
            raise
        except Exception:
            if self._takers == 1:
                self.end()
            raise
        finally:
            self._takers -= 1

    async def _take_one(self) -> Delivery:
        # Not a stock of one: that would lease the next message while this one is worked on.
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                while True:
                    for delivery in fresh(await outlast(partial(self._receive, 1))):
                        return delivery
            finally:
                self._waiting.discard(scope)
        raise StopAsyncIteration

    def end(self) -> list[asyncio.Future[Any]]:
        """Take the consumer off, and return what is under way to give back what it has."""
        if self.ended:
            return []
        self.ended = True
        for scope in self._waiting:
            scope.cancel()
        self._origin.presence.leave(self._origin.keys)
        return [] if self._stock is None else self._stock.close()


class Stock:
    """Leased messages that are not handed out yet. Their leases are renewed meanwhile.

    A suspect is held alone: what else is there is given back when it comes, and nothing is leased
    ahead until its taker comes back for more.
    """

    def __init__(self, receive: Receive, origin: QueueContext, size: int) -> None:
        self._receive = receive
        self._keeper = origin.keeper
        self._closers = origin.transport.closers
        self._size = size
        self._held: deque[Delivery] = deque()
        self._filling = anyio.CancelScope()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._failure: Exception | None = None
        self._closed = False
        self._suspect: Delivery | None = None

    async def fill(self) -> None:
        """Refill whenever half is gone, until closed; never sleep while messages come."""
        if self._closed:
            return
        # A client that is closed first gives everything back by itself.
        self._closers.add(self._client_closes)
        with self._filling:
            try:
                while not self._closed:
                    while self._suspect is not None or 2 * len(self._held) > self._size:
                        self._taken.clear()
                        await self._taken.wait()
                    wanted = self._size - len(self._held)
                    self._store(await outlast(partial(self._receive, wanted)))
            except Exception as error:
                self._failure = error
                self._arrived.set()

    def take_now(self) -> Delivery | None:
        """Return the next message if there is one."""
        held = self._held
        if self._suspect is not None and not held:
            # The taker survived: it asks for the next message.
            self._suspect = None
            self._taken.set()
        while held:
            delivery = held.popleft()
            self._keeper.drop(delivery)
            if 2 * len(held) <= self._size:
                self._taken.set()
            # A message whose lease was lost while it waited here belongs to somebody else.
            if fresh([delivery]):
                return delivery
            if delivery is self._suspect:
                self._suspect = None
        return None

    async def take(self) -> Delivery:
        """Return the next message, waiting for one; ``StopAsyncIteration`` once it is closed."""
        while (delivery := self.take_now()) is None:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return delivery

    async def take_many(self, count: int, wait_s: float) -> list[Delivery]:
        """Return *count* messages, or those that came within *wait_s* after the first.

        Their leases are kept on. Cancelled, they go back into the stock.
        """
        taken: list[Delivery] = []
        try:
            await self._gather(taken, 1)
            if count > 1:
                with anyio.move_on_after(wait_s):
                    await self._gather(taken, count)
        except BaseException:
            self.put_back(taken)
            raise
        return taken

    async def _gather(self, taken: list[Delivery], count: int) -> None:
        while len(taken) < count and not (taken and taken[0].suspect):
            delivery = await self.take()
            if delivery.suspect:
                give_back(taken)
                taken.clear()
            taken.append(delivery)
            self._keeper.keep(delivery)

    @property
    def holds_suspect(self) -> bool:
        """Whether a suspect waits here: nothing should be begun before it."""
        return self._suspect is not None and bool(self._held)

    def put_back(self, deliveries: list[Delivery]) -> None:
        """Take back messages that nobody has begun to work on."""
        if self._closed:
            give_back(deliveries)
            return
        self._held.extendleft(reversed(deliveries))
        self._arrived.set()

    def close(self) -> list[asyncio.Future[Any]]:
        """Stop filling and give everything back; return what is under way for that."""
        self._closed = True
        self._filling.cancel()
        self._closers.discard(self._client_closes)
        held, self._held = self._held, deque()
        self._arrived.set()
        return give_back(held)

    def _client_closes(self) -> None:
        self._failure = ClientClosed("the client was closed")
        self.close()

    def _store(self, deliveries: list[Delivery]) -> None:
        if self._closed:
            # AnyIO does not cancel a task whose reply is there already.
            give_back(deliveries)
            return
        keep = self._keeper.keep
        for delivery in deliveries:
            keep(delivery)
            if delivery.suspect:
                give_back(self._held)
                self._held.clear()
                self._suspect = delivery
        self._held.extend(deliveries)
        self._arrived.set()
