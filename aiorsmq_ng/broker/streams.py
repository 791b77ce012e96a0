"""Consume and Watch: streams that last until the client or the broker ends them."""

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

from .._common.tasks import retrieve_exception
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import message_size
from .broker_context import BrokerContext
from .caller_limits import Admission, count_sources
from .error_to_status import BrokerError
from .memory_budget import CALL_BUDGET
from .receive import receive
from .request_limits import peer_timeout, seconds
from .tokens import CALLER
from .unsettled_deliveries import DeliveryKey, key_of

logger = logging.getLogger("aiorsmq_ng.broker")

#: Messages leased by one step, and bytes of their bodies, estimated from the sizes in the step
#: before. The next step begins when these are written, so this is what the broker holds in memory
#: for a client that reads slowly.
_STEP, _STEP_BYTES = 32, 500_000
#: Unsettled messages of a stream if the client sets no limit.
_UNSETTLED = 10
#: How long a suspect waits for the client to settle everything else. It is then handed out alone.
_ALONE_S = 30.0
#: Pauses while Redis cannot be reached.
_OUTAGE_BASE_S, _OUTAGE_CAP_S = 0.1, 2.0


class ConsumeCalls:
    """The server-streaming calls."""

    _broker: BrokerContext
    _admission: Admission

    async def Consume(self, request: pb.ConsumeRequest, context: Any) -> None:
        """Write messages as they arrive, until the stream ends."""
        broker = self._broker
        queues = broker.sources(request)
        most = request.max_unsettled or _UNSETTLED
        if not 1 <= most <= broker.limits.unsettled:
            raise InvalidValue(
                f"max_unsettled must be between 1 and {broker.limits.unsettled}, not {most}"
            )
        stream = Stream(broker, queues, most, request)
        try:
            await run_until_stop(stream.run(context), self._admission.stopping, stream.settled)
        finally:
            # If the client ended the stream or died, the messages written to it count as vanished.
            # If the broker stops, they are released.
            stream.close("r" if self._admission.stopping.is_set() else "")
        raise BrokerError("stopping", "the broker is being stopped; consume elsewhere")

    async def Watch(self, request: pb.WatchRequest, context: Any) -> None:
        """Report queues in which messages may have arrived."""
        broker = self._broker
        broker.checks.batch("queues", len(request.queues))
        count_sources(len(request.queues))
        for name in request.queues:
            broker.check_queue(name)

        async def report() -> None:
            async for names in broker.rsmq.watch(*request.queues):
                await context.write(pb.WatchResponse(queues=sorted(names)))

        await run_until_stop(report(), self._admission.stopping)
        raise BrokerError("stopping", "the broker is being stopped; watch elsewhere")


class Stream:
    """One Consume call: the deliveries that the client holds, and those to be written."""

    def __init__(
        self, broker: BrokerContext, queues: list[Queue], most: int, request: pb.ConsumeRequest
    ) -> None:
        self._broker = broker
        # Lost leases are reported by a task that may have started in the call of another caller.
        self._identity = CALLER.get().identity
        self._budget = CALL_BUDGET.get()
        self._queues = queues
        self._most = most
        self._vt = seconds(request, "vt_ms")
        self._renews = not request.no_renewal
        self._max_bytes = broker.checks.max_bytes(request.max_bytes)
        self._unsettled: dict[DeliveryKey, Delivery] = {}
        #: Messages of the next step: one, until their size is known. The step begins when there is
        #: room for *needs* bytes.
        self._step, self._needs = 1, 1
        self._outbox: deque[Delivery] = deque()
        self._lost: deque[pb.LostLease] = deque()
        self._changed = asyncio.Event()
        self._timers: dict[DeliveryKey, asyncio.TimerHandle] = {}
        self._stopped = asyncio.Event()
        self._settlement = asyncio.Event()
        self._peer_timeout_s = peer_timeout(request.sources[0].subscriber)

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
        """Receive no more messages, and wait until the client has settled those it holds."""
        self._stopped.set()
        self._settlement.set()
        while self._outbox:
            delivery = self._outbox.popleft()
            self._broker.streamed.settled(key_of(delivery))
            delivery.release_nowait(unseen=True)
        while self._unsettled:
            self._changed.clear()
            await self._changed.wait()

    def close(self, how: Literal["r", ""] = "") -> None:
        """Give back what is not settled, in the background.

        With *how* ``"r"``, messages that the client has are released; else they have vanished.
        """
        self._stopped.set()
        unseen = {key_of(delivery) for delivery in self._outbox}
        for key, delivery in list(self._unsettled.items()):
            self._broker.streamed.settled(key)
            if not delivery.lease_lost:
                delivery.release_nowait(unseen=key in unseen, vanished=not how)

    async def _fill(self) -> None:
        pause = _OUTAGE_BASE_S
        while not self._stopped.is_set():
            room = self._most - len(self._unsettled)
            if room < 1 or self._outbox:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await self._budget.readable(self._needs)
                count, wait = min(room, self._step), self._broker.limits.wait
                taken = await receive(self._broker.rsmq, count, self._queues, self._vt, wait)
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
            fits = self._budget.more(size)
            # Without room, the next step is one message, and begins when there is room for it.
            self._needs = 1 if fits else max(map(self._size, taken), default=1)
            self._step = self._step if fits else 1
            if fits and taken and taken[0].suspect:
                await self._alone(taken[0])
                continue
            for delivery in taken:
                # The stream may have ended during the receive.
                if self._stopped.is_set() or not fits:
                    delivery.release_nowait(unseen=True)
                else:
                    self._hold(delivery)

    async def _alone(self, suspect: Delivery) -> None:
        """Hand out a suspect while the client holds nothing else, and wait for its settlement."""
        suspect.hold()
        try:
            await self._nothing_held()
        except BaseException:
            suspect.release_nowait(unseen=True)
            raise
        if self._stopped.is_set():
            suspect.release_nowait(unseen=True)
            return
        self._hold(suspect)
        await self._nothing_held()

    async def _nothing_held(self) -> None:
        with anyio.move_on_after(_ALONE_S):
            while self._unsettled and not self._stopped.is_set():
                self._settlement.clear()
                await self._settlement.wait()

    async def _keep_alive(self, subscription: Subscription) -> None:
        """Send keep-alives for the peer, also while it processes what it holds."""
        while True:
            await anyio.sleep(self._peer_timeout_s / 4)
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
                self._budget.change(-size)
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
            if response.deliveries and message_size(delivery) > room:
                break
            self._outbox.popleft()
            size += self._size(delivery)
            if key_of(delivery) in self._unsettled:
                room -= message_size(delivery)
                sent = self._broker.replies.delivery(
                    delivery, self._queues[0], self._max_bytes, self._identity
                )
                response.deliveries.append(sent)
                delivery.body = b""  # written; only the lease is kept
        response.dead_letters.extend(self._broker.replies.take_dead_letters(self._queues, room))
        return size

    def _size(self, delivery: Delivery) -> int:
        """Return the bytes of a message in a response, without a body that is too large."""
        size = message_size(delivery)
        return size if len(delivery.body) <= self._max_bytes else size - len(delivery.body)

    def _hold(self, delivery: Delivery) -> None:
        key = key_of(delivery)
        self._unsettled[key] = delivery
        self._broker.streamed.add(delivery, self._free)
        if self._renews:
            delivery.hold(lambda: self._lose(key))
        else:
            self._expire_later(key, delivery)
        self._outbox.append(delivery)
        self._changed.set()

    def _expire_later(self, key: DeliveryKey, delivery: Delivery) -> None:
        """Report the lease as lost when it ends, unless an Extend has moved the end."""
        loop = asyncio.get_running_loop()
        if loop.time() >= delivery.lease.expires_at:
            self._lose(key)
        else:
            self._timers[key] = loop.call_at(
                delivery.lease.expires_at, self._expire_later, key, delivery
            )

    def _lose(self, key: DeliveryKey) -> None:
        if (delivery := self._unsettled.get(key)) is None:
            return
        delivery.lease.lost = True
        receipt = self._broker.replies.receipt(delivery, self._queues[0], self._identity)
        self._lost.append(pb.LostLease(queue=delivery.queue, id=delivery.id, receipt=receipt))
        self._broker.streamed.settled(key)

    def _free(self, key: DeliveryKey) -> None:
        delivery = self._unsettled.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if delivery is not None:
            delivery.let_go()
        self._changed.set()
        self._settlement.set()


async def run_until_stop(
    work: Coroutine[Any, Any, None],
    stopping: asyncio.Event,
    after: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Run *work* until it ends. If the broker stops first, run *after* as well."""
    working = asyncio.ensure_future(work)
    working.add_done_callback(retrieve_exception)
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
