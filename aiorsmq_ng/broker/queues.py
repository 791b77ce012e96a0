"""Calls on queues as such, and those that only look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import aiorsmq_ng
from aiorsmq_ng import QueueExists

from ..rpc import v1_pb2 as pb
from .base import Shared, message, seconds
from .room import MAX_BYTES
from .tokens import CALLER

M = TypeVar("M", bound=aiorsmq_ng.Message)


class QueueCalls:
    """Create, describe, change and empty queues."""

    _shared: Shared

    async def GetInfo(self, _request: pb.GetInfoRequest, _: Any) -> pb.GetInfoResponse:
        """Tell what this broker is and allows."""
        shared = self._shared
        return pb.GetInfoResponse(
            broker=shared.requests.broker,
            version=aiorsmq_ng.__version__,
            namespace=shared.rsmq.ns,
            identity=CALLER.get().identity,
            max_message_bytes=shared.limits.message_bytes,
            max_batch=shared.limits.batch,
            max_wait_ms=round(shared.limits.wait * 1000),
            max_unsettled=shared.limits.unsettled,
        )

    async def CreateQueue(self, request: pb.CreateQueueRequest, _: Any) -> pb.CreateQueueResponse:
        """Create a queue."""
        shared = self._shared
        shared.check_queue(request.queue)
        vt, delay = seconds(request, "vt_ms"), seconds(request, "delay_ms")

        async def work() -> pb.CreateQueueResponse:
            try:
                await shared.rsmq.create_queue(
                    request.queue,
                    vt=30 if vt is None else vt,
                    delay=delay or 0,
                    maxsize=request.maxsize if request.HasField("maxsize") else 65536,
                )
            except QueueExists:
                if not request.exist_ok:
                    raise
                return pb.CreateQueueResponse(created=False)
            return pb.CreateQueueResponse(created=True)

        return await shared.once("CreateQueue", request, work)

    async def DeleteQueue(self, request: pb.DeleteQueueRequest, _: Any) -> pb.DeleteQueueResponse:
        """Delete a queue."""
        shared = self._shared
        shared.check_queue(request.queue)

        async def work() -> pb.DeleteQueueResponse:
            await shared.rsmq.delete_queue(request.queue)
            return pb.DeleteQueueResponse()

        return await shared.once("DeleteQueue", request, work)

    async def ListQueues(self, _request: pb.ListQueuesRequest, _: Any) -> pb.ListQueuesResponse:
        """List the queues that the caller may use."""
        names = await self._shared.rsmq.list_queues()
        return pb.ListQueuesResponse(queues=filter(CALLER.get().sees_queue, names))

    async def GetAttributes(self, request: pb.GetAttributesRequest, _: Any) -> pb.QueueAttributes:
        """Describe a queue."""
        return attributes(await self._shared.queue(request.queue).attributes())

    async def SetAttributes(self, request: pb.SetAttributesRequest, _: Any) -> pb.QueueAttributes:
        """Change what is stored on a queue."""
        queue = self._shared.queue(request.queue)
        vt, delay = seconds(request, "vt_ms"), seconds(request, "delay_ms")
        maxsize = request.maxsize if request.HasField("maxsize") else None

        async def work() -> pb.QueueAttributes:
            return attributes(await queue.set_attributes(vt=vt, delay=delay, maxsize=maxsize))

        return await self._shared.once("SetAttributes", request, work)

    async def GetStats(self, request: pb.GetStatsRequest, _: Any) -> pb.QueueStats:
        """Describe a queue with its dead letters and consumers."""
        if request.dead_letter:
            self._shared.check_queue(request.dead_letter)
        queue = self._shared.queue(request.queue, dead_letter=request.dead_letter or None)
        stats = await queue.stats()
        return pb.QueueStats(
            attributes=attributes(stats.attributes),
            dead=stats.dead,
            consumers=_consumers(stats.consumers),
        )

    async def Announce(self, request: pb.AnnounceRequest, _: Any) -> pb.AnnounceResponse:
        """Say that a client consumes from a queue."""
        queue = self._shared.queue(request.queue)
        # Who speaks is told by the broker, not by the client.
        name = f"{CALLER.get().identity}/{request.name[:200]}"
        await queue.announce(name, max(0, request.consumers), request.holding[:100])
        return pb.AnnounceResponse()

    async def Purge(self, request: pb.PurgeRequest, _: Any) -> pb.PurgeResponse:
        """Remove messages in bulk."""
        queue = self._shared.queue(request.queue)

        async def work() -> pb.PurgeResponse:
            return pb.PurgeResponse(removed=await queue.purge(leased=request.leased))

        return await self._shared.once("Purge", request, work)

    async def Redrive(self, request: pb.RedriveRequest, _: Any) -> pb.RedriveResponse:
        """Move messages from one queue to another."""
        shared = self._shared
        target, source = shared.queue(request.target), shared.queue(request.source)
        count = request.count if request.HasField("count") else None
        if request.ids:
            shared.batch("ids", request.ids)
        ids = set(request.ids)

        async def work() -> pb.RedriveResponse:
            moved = await target.redrive(
                source,
                count=min(count or len(ids), len(ids)) if ids else count,
                where=(lambda found: found.id in ids) if ids else None,
            )
            return pb.RedriveResponse(moved=moved)

        return await shared.once("Redrive", request, work)

    async def DeleteMessages(
        self, request: pb.DeleteMessagesRequest, _: Any
    ) -> pb.DeleteMessagesResponse:
        """Delete messages by id."""
        self._shared.batch("ids", request.ids)
        queue = self._shared.queue(request.queue)

        async def work() -> pb.DeleteMessagesResponse:
            ids = await queue.delete_many(request.ids, only_leased=request.only_leased)
            return pb.DeleteMessagesResponse(ids=ids)

        return await self._shared.once("DeleteMessages", request, work)

    async def ChangeVisibility(
        self, request: pb.ChangeVisibilityRequest, _: Any
    ) -> pb.ChangeVisibilityResponse:
        """Make a message visible after some time."""
        queue = self._shared.queue(request.queue)

        async def work() -> pb.ChangeVisibilityResponse:
            changed = await queue.change_visibility(request.id, request.vt_ms / 1000)
            return pb.ChangeVisibilityResponse(changed=changed)

        return await self._shared.once("ChangeVisibility", request, work)


class LookCalls:
    """Read messages without leasing them."""

    _shared: Shared

    async def Peek(self, request: pb.PeekRequest, _: Any) -> pb.PeekResponse:
        """Read ready messages."""
        queue, count = self._shared.queue(request.queue), self._shared.count(request.count)
        found = await queue.peek(request.start, count)
        return pb.PeekResponse(messages=[message(m) for m in _fitting(found)])

    async def ListPending(self, request: pb.ListPendingRequest, _: Any) -> pb.ListPendingResponse:
        """Read leased messages."""
        queue, count = self._shared.queue(request.queue), self._shared.count(request.count)
        found = await queue.pending(request.start, count)
        return pb.ListPendingResponse(
            messages=[
                pb.PendingMessage(message=message(m), delivered=m.delivered, idle_ms=m.idle)
                for m in _fitting(found)
            ]
        )

    async def Scan(self, request: pb.ScanRequest, _: Any) -> pb.ScanResponse:
        """Read one page of the messages of every state."""
        queue, count = self._shared.queue(request.queue), self._shared.count(request.count)
        after = None
        if request.HasField("after"):
            place = request.after
            after = aiorsmq_ng.ScannedMessage(
                place.id, b"", 0, 0, visible_at=place.visible_at, now=0
            )
        response, size = pb.ScanResponse(), 0
        async for found in queue.scan(request.start, after=after, page=count):
            size += len(found.body)
            if response.messages and (size > MAX_BYTES or len(response.messages) == count):
                last = response.messages[-1]
                response.next.visible_at, response.next.id = last.visible_at, last.message.id
                break
            response.messages.add(
                message=message(found), visible_at=found.visible_at, state=found.state
            )
        return response

    async def GetReason(self, request: pb.GetReasonRequest, _: Any) -> pb.GetReasonResponse:
        """Tell why a message was rejected."""
        reason = await self._shared.queue(request.queue).reason(request.id)
        return pb.GetReasonResponse(reason=reason)


def _fitting(found: list[M]) -> list[M]:
    """Return as many as fit into a reply, and at least one."""
    size = 0
    for place, one in enumerate(found):
        size += len(one.body)
        if place and size > MAX_BYTES:
            return found[:place]
    return found


def _consumers(found: Sequence[aiorsmq_ng.ConsumerInfo]) -> list[pb.ConsumerInfo]:
    """Return who consumes; what they hold as far as it fits into a reply."""
    told, size = [], 0
    for one in found:
        size += sum(map(len, one.holding))
        told.append(
            pb.ConsumerInfo(
                name=one.name,
                consumers=one.consumers,
                holding=one.holding if size < MAX_BYTES // 2 else (),
                silent_ms=round(one.silent * 1000),
            )
        )
    return told


def attributes(found: aiorsmq_ng.QueueAttributes) -> pb.QueueAttributes:
    """Return attributes as they go over the wire."""
    age = found.oldest_age
    return pb.QueueAttributes(
        vt=found.vt,
        delay=found.delay,
        maxsize=found.maxsize,
        totalrecv=found.totalrecv,
        totalsent=found.totalsent,
        created=found.created,
        modified=found.modified,
        msgs=found.msgs,
        hiddenmsgs=found.hiddenmsgs,
        ready=found.ready,
        delayed=found.delayed,
        leased=found.leased,
        exact=found.exact,
        oldest_age_ms=None if age is None else round(age * 1000),
    )
