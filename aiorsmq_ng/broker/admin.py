"""Calls that create, change, empty and delete queues, and change messages by id."""

from __future__ import annotations

from typing import Any

from aiorsmq_ng import InvalidValue, QueueExists

from .._common.queue_defaults import DEFAULT_DELAY, DEFAULT_MAXSIZE, DEFAULT_VT
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import optional, write_attributes
from .broker_context import BrokerContext
from .request_limits import seconds
from .tokens import CALLER


class AdminCalls:
    """Create, change, empty and delete queues."""

    _broker: BrokerContext

    async def CreateQueue(self, request: pb.CreateQueueRequest, _: Any) -> pb.CreateQueueResponse:
        """Create a queue."""
        broker = self._broker
        broker.check_queue(request.queue)
        vt, delay = seconds(request, "vt_ms"), seconds(request, "delay_ms")

        async def work() -> pb.CreateQueueResponse:
            try:
                await broker.rsmq.create_queue(
                    request.queue,
                    vt=DEFAULT_VT if vt is None else vt,
                    delay=delay or DEFAULT_DELAY,
                    maxsize=optional(request, "maxsize", DEFAULT_MAXSIZE),
                )
            except QueueExists:
                if not request.exist_ok:
                    raise
                return pb.CreateQueueResponse(created=False)
            return pb.CreateQueueResponse(created=True)

        return await broker.once("CreateQueue", request, work)

    async def DeleteQueue(self, request: pb.DeleteQueueRequest, _: Any) -> pb.DeleteQueueResponse:
        """Delete a queue."""
        broker = self._broker
        broker.check_queue(request.queue)

        async def work() -> pb.DeleteQueueResponse:
            await broker.rsmq.delete_queue(request.queue)
            return pb.DeleteQueueResponse()

        return await broker.once("DeleteQueue", request, work)

    async def SetAttributes(self, request: pb.SetAttributesRequest, _: Any) -> pb.QueueAttributes:
        """Change the attributes of a queue."""
        queue = self._broker.queue(request.queue)
        vt, delay = seconds(request, "vt_ms"), seconds(request, "delay_ms")
        maxsize = optional(request, "maxsize")

        async def work() -> pb.QueueAttributes:
            return write_attributes(await queue.set_attributes(vt=vt, delay=delay, maxsize=maxsize))

        return await self._broker.once("SetAttributes", request, work)

    async def Announce(self, request: pb.AnnounceRequest, _: Any) -> pb.AnnounceResponse:
        """Announce that a client consumes from a queue."""
        queue = self._broker.queue(request.queue)
        # The identity is that of the token: the client cannot choose it.
        name = f"{CALLER.get().identity}/{request.name[:200]}"
        await self._broker.rsmq.gateway.announce(
            queue, name, max(0, request.consumers), request.holding[:100]
        )
        return pb.AnnounceResponse()

    async def Purge(self, request: pb.PurgeRequest, _: Any) -> pb.PurgeResponse:
        """Remove messages in bulk."""
        queue = self._broker.queue(request.queue)
        if request.leased and request.HasField("at"):
            raise InvalidValue("a page of a purge has no leased messages")

        async def work() -> pb.PurgeResponse:
            if not request.HasField("at"):
                return pb.PurgeResponse(removed=await queue.purge(leased=request.leased))
            page = await self._broker.rsmq.gateway.purge_page(queue, request.at)
            response = pb.PurgeResponse(removed=page.removed, before=page.before)
            if page.next_at >= 0:
                response.next = page.next_at
            return response

        return await self._broker.once("Purge", request, work)

    async def Redrive(self, request: pb.RedriveRequest, _: Any) -> pb.RedriveResponse:
        """Move messages from one queue to another."""
        broker = self._broker
        target, source = broker.queue(request.target), broker.queue(request.source)
        count = optional(request, "count")
        if request.ids:
            broker.checks.batch("ids", len(request.ids))
        ids = set(request.ids)

        async def work() -> pb.RedriveResponse:
            moved = await target.redrive(
                source,
                count=min(count or len(ids), len(ids)) if ids else count,
                where=(lambda found: found.id in ids) if ids else None,
            )
            return pb.RedriveResponse(moved=moved)

        return await broker.once("Redrive", request, work)

    async def DeleteMessages(
        self, request: pb.DeleteMessagesRequest, _: Any
    ) -> pb.DeleteMessagesResponse:
        """Delete messages by id."""
        self._broker.checks.batch("ids", len(request.ids))
        queue = self._broker.queue(request.queue)

        async def work() -> pb.DeleteMessagesResponse:
            ids = await queue.delete_many(request.ids, only_leased=request.only_leased)
            return pb.DeleteMessagesResponse(ids=ids)

        return await self._broker.once("DeleteMessages", request, work)

    async def ChangeVisibility(
        self, request: pb.ChangeVisibilityRequest, _: Any
    ) -> pb.ChangeVisibilityResponse:
        """Set the time after which a message becomes visible."""
        queue = self._broker.queue(request.queue)

        async def work() -> pb.ChangeVisibilityResponse:
            changed = await queue.change_visibility(request.id, request.vt_ms / 1000)
            return pb.ChangeVisibilityResponse(changed=changed)

        return await self._broker.once("ChangeVisibility", request, work)
