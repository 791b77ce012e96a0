"""Consume and Watch: streams that last until somebody ends them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import Any, Literal

import anyio

from aiorsmq_ng import (
    AccessDenied,
    ClientClosed,
    Delivery,
    InvalidValue,
    Queue,
    Subscription,
    Unavailable,
)

from ..rpc import v1_pb2 as pb
from .base import Shared, seconds, silence
from .budget import VISIT
from .held import Key, key_of
from .messages import receive, seen
from .room import Room, wait_for
from .status import BrokerError
from .tokens import CALLER

logger = logging.getLogger("aiorsmq_ng.broker")

#: Messages leased by one step; the next step begins when these are written, so this is what lies
#: in the broker's memory for a client that reads slowly. Bodies are taken to be as large as those
#: of the step before.
_STEP, _STEP_BYTES = 32, 500_000
_UNSETTLED = 10
#: How long a suspect waits until nothing else is in the client's hands, and keeps others away.
_ALONE_S = 30.0
#: Pauses while Redis is away.
_OUTAGE_BASE_S, _OUTAGE_CAP_S = 0.1, 2.0


class StreamCalls:
    """The calls whose answers come as they happen."""

    _shared: Shared
    _room: Room

    async def Consume(self, request: pb.ConsumeRequest, context: Any) -> None:
        """Hand out messages as they come, until the stream ends."""
        shared = self._shared
        queues = shared.sources(request)
        most = request.max_unsettled or _UNSETTLED
        if not 1 <= most <= shared.limits.unsettled:
            raise InvalidValue(
                f"max_unsettled must be between 1 and {shared.limits.unsettled}, not {most}"
            )
        stream = Stream(shared, queues, most, request)
        try:
            await _first(stream.run(context), self._room.stopping, stream.settled)
        finally:
            # A client that ends the stream, or dies, takes what it has with it; a broker that stops
            # gives it back.
            stream.close("r" if self._room.stopping.is_set() else "")
        raise BrokerError("stopping", "the broker is being stopped; consume elsewhere")

    async def Watch(self, request: pb.WatchRequest, context: Any) -> None:
        """Tell when something may have arrived."""
        shared = self._shared
        shared.batch("queues", request.queues)
        wait_for(len(request.queues))
        for name in request.queues:
            shared.check_queue(name)

        async def tell() -> None:
            async for names in shared.rsmq.watch(*request.queues):
                await context.write(pb.WatchResponse(queues=sorted(names)))

        await _first(tell(), self._room.stopping)
        raise BrokerError("stopping", "the broker is being stopped; watch elsewhere")


class Stream:
    """One Consume: what is in the client's hands, and what is to be written."""

    def __init__(
        self, shared: Shared, queues: list[Queue], most: int, request: pb.ConsumeRequest
    ) -> None:
        self._shared = shared
        # A lost lease is told of by a task that began in the call of somebody else.
        self._identity = CALLER.get().identity
        self._visit = VISIT.get()
        self._queues = queues
        self._most = most
        self._vt = seconds(request, "vt_ms")
        self._renews = not request.no_renewal
        self._max_bytes = shared.max_bytes(request.max_bytes)
        self._unsettled: dict[Key, Delivery] = {}
        #: How many messages make a step: one, until it is known how large they are; and for how
        #: many bytes there must be room before it.
        self._step, self._needs = 1, 1
        self._outbox: deque[Delivery] = deque()
        self._lost: deque[pb.LostLease] = deque()
        self._changed = asyncio.Event()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._stopped = asyncio.Event()
        self._settlement = asyncio.Event()
        self._silence_s = silence(request.sources[0].subscriber)

    async def run(self, context: Any) -> None:
        """Lease, write, and lease again, as long as the client reads and settles."""
        try:
            with ExitStack() as present:
                for queue in self._queues:
                    present.enter_context(queue.present())
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._fill)
                    for queue in self._queues:
                        if isinstance(queue, Subscription) and queue.peer:
                            tasks.start_soon(self._keep_alive, queue)
                    await self._write(context)
        except BaseExceptionGroup as group:
            raise _only(group) from None

    async def settled(self) -> None:
        """Take no more messages, and wait until those in the client's hands are settled."""
        self._stopped.set()
        self._settlement.set()
        while self._outbox:
            delivery = self._outbox.popleft()
            self._shared.held.settled(key_of(delivery))
            delivery.give_back()
        while self._unsettled:
            self._changed.clear()
            await self._changed.wait()

    def close(self, how: Literal["r", ""] = "") -> None:
        """Give back what is not settled. It goes on in the background.

        What the client has seen is returned in order (``"r"``), or has vanished with it.
        """
        self._stopped.set()
        unseen = {key_of(delivery) for delivery in self._outbox}
        for key, delivery in list(self._unsettled.items()):
            self._shared.held.settled(key)
            if not delivery.lease_lost:
                delivery.give_back(how="u" if key in unseen else how)

    async def _fill(self) -> None:
        pause = _OUTAGE_BASE_S
        while not self._stopped.is_set():
            room = self._most - len(self._unsettled)
            if room < 1 or self._outbox:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await self._visit.readable(self._needs)
                count, wait = min(room, self._step), self._shared.limits.wait
                taken = await receive(self._shared.rsmq, count, self._queues, self._vt, wait)
                if taken:
                    largest = max(1, *(len(delivery.body) for delivery in taken))
                    self._step = max(1, min(_STEP, _STEP_BYTES // largest))
                pause = _OUTAGE_BASE_S
            except Unavailable as error:
                if not error.transient:
                    raise
                logger.debug("cannot receive for a stream, trying again: %s", error)
                await anyio.sleep(pause)
                pause = min(2 * pause, _OUTAGE_CAP_S)
                continue
            size = sum(map(self._size, taken))
            fits = self._visit.more(size)
            # The next step is as small as these were large: room for one of them will do.
            self._needs = 1 if fits else max(map(self._size, taken), default=1)
            self._step = self._step if fits else 1
            if fits and taken and taken[0].suspect:
                await self._alone(taken[0])
                continue
            for delivery in taken:
                # The stream may have ended while they were on their way to it.
                if self._stopped.is_set() or not fits:
                    delivery.give_back()
                else:
                    self._hold(delivery)

    async def _alone(self, suspect: Delivery) -> None:
        """Hand out a suspect while nothing else is in the client's hands, and wait for its end."""
        suspect.origin.keeper.keep(suspect)
        try:
            await self._nothing_held()
        except BaseException:
            suspect.give_back()
            raise
        if self._stopped.is_set():
            suspect.give_back()
            return
        self._hold(suspect)
        await self._nothing_held()

    async def _nothing_held(self) -> None:
        with anyio.move_on_after(_ALONE_S):
            while self._unsettled and not self._stopped.is_set():
                self._settlement.clear()
                await self._settlement.wait()

    async def _keep_alive(self, subscription: Subscription) -> None:
        """Say that the peer is alive, also while it works on what it has."""
        while True:
            await anyio.sleep(self._silence_s / 4)
            with suppress(Unavailable, AccessDenied, ClientClosed):
                await subscription.keep_alive()

    async def _write(self, context: Any) -> None:
        while True:
            while self._lost or self._outbox:
                response = pb.ConsumeResponse(lost=self._lost)
                self._lost.clear()
                size = self._load(response)
                if response.deliveries or response.lost:
                    await context.write(response)
                self._visit.change(-size)
            # Everything is written: there is room for the next step.
            self._changed.set()
            await asyncio.sleep(0)
            if not self._outbox and not self._lost:
                self._changed.clear()
                await self._changed.wait()

    def _load(self, response: pb.ConsumeResponse) -> int:
        """Put as many deliveries into a response as fit, at least one; return their size."""
        room, size = self._max_bytes, 0
        while self._outbox:
            delivery = self._outbox[0]
            if response.deliveries and len(delivery.body) > room:
                break
            self._outbox.popleft()
            size += self._size(delivery)
            if key_of(delivery) in self._unsettled:
                room -= len(delivery.body)
                told = self._shared.delivery(
                    delivery, self._queues[0], self._max_bytes, self._identity
                )
                response.deliveries.append(told)
                delivery.body = b""  # it is the client's now; only the lease is kept
        response.dead_letters.extend(self._shared.letters(self._queues, room))
        return size

    def _size(self, delivery: Delivery) -> int:
        """Return the bytes of a body in a response; one that is too large is left out there."""
        return len(delivery.body) if len(delivery.body) <= self._max_bytes else 0

    def _hold(self, delivery: Delivery) -> None:
        key = key_of(delivery)
        self._unsettled[key] = delivery
        self._shared.held.add(delivery, self._free)
        delivery.on_lost = lambda: self._lose(key)
        if self._renews:
            delivery.origin.keeper.keep(delivery)
        else:
            self._time(key, delivery)
        self._outbox.append(delivery)
        self._changed.set()

    def _time(self, key: Key, delivery: Delivery) -> None:
        """Lose the lease when it ends, which an Extend may have made later."""
        loop = asyncio.get_running_loop()
        if loop.time() >= delivery.expires_at:
            self._lose(key)
        else:
            self._timers[key] = loop.call_at(delivery.expires_at, self._time, key, delivery)

    def _lose(self, key: Key) -> None:
        if (delivery := self._unsettled.get(key)) is None:
            return
        delivery.lease_lost = True
        receipt = self._shared.receipt(delivery, self._queues[0], self._identity)
        self._lost.append(pb.LostLease(queue=delivery.queue, id=delivery.id, receipt=receipt))
        self._shared.held.settled(key)

    def _free(self, key: Key) -> None:
        delivery = self._unsettled.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if delivery is not None:
            delivery.origin.keeper.drop(delivery)
        self._changed.set()
        self._settlement.set()


async def _first(
    work: Coroutine[Any, Any, None],
    stopping: asyncio.Event,
    after: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Do *work* until it ends or the broker stops; then let *after* end, while it goes on."""
    working = asyncio.ensure_future(work)
    working.add_done_callback(seen)
    waiting: asyncio.Future[Any] = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        if after is not None and not working.done():
            waiting = asyncio.ensure_future(after())
            await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        waiting.cancel()
        working.cancel()


def _only(group: BaseExceptionGroup[Any]) -> BaseException:
    """Return the error that ended a stream."""
    first = group.exceptions[0]
    return _only(first) if isinstance(first, BaseExceptionGroup) else first
