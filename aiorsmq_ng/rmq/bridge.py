"""Moves messages between queues of rmq and of RSMQ.

On one server every slice is one script, so a message is in one of the two queues at every moment,
also if the process is killed. Between two servers, or two nodes of a cluster, a slice is stored in
the target first and removed from the source afterwards: a kill between the two leaves it in both.
A bridge that is cancelled finishes its slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio

from .._common.tasks import retrieve_exception
from .._protocol.operations.rmq import bridge
from .._protocol.operations.rmq.messages import SLICE
from .._protocol.rmq_payload import pack
from .._runtime.queue_context import context_of
from ..delivery import Delivery
from ..errors import MessageTooLong, RSMQError, SendUnknown
from ..queue import Queue
from .batch import RmqBatch
from .consumer import RmqConsumer
from .delivery import RmqDelivery
from .queue import RmqQueue, keys_of, transport_of

#: Called with the size of every finished slice.
Progress = Callable[[int], None]
#: How long to wait before an empty source is looked at again.
IDLE_S = 0.5
#: How long a source that is not empty may take to deliver.
_PATIENCE_S = 5.0
#: How long a slice goes on when the bridge is cancelled.
_FINISH_S = 2.0


@dataclass(slots=True)
class BridgeReport:
    """What a move between the two families did."""

    #: Messages that are in the target now.
    moved: int = 0
    #: Payloads that are too long for the RSMQ queue; they are in the rejected list.
    rejected: int = 0
    #: Messages that another consumer has taken over meanwhile: they may be in the target twice.
    doubtful: int = 0


class Bridge:
    """Moves messages between a queue of rmq and one of RSMQ, in order, and counts them.

    Payloads of rmq are kept as they are, with rmq's header if there is one. Headers of a message of
    RSMQ become rmq's header before its body.

    Args:
        rmq_queue: the queue of rmq.
        rsmq_queue: the queue of RSMQ; it must exist.
        same_server: both are in one database of one server, and not in a cluster. If they are not,
            the queue of RSMQ is not found.
        follow: go on when the source is empty, until cancelled.
        progress: called with the size of every finished slice.
    """

    def __init__(
        self,
        rmq_queue: RmqQueue,
        rsmq_queue: Queue,
        *,
        same_server: bool = False,
        follow: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._rmq = rmq_queue
        self._rsmq = rsmq_queue
        self._same_server = same_server
        self._follow = follow
        self._progress = progress or (lambda _: None)
        #: What was done so far; also after an error or a cancellation.
        self.report = BridgeReport()

    async def to_rsmq(self, count: int | None = None) -> BridgeReport:
        """Move messages of rmq to RSMQ: what is ready now, or *count*.

        Args:
            count: how many at most; ``None`` for all that are ready.
        """
        await self._rsmq.attributes()  # QueueNotFound before anything is taken
        wanted = await self._wanted(count, (await self._rmq.lengths()).ready)
        if self._same_server:
            await self._repeat(wanted, self._step_to_rsmq)
        else:
            async with self._rmq.consume_batches(size=SLICE, wait=0.05) as batches:
                await self._repeat(wanted, lambda left: self._carry_to_rsmq(batches, left))
        return self.report

    async def from_rsmq(self, count: int | None = None) -> BridgeReport:
        """Move messages of RSMQ to rmq: what is ready now, or *count*.

        Args:
            count: how many at most; ``None`` for all that are ready.
        """
        wanted = await self._wanted(count, (await self._rsmq.attributes()).ready)
        await self._rmq.open()
        await self._repeat(
            wanted, self._step_from_rsmq if self._same_server else self._carry_from_rsmq
        )
        return self.report

    async def _wanted(self, count: int | None, ready: int) -> float:
        if count is not None:
            return count
        return float("inf") if self._follow else ready

    async def _repeat(self, wanted: float, step: Callable[[int], Awaitable[int]]) -> None:
        done = 0
        while done < wanted:
            now = await step(int(min(SLICE, wanted - done)))
            done += now
            if now:
                self._progress(now)
            elif self._follow:
                await anyio.sleep(IDLE_S)
            else:
                return

    async def _step_to_rsmq(self, count: int) -> int:
        target = context_of(self._rsmq)
        channel = target.channel(target.keys)
        step = await transport_of(self._rmq).run(
            bridge.to_rsmq(keys_of(self._rmq), target.keys, count, channel)
        )
        self.report.moved += step.moved
        self.report.rejected += step.others
        return step.moved + step.others

    async def _step_from_rsmq(self, count: int) -> int:
        source = context_of(self._rsmq)
        step = await transport_of(self._rmq).run(
            bridge.from_rsmq(source.keys, keys_of(self._rmq), count)
        )
        self.report.moved += step.moved
        return step.others

    async def _carry_to_rsmq(self, batches: RmqConsumer[RmqBatch], count: int) -> int:
        batch: RmqBatch | None = None
        while batch is None:
            with anyio.move_on_after(_PATIENCE_S):
                batch = await anext(batches)
            if batch is None and (await self._rmq.lengths()).ready == 0:
                return 0
        await RmqBatch(batch[count:]).release()
        return await _whole(self._store_in_rsmq(RmqBatch(batch[:count])))

    async def _store_in_rsmq(self, carried: RmqBatch) -> int:
        """Send a slice, and settle it."""
        try:
            too_long = await self._send(carried)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await carried.release()
            raise
        await RmqBatch(too_long).reject()
        lost = await carried.ack()
        self.report.moved += len(carried) - len(too_long)
        self.report.rejected += len(too_long)
        self.report.doubtful += len(lost)
        return len(carried)

    async def _send(self, batch: Sequence[RmqDelivery]) -> list[RmqDelivery]:
        """Send payloads in order; return those that are too long."""
        try:
            await _learn(self._rsmq, self._rsmq.send_many([d.payload for d in batch]))
        except MessageTooLong:
            if len(batch) == 1:
                return [*batch]
            # Nothing of it was sent.
            half = len(batch) // 2
            return [*await self._send(batch[:half]), *await self._send(batch[half:])]
        return []

    async def _carry_from_rsmq(self, count: int) -> int:
        received = await self._rsmq.receive_many(count)
        if not received:
            return 0
        return await _whole(self._store_in_rmq(received))

    async def _store_in_rmq(self, received: list[Delivery]) -> int:
        """Publish a slice, and ack it."""
        for delivery in received:
            delivery.hold()
        try:
            payloads = [pack([d.body], d.headers)[0] if d.headers else d.body for d in received]
            await _learn(self._rmq, self._rmq.publish_payloads(payloads))
        except BaseException:
            with anyio.CancelScope(shield=True):
                for delivery in received:
                    with suppress(RSMQError):
                        await delivery.release(unseen=True)
            raise
        acked = await self._rsmq.ack_many(received)
        self.report.moved += len(received)
        self.report.doubtful += len(received) - len(acked)
        return len(received)


async def _whole(carrying: Coroutine[Any, Any, int]) -> int:
    """Await a slice; it goes on for some seconds if the caller is cancelled.

    If it were given back between its two steps, its messages would be in both queues.
    """
    task = asyncio.create_task(carrying)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task], timeout=_FINISH_S)
                task.cancel()
                await asyncio.wait([task])
        retrieve_exception(task)


async def _learn(queue: Queue | RmqQueue, sending: Awaitable[object]) -> None:
    """Await a send; ask again if its outcome is not known: it is stored once."""
    try:
        await sending
    except SendUnknown as error:
        if error.token is None:
            raise
        await queue.resend(error.token)
