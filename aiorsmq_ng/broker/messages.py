"""Send, Receive, Pop, Recover."""

from __future__ import annotations

import asyncio
import math
from hashlib import blake2b
from typing import Any

from aiorsmq_ng import RSMQ, Delivery, InvalidValue, Queue, SendUnknown, Subscription

from ..rpc import v1_pb2 as pb
from .base import Shared, content_of, message, seconds
from .budget import VISIT, Stock
from .requests import check_id
from .room import MAX_BYTES, Room, unread
from .tokens import CALLER

#: Answer so long before the call's deadline: a reply on its way takes time.
_MARGIN_S = 0.05
#: How long what is known of a queue's limit of size is believed.
_BELIEVED_S = 30.0
#: Messages that one Recover takes over, though they might be too large for its reply; what does not
#: fit is visible again.
_RECOVERED = 64
#: Bodies that a waiting call is given at once, if it can be known how large they are.
_WAITED_BYTES = 500_000
#: The largest limit that a queue can have, other than none.
_LARGEST_LIMIT = 65536


class MessageCalls:
    """Store messages and take them."""

    _shared: Shared
    _room: Room
    _taking: Taking

    async def Send(self, request: pb.SendRequest, _: Any) -> pb.SendResponse:
        """Store messages in order, all or none."""
        shared = self._shared
        shared.batch("bodies", request.bodies)
        queue, delay = shared.queue(request.queue), seconds(request, "delay_ms")
        dedup_key, durable = dedup(request)

        async def work() -> pb.SendResponse:
            if len(request.bodies) == 1:
                sent = await queue.send(request.bodies[0], delay=delay, dedup_key=dedup_key)
                return pb.SendResponse(ids=[sent], **told(sent, durable))
            ids = await queue.send_many(request.bodies, delay=delay)
            return pb.SendResponse(ids=ids, **told(ids[0]))

        async def again(error: SendUnknown) -> pb.SendResponse:
            if error.token is None:
                raise error
            ids = await queue.resend(error.token)
            return pb.SendResponse(ids=ids, **told(ids[0]))

        return await (work() if durable else shared.once("Send", request, work, again=again))

    async def Receive(self, request: pb.ReceiveRequest, context: Any) -> pb.ReceiveResponse:
        """Lease ready messages, waiting for the first if wanted."""
        shared = self._shared
        queues = shared.sources(request)
        count, vt = shared.count(request.count), seconds(request, "vt_ms")
        max_bytes = shared.max_bytes(request.max_bytes)
        wait = min(request.wait_ms / 1000, shared.limits.wait, until_deadline(context))

        async def work() -> pb.ReceiveResponse:
            taken, next_visible = await self._taking.take(queues, count, vt, max_bytes, wait)
            return pb.ReceiveResponse(
                deliveries=[shared.lend(d, queues[0], max_bytes) for d in taken],
                next_visible_ms=None if next_visible is None else math.ceil(next_visible * 1000),
                dead_letters=shared.letters(queues, max_bytes - sum(len(d.body) for d in taken)),
            )

        return await shared.once("Receive", request, work, abandon=True)

    async def Pop(self, request: pb.PopRequest, _: Any) -> pb.PopResponse:
        """Take and delete ready messages."""
        queue, count = self._shared.queue(request.queue), self._shared.count(request.count)
        popped = await queue.pop_many(min(count, await self._taking.safe([queue], MAX_BYTES)))
        return pb.PopResponse(messages=[message(m) for m in popped])

    async def Recover(self, request: pb.RecoverRequest, _: Any) -> pb.RecoverResponse:
        """Take over messages that others hold."""
        shared = self._shared
        queue, count = shared.source(request.source), shared.count(request.count)
        vt, idle = seconds(request, "vt_ms"), request.idle_ms / 1000

        async def work() -> pb.RecoverResponse:
            few = min(count, max(_RECOVERED, await self._taking.safe([queue], MAX_BYTES)))
            taken = await queue.recover(few, idle, vt=vt)
            _cut(taken, MAX_BYTES)
            room = MAX_BYTES - sum(len(d.body) for d in taken)
            return pb.RecoverResponse(
                deliveries=[shared.lend(d, queue) for d in taken],
                dead_letters=shared.letters([queue], room),
            )

        return await shared.once("Recover", request, work, abandon=True)


class Taking:
    """Leases messages for a reply of limited size."""

    def __init__(self, shared: Shared, room: Room) -> None:
        self._rsmq = shared.rsmq
        self._room = room
        self._stopping = room.stopping
        self._limits: dict[str, tuple[float, int]] = {}

    @property
    def stopping(self) -> bool:
        """Whether nothing new is to be handed out any more."""
        return self._stopping.is_set()

    def stock(self) -> Stock:
        """Return what counts messages that stay between two replies."""
        return Stock(self._room.replies)

    async def take(
        self, queues: list[Queue], count: int, vt: float | None, max_bytes: int, wait: float
    ) -> tuple[list[Delivery], float | None]:
        """Lease up to *count* messages of *max_bytes* together, waiting for the first.

        Without any, the second value is in how many seconds one becomes visible. What was taken
        for a caller who is gone is given back.
        """
        taken, next_visible = await self.about(queues, count, vt, max_bytes, wait)
        _cut(taken, max_bytes)
        return taken, next_visible

    async def about(
        self, queues: list[Queue], count: int, vt: float | None, max_bytes: int, wait: float
    ) -> tuple[list[Delivery], float | None]:
        """Do what ``take`` does; a message larger than those before it may make it too much."""
        largest = await self._largest(queues, max_bytes)
        # Less than that, rather than to wait for replies that the client has not read.
        step = min(count, max(1, min(max_bytes, VISIT.get().room) // largest))
        taken: list[Delivery] = []
        try:
            taken, next_visible = await self._now(step, queues, vt, step * largest)
            if not taken and wait > 0:
                next_visible = None
                # When it comes is unknown, so no room is kept for it; it is no more than this.
                step = min(step, max(1, _WAITED_BYTES // largest))
                taken = await self.wait(step, queues, vt, wait)
                if not VISIT.get().more(_size(taken)):
                    raise unread()
            # Fewer than asked for: no more is there. Without a lease, the same would come again.
            full = len(taken) == step and min((d.vt_ms for d in taken), default=0) > 0
            while full and len(taken) < count and not taken[0].suspect:
                biggest, size = max(len(d.body) for d in taken), _size(taken)
                left = min(max_bytes - size, VISIT.get().room)
                step = min(count - len(taken), left // max(biggest, 1024))
                if step < 1:
                    break
                more, _ = await self._now(step, queues, vt, left)
                full = len(more) == step
                if more and more[0].suspect:
                    more[0].give_back()  # it comes alone, to the next who asks
                    break
                taken += more
        except BaseException:
            for delivery in taken:
                delivery.give_back()
            raise
        return taken, next_visible

    async def safe(self, queues: list[Queue], max_bytes: int) -> int:
        """Return how many messages of *queues* are sure to fit into *max_bytes*, at least 1."""
        return max(1, max_bytes // await self._largest(queues, max_bytes))

    async def _largest(self, queues: list[Queue], max_bytes: int) -> int:
        """Return how large a message of *queues* can be; at most *max_bytes*."""
        now, largest = asyncio.get_running_loop().time(), 1
        for queue in queues:
            until, limit = self._limits.get(queue.name, (0.0, 0))
            if now >= until:
                limit = (await queue.attributes()).maxsize
                if len(self._limits) > 10_000:
                    self._limits.clear()
                self._limits[queue.name] = (now + _BELIEVED_S, limit)
            largest = max(largest, limit if 0 < limit <= _LARGEST_LIMIT else max_bytes)
        return largest

    async def _now(
        self, count: int, queues: list[Queue], vt: float | None, size: int
    ) -> tuple[list[Delivery], float | None]:
        """Lease what is there, when there is room for *size* more bytes of it."""
        visit = VISIT.get()
        kept = await self._room.reply(visit, size)
        try:
            if isinstance(queues[0], Subscription):
                found, next_visible = await queues[0].receive_many(count, vt=vt), None
            else:
                found, next_visible = await self._rsmq.receive_now(count, *queues, vt=vt)
        except BaseException:
            visit.change(-kept)
            raise
        visit.change(_size(found) - kept)
        return found, next_visible

    async def wait(
        self, count: int, queues: list[Queue], vt: float | None, wait: float
    ) -> list[Delivery]:
        """Wait for messages, but not while the broker is being stopped."""
        receiving = asyncio.ensure_future(receive(self._rsmq, count, queues, vt, wait))
        receiving.add_done_callback(seen)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else []
        except asyncio.CancelledError:
            if receiving.done() and not receiving.cancelled() and not receiving.exception():
                for delivery in receiving.result():
                    delivery.give_back()
            raise
        finally:
            stopping.cancel()
            receiving.cancel()  # gives back what it took


async def receive(
    rsmq: RSMQ, count: int, queues: list[Queue], vt: float | None, wait: float
) -> list[Delivery]:
    """Lease messages of one subscription, or of several queues, waiting for the first.

    A subscription's own wait also says, again and again, that its peer is alive.
    """
    if len(queues) == 1 and isinstance(queues[0], Subscription):
        return await queues[0].receive_many(count, vt=vt, wait=wait)
    return await rsmq.receive_many(count, *queues, vt=vt, wait=wait)


def seen(task: asyncio.Future[Any]) -> None:
    """Let a task fail in peace whose caller is gone: nobody else asks what came of it."""
    if not task.cancelled():
        task.exception()


def _size(taken: list[Delivery]) -> int:
    return sum(len(delivery.body) for delivery in taken)


def _cut(taken: list[Delivery], max_bytes: int) -> None:
    """Give back what does not fit; the first one is sent, without its body if need be."""
    size = 0
    for place, delivery in enumerate(taken):
        size += len(delivery.body)
        if place and size > max_bytes:
            for surplus in reversed(taken[place:]):
                surplus.give_back()
            del taken[place:]
            return


def until_deadline(context: Any) -> float:
    """Return for how many seconds a call may wait and still answer in time."""
    remaining = context.time_remaining()
    return math.inf if remaining is None else max(0.0, remaining - _MARGIN_S)


def dedup(request: pb.SendRequest | pb.PublishRequest) -> tuple[str | None, bool]:
    """Return the dedup key of a send or publish, and whether it is that of a durable request."""
    single = len(request.bodies) == 1
    if request.dedup_key and not single:
        raise InvalidValue("a dedup key is for a single body")
    if not (request.request.durable and single and not request.dedup_key):
        return request.dedup_key or None, False
    check_id(request.request.id)
    # With what is sent: another body under the same id is another message, and is not swallowed.
    own = f"{CALLER.get().identity}:{request.request.id}:{content_of(request).hex()}"
    # Made in another way than digests of callers' keys, so that it is never one of theirs.
    made = blake2b(own.encode(), digest_size=16, person=b"durable request")
    return f"digest:{made.hexdigest()}", True


def told(id: str, durable: bool = False) -> dict[str, Any]:
    """Return what a response tells about a send: how safely it is stored, and if it was before.

    The key of a *durable* request is its own: what it finds there is its own first attempt.
    """
    duplicate = getattr(id, "duplicate", False) and not durable
    return {"durability": getattr(id, "durability", "memory"), "duplicate": duplicate}
