"""Calls that change nothing: describe the broker and queues, peek, list, scan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import aiorsmq_ng

from .._common.durations import epoch_ms
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import message_size, write_attributes, write_message
from .broker_context import BrokerContext
from .caller_limits import MAX_BYTES
from .receive import BoundedReceiver
from .tokens import CALLER

M = TypeVar("M", bound=aiorsmq_ng.Message)

#: Messages that are read at a time, even if they could be larger than a reply.
_PAGE = 8


class InspectionCalls:
    """Describe the broker and its queues, and read messages without leasing them."""

    _broker: BrokerContext
    _receiver: BoundedReceiver

    async def GetInfo(self, _request: pb.GetInfoRequest, _: Any) -> pb.GetInfoResponse:
        """Describe this broker and its limits."""
        broker = self._broker
        return pb.GetInfoResponse(
            broker=broker.idempotency.broker_id,
            version=aiorsmq_ng.__version__,
            namespace=broker.rsmq.ns,
            identity=CALLER.get().identity,
            max_message_bytes=broker.limits.message_bytes,
            max_batch=broker.limits.batch,
            max_wait_ms=round(broker.limits.wait * 1000),
            max_unsettled=broker.limits.unsettled,
        )

    async def ListQueues(self, _request: pb.ListQueuesRequest, _: Any) -> pb.ListQueuesResponse:
        """List the queues that the caller may use."""
        names = await self._broker.rsmq.list_queues()
        return pb.ListQueuesResponse(queues=filter(CALLER.get().sees_queue, names))

    async def GetAttributes(self, request: pb.GetAttributesRequest, _: Any) -> pb.QueueAttributes:
        """Describe a queue."""
        return write_attributes(await self._broker.queue(request.queue).attributes())

    async def GetStats(self, request: pb.GetStatsRequest, _: Any) -> pb.QueueStats:
        """Describe a queue with its dead letters and consumers."""
        if request.dead_letter:
            self._broker.check_queue(request.dead_letter)
        queue = self._broker.queue(request.queue, dead_letter=request.dead_letter or None)
        stats = await queue.stats()
        return pb.QueueStats(
            attributes=write_attributes(stats.attributes),
            dead=stats.dead,
            consumers=_consumers(stats.consumers),
        )

    async def Peek(self, request: pb.PeekRequest, _: Any) -> pb.PeekResponse:
        """Read ready messages."""
        queue, count = (
            self._broker.queue(request.queue),
            self._broker.checks.count(request.count),
        )
        shown, more = await self._read(queue, queue.peek, request.start, count)
        return pb.PeekResponse(messages=map(write_message, shown), more=more)

    async def ListPending(self, request: pb.ListPendingRequest, _: Any) -> pb.ListPendingResponse:
        """Read leased messages."""
        queue, count = (
            self._broker.queue(request.queue),
            self._broker.checks.count(request.count),
        )
        shown, more = await self._read(queue, queue.pending, request.start, count)
        return pb.ListPendingResponse(
            messages=[
                pb.PendingMessage(
                    message=write_message(m),
                    delivered=epoch_ms(m.delivered_at),
                    idle_ms=round(m.idle * 1000),
                )
                for m in shown
            ],
            more=more,
        )

    async def _read(
        self,
        queue: aiorsmq_ng.Queue,
        read: Callable[[int, int], Awaitable[list[M]]],
        start: int,
        count: int,
    ) -> tuple[list[M], bool]:
        """Return the messages that fit into a reply, and True if these are fewer than there are.

        Pages are small enough that little more than one reply is in memory.
        """
        # The last leased messages can only be read together.
        together = start < 0 and read == queue.pending
        largest = 1 if together else MAX_BYTES // await self._receiver.safe([queue], MAX_BYTES)
        found: list[M] = []
        done, left = 0, MAX_BYTES
        count = min(count, -start) if start < 0 else count
        while done < count:
            step = min(count - done, max(_PAGE, left // largest))
            page = await read(start + done, step)
            for one in page:
                left -= message_size(one)
                if found and left < 0:
                    return found, True
                found.append(one)
            done += step
            # From the end, there may be none at the first places.
            if start >= 0 and len(page) < step:
                break
        return found, False

    async def Scan(self, request: pb.ScanRequest, _: Any) -> pb.ScanResponse:
        """Read one page of the messages of every state."""
        queue, count = (
            self._broker.queue(request.queue),
            self._broker.checks.count(request.count),
        )
        after = None
        if request.HasField("after"):
            place = request.after
            after = aiorsmq_ng.ScannedMessage(
                place.id, b"", 0, 0, visible_at=place.visible_at, state="ready"
            )
        response, size = pb.ScanResponse(), 0
        async for found in queue.scan(request.start, count + 1, after=after):
            size += message_size(found)
            if response.messages and (size > MAX_BYTES or len(response.messages) == count):
                last = response.messages[-1]
                response.next.visible_at, response.next.id = last.visible_at, last.message.id
                break
            response.messages.add(
                message=write_message(found), visible_at=found.score, state=found.state
            )
        return response

    async def GetReason(self, request: pb.GetReasonRequest, _: Any) -> pb.GetReasonResponse:
        """Return why a message was rejected."""
        reason = await self._broker.queue(request.queue).reason(request.id)
        return pb.GetReasonResponse(reason=reason)


def _consumers(found: Sequence[aiorsmq_ng.ConsumerInfo]) -> list[pb.ConsumerInfo]:
    """Return the consumers, with as many of the ids they hold as fit into a reply."""
    shown, size = [], 0
    for one in found:
        size += sum(map(len, one.holding))
        shown.append(
            pb.ConsumerInfo(
                name=one.name,
                consumers=one.consumers,
                holding=one.holding if size < MAX_BYTES // 2 else (),
                idle_ms=round(one.idle * 1000),
            )
        )
    return shown
