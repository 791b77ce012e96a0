"""Prefetch: messages leased ahead of time, for a consumer or a worker.

The buffer holds a message as soon as it arrives: its lease is registered once, and passes on with
it. A worker takes a message with its lease (``take_many``). The caller of a consumer may never work
on the message that it gets, so that one is handed over (``take``): its lease is renewed again
inside its ``async with`` block.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import anyio

from ..errors import ClientClosed, WrongContext
from .lease_renewal import Lease, has_ended, seconds_over
from .queue_context import QueueContext
from .wait_for_server import retry_through_outages

logger = logging.getLogger("aiorsmq_ng.prefetch")

#: A consumer whose call to ``anext`` was cancelled goes on if the next call follows within this
#: time: a loop that calls it with a timeout costs no more.
IDLE_S = 0.1


class LeasedMessage(Protocol):
    """What the buffer needs of a delivery."""

    lease: Lease

    @property
    def suspect(self) -> bool:
        """True if the holder of the delivery before this one vanished."""
        ...

    def release_nowait(self, *, unseen: bool) -> asyncio.Future[Any]:
        """Start to release the message."""
        ...


D = TypeVar("D", bound=LeasedMessage)


def give_back(messages: Iterable[LeasedMessage]) -> list[asyncio.Future[Any]]:
    """Start to release messages on which no work has begun; return the calls in flight.

    A closed client cannot release; it renews no leases, so those of the messages end.
    """
    releases = []
    for message in messages:
        with suppress(ClientClosed, WrongContext):
            releases.append(message.release_nowait(unseen=True))
    return releases


def still_leased(messages: list[D]) -> list[D]:
    """Return the messages whose leases hold; give the others back.

    After a stall of the event loop, expired leases are not marked yet: the task that renews them
    was stalled, too. Another client may be at work on such a message.
    """
    now = asyncio.get_running_loop().time()
    late = [message for message in messages if has_ended(message.lease, now)]
    if not late:
        return messages
    _give_back_late(late)
    # Not by comparing messages: after a long stall there are many of both.
    gone = {id(message) for message in late}
    return [message for message in messages if id(message) not in gone]


def _give_back_late(late: list[D]) -> None:
    now = asyncio.get_running_loop().time()
    if over_s := max(seconds_over(message.lease, now) for message in late):
        logger.warning(
            "the event loop was blocked for more than %.1f s: work on %d messages of queue %r is "
            "not begun, their leases have ended; run what blocks by asyncio.to_thread",
            over_s, len(late), late[0].lease.queue,
            extra={"queue": late[0].lease.queue, "count": len(late), "seconds": over_s},
        )  # fmt: skip
    give_back(late)


class Prefetch(Generic[D]):
    """A buffer of leased messages that is refilled when half of it is gone.

    A suspect is held alone: when it arrives, all other messages are given back, and no message is
    leased ahead until the caller that took the suspect asks for more.
    """

    def __init__(
        self, receive: Callable[[int], Awaitable[list[D]]], context: QueueContext, size: int
    ) -> None:
        self._receive = receive
        self._closers = context.transport.closers
        self._keeper = context.keeper
        self._size = size
        self._messages: deque[D] = deque()
        self._filling = anyio.CancelScope()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._failure: Exception | None = None
        self._closed = False
        self._suspect: D | None = None

    async def fill(self) -> None:
        """Refill when half is gone, until closed; does not pause while messages arrive."""
        if self._closed:
            return
        # A client that is closed first gives everything back by itself.
        self._closers.add(self._client_closes)
        with self._filling:
            try:
                while not self._closed:
                    while self._suspect is not None or 2 * len(self._messages) > self._size:
                        self._taken.clear()
                        await self._taken.wait()
                    wanted = self._size - len(self._messages)
                    self._store(await retry_through_outages(partial(self._receive, wanted)))
            except Exception as error:
                self._failure = error
                self._arrived.set()

    def take_now(self) -> D | None:
        """Hand over the next message if there is one."""
        now = asyncio.get_running_loop().time()
        while (message := self._next()) is not None:
            if not has_ended(message.lease, now):
                self._keeper.hand_over(message.lease)
                return message
            # A message whose lease was lost in the buffer belongs to another client.
            _give_back_late([message])
        return None

    async def take(self) -> D:
        """Hand over the next message, waiting for one; ``StopAsyncIteration`` once it is closed."""
        while (message := self.take_now()) is None:
            await self._wait()
        return message

    async def take_many(self, count: int, wait_s: float) -> list[D]:
        """Return *count* messages, or those that arrived within *wait_s* after the first.

        The caller holds them from now on, with their leases. On a cancellation they stay in the
        buffer.
        """
        taken: list[D] = []
        try:
            await self._gather(taken, 1)
            if count > 1:
                with anyio.move_on_after(wait_s):
                    await self._gather(taken, count)
        except BaseException:
            self.put_back(taken)
            raise
        return taken

    async def _gather(self, taken: list[D], count: int) -> None:
        while len(taken) < count and not (taken and taken[0].suspect):
            while (message := self._next()) is None:
                await self._wait()
            if message.suspect:
                give_back(taken)
                taken.clear()
            taken.append(message)

    @property
    def ahead(self) -> tuple[D, ...]:
        """The messages in the buffer."""
        return tuple(self._messages)

    @property
    def holds_suspect(self) -> bool:
        """True if a suspect is in the buffer; it should be taken before new work begins."""
        return self._suspect is not None and bool(self._messages)

    def put_back(self, messages: list[D]) -> None:
        """Put messages back on which no work has begun."""
        if self._closed:
            give_back(messages)
            return
        self._messages.extendleft(reversed(messages))
        self._arrived.set()

    def close(self) -> list[asyncio.Future[Any]]:
        """Stop filling and give everything back; return the releases in flight."""
        self._closed = True
        self._filling.cancel()
        self._closers.discard(self._client_closes)
        messages, self._messages = self._messages, deque()
        self._arrived.set()
        return give_back(messages)

    def _next(self) -> D | None:
        if not self._messages:
            if self._suspect is not None:
                # Its caller survived: it asks for the next message.
                self._suspect = None
                self._taken.set()
            return None
        message = self._messages.popleft()
        if 2 * len(self._messages) <= self._size:
            self._taken.set()
        return message

    async def _wait(self) -> None:
        """Wait until messages have arrived; raise if filling failed, or the buffer is closed."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StopAsyncIteration
        self._arrived.clear()
        await self._arrived.wait()

    def _client_closes(self) -> None:
        self._failure = ClientClosed("the client was closed")
        self.close()

    def _store(self, messages: list[D]) -> None:
        if self._closed:
            # AnyIO does not cancel a task whose reply has arrived already.
            give_back(messages)
            return
        self._keeper.keep(*[message.lease for message in messages])
        for message in messages:
            if message.suspect:
                give_back(self._messages)
                self._messages.clear()
                self._suspect = message
        self._messages.extend(messages)
        self._arrived.set()


class Session(Generic[D]):
    """A consumer at work, from a call to ``anext`` until it ends.

    It also ends when a call was cancelled or has failed and no other follows soon. The consumer may
    never be collected then: a traceback that the program keeps (of a task, of a ``TimeoutError``)
    refers to it. A session does not refer to its consumer.
    """

    def __init__(
        self, context: QueueContext, receive: Callable[[int], Awaitable[list[D]]], prefetch: int
    ) -> None:
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

    def take_now(self) -> D | None:
        """Return the next message if there is one; a caller keeps the session going."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        return None if self._prefetch is None else self._prefetch.take_now()

    async def take(self) -> D:
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

    async def _take_one(self) -> D:
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
