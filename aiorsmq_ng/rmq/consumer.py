"""Iterating over deliveries of a queue of rmq."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Generic, Self, TypeVar

import anyio

from .._transport.transport import Transport
from ..errors import RSMQError
from .batch import RmqBatch
from .delivery import RmqDelivery
from .prefetch import RmqPrefetch

T = TypeVar("T", RmqDelivery, RmqBatch)

#: How long ``aclose`` waits for give-backs; they go on afterwards.
_GIVE_BACK_S = 2.0


class RmqConsumer(AsyncIterator[T], Generic[T]):
    """Iterates over the deliveries of a queue without end, or over batches of them.

    Ends by ``aclose``, at the end of an ``async with``, or when no reference to it is left (after
    a ``break``). What was taken ahead then goes back to the front of the queue, in order. A call to
    ``anext`` that is cancelled or times out takes nothing, and the iteration can go on.
    """

    def __init__(
        self,
        make_prefetch: Callable[[], RmqPrefetch],
        transport: Transport,
        size: int = 0,
        wait: float = 0.0,
    ) -> None:
        self._make_prefetch = make_prefetch
        self._transport = transport
        self._size = size
        self._wait = wait
        self._prefetch: RmqPrefetch | None = None
        self._closed = False

    async def __anext__(self) -> T:
        prefetch = await self._open()
        if prefetch.acks is not None:
            prefetch.acks.raise_error()
        if self._size:
            return RmqBatch(await prefetch.take_many(self._size, self._wait))  # type: ignore[return-value]
        return prefetch.take_now() or await prefetch.take()  # type: ignore[return-value]

    async def take_many(self, count: int, wait: float) -> list[RmqDelivery]:
        """Return *count* deliveries, or those that arrived within *wait* after the first.

        For programs that run handlers, such as a worker. If the call is cancelled, nothing is
        taken.

        Args:
            count: how many deliveries at most.
            wait: seconds to wait for more after the first.
        """
        return await (await self._open()).take_many(count, wait)

    def put_back(self, deliveries: list[RmqDelivery]) -> None:
        """Put back deliveries on which no work has begun; they are handed out next.

        Args:
            deliveries: deliveries of this consumer, oldest first.
        """
        if self._prefetch is not None:
            self._prefetch.put_back(deliveries)

    async def aclose(self) -> None:
        """End the iteration, and wait up to 2 s until what was taken ahead is given back.

        A consumer that settles in the background waits for the replies to its acks, too, and raises
        the errors of those that failed.
        """
        self._closed = True
        if self._prefetch is not None and not self._transport.is_gone:
            self._transport.check()
            await self._prefetch.aclose(_GIVE_BACK_S)
            if (acks := self._prefetch.acks) is not None:
                await acks.drain()
                acks.raise_last()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        try:
            # Also if the block was cancelled: what was taken ahead goes back before the end.
            with anyio.CancelScope(shield=True):
                await self.aclose()
        except RSMQError:
            # Failed acks are logged; what ends the loop is not replaced by them.
            if error is None:
                raise

    def __del__(self) -> None:
        # Called by the garbage collector at any moment, in any thread.
        prefetch, call_soon = self._prefetch, self._transport.call_soon
        if prefetch is not None and not prefetch.closed:
            # One tick later: a program whose main coroutine has just returned cancels all tasks in
            # between, and one that was started in this tick would never run.
            call_soon(partial(call_soon, prefetch.close))

    async def _open(self) -> RmqPrefetch:
        if self._closed:
            raise StopAsyncIteration
        if self._prefetch is None:
            await self._transport.start()
            if self._prefetch is None:
                self._prefetch = self._make_prefetch()
                self._transport.spawn(self._prefetch.run)
        self._transport.check()
        return self._prefetch
