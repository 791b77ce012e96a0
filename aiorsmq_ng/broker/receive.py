"""Receive, Pop, Recover: lease or take messages for a reply of limited size."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from aiorsmq_ng import RSMQ, Delivery, InvalidValue, Queue, Subscription
from aiorsmq_ng.gateway import RecoverPlace

from .._common.bounded_dict import BoundedDict
from .._common.message_headers import MAX_HEADER_BYTES
from .._common.queue_defaults import DEFAULT_MAXSIZE
from .._common.tasks import retrieve_exception
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import message_size, write_message
from .broker_context import BrokerContext
from .caller_limits import MAX_BYTES, Admission, unread
from .memory_budget import CALL_BUDGET, RetainedBytes
from .request_limits import seconds

#: Seconds before the call's deadline at which the broker replies, to allow for the way back.
_MARGIN_S = 0.05
#: Seconds for which the size limit of a queue is cached, and the size of the cache.
_MAXSIZE_TTL_S, _MAXSIZES = 30.0, 10_000
#: Messages that one Recover takes over, though they may exceed its reply. Those that do not fit are
#: made visible again.
_RECOVERED = 64
#: Bytes of bodies that a waiting call leases at once, if the queue limits their size.
_WAITED_BYTES = 500_000


class ReceiveCalls:
    """Lease messages, or receive and delete them."""

    _broker: BrokerContext
    _admission: Admission
    _receiver: BoundedReceiver

    async def Receive(self, request: pb.ReceiveRequest, context: Any) -> pb.ReceiveResponse:
        """Lease ready messages, and wait for the first if the request says so."""
        broker = self._broker
        queues = broker.sources(request)
        count, vt = broker.checks.count(request.count), seconds(request, "vt_ms")
        max_bytes = broker.checks.max_bytes(request.max_bytes)
        wait = min(request.wait_ms / 1000, broker.limits.wait, until_deadline(context))

        shares = [(broker.checks.count(one.count), seconds(one, "vt_ms")) for one in request.more]
        shares.insert(0, (count, vt))
        broker.checks.batch("receives", len(shares))
        if wait and request.more:
            raise InvalidValue("a request with several receives does not wait")

        async def work() -> pb.ReceiveResponse:
            if len(shares) == 1:
                found = [await self._receiver.take(queues, count, vt, max_bytes, wait)]
            else:
                found = await self._receiver.take_shares(queues, shares, max_bytes)
            first, *more = [_received(broker, queues[0], max_bytes, *share) for share in found]
            first.more.extend(more)
            room = max_bytes - sum(_size(taken) for taken, _ in found)
            first.dead_letters.extend(broker.replies.take_dead_letters(queues, room))
            return first

        return await broker.once("Receive", request, work, abandon=True)

    async def Pop(self, request: pb.PopRequest, _: Any) -> pb.PopResponse:
        """Receive and delete ready messages."""
        queue, count = (
            self._broker.queue(request.queue),
            self._broker.checks.count(request.count),
        )
        most = await self._receiver.safe([queue], MAX_BYTES, extra=MAX_HEADER_BYTES)
        popped = await queue.pop_many(min(count, most))
        return pb.PopResponse(messages=[write_message(m) for m in popped])

    async def Recover(self, request: pb.RecoverRequest, _: Any) -> pb.RecoverResponse:
        """Take over messages that other clients hold."""
        broker = self._broker
        queue, count = broker.source(request.source), broker.checks.count(request.count)
        vt, idle = seconds(request, "vt_ms"), request.idle_ms / 1000

        after = None
        if request.HasField("after"):
            after = RecoverPlace(request.after.at, request.after.started_ms)

        async def work() -> pb.RecoverResponse:
            taken, place = await self._receiver.recover(queue, count, idle, vt, after)
            response = pb.RecoverResponse(
                deliveries=[broker.replies.loan(d, queue) for d in taken],
                dead_letters=broker.replies.take_dead_letters([queue], MAX_BYTES - _size(taken)),
            )
            if place.at is not None:
                response.next.at, response.next.started_ms = place.at, place.started_ms
            return response

        return await broker.once("Recover", request, work, abandon=True)


class BoundedReceiver:
    """Leases messages for a reply of limited size, within the budget of the caller."""

    def __init__(self, broker: BrokerContext, admission: Admission) -> None:
        self._rsmq = broker.rsmq
        self._admission = admission
        self._stopping = admission.stopping
        #: Size limits of queues, and until when they are cached.
        self._maxsizes: BoundedDict[str, tuple[float, int]] = BoundedDict(_MAXSIZES)

    @property
    def stopping(self) -> bool:
        """True if the broker is stopping and hands out no more messages."""
        return self._stopping.is_set()

    @property
    def stop(self) -> asyncio.Event:
        """Set when the broker stops."""
        return self._stopping

    def retained(self) -> RetainedBytes:
        """Return a counter of messages that stay in memory between two replies."""
        return RetainedBytes(self._admission.replies)

    async def take(
        self, queues: list[Queue], count: int, vt: float | None, max_bytes: int, wait: float
    ) -> tuple[list[Delivery], float | None]:
        """Lease up to *count* messages of *max_bytes* together, waiting for the first.

        If there are none, the second value is the seconds until one becomes visible. If the caller
        has disconnected, the messages are given back.
        """
        taken, next_visible = await self.take_roughly(queues, count, vt, max_bytes, wait)
        _cut(taken, max_bytes)
        return taken, next_visible

    async def take_shares(
        self, queues: list[Queue], shares: Sequence[tuple[int, float | None]], max_bytes: int
    ) -> list[tuple[list[Delivery], float | None]]:
        """Lease messages for several receives at once, and keep up to *max_bytes* of them."""
        # Started in the same tick of the loop, so they share script calls, in order.
        takes = [
            asyncio.ensure_future(self.take_roughly(queues, count, vt, max_bytes, 0.0))
            for count, vt in shares
        ]
        try:
            found = await asyncio.gather(*takes)
        except BaseException:
            for take in takes:
                take.add_done_callback(_release_result)
                take.cancel()
            raise
        room = max_bytes
        for place, (taken, _) in enumerate(found):
            ready = bool(taken)
            _cut(taken, room, keep_first=place == 0)
            room -= _size(taken)
            if ready and not taken:
                found[place] = (taken, 0.0)  # asked again, it gets some
        return found

    async def take_roughly(
        self, queues: list[Queue], count: int, vt: float | None, max_bytes: int, wait: float
    ) -> tuple[list[Delivery], float | None]:
        """Lease messages as ``take`` does, except that the last ones may exceed *max_bytes*."""
        largest = await self._largest(queues, max_bytes)
        # Lease fewer rather than wait until the client has read earlier replies.
        step = min(count, max(1, min(max_bytes, CALL_BUDGET.get().room) // largest))
        taken: list[Delivery] = []
        try:
            taken, next_visible = await self._now(step, queues, vt, step * largest)
            if not taken and wait > 0:
                next_visible = None
                # The wait may be long, so no room is reserved for it. This bounds its result.
                step = min(step, max(1, _WAITED_BYTES // largest))
                taken = await self.wait(step, queues, vt, wait)
                if not CALL_BUDGET.get().more(_size(taken)):
                    raise unread()
            # Fewer than asked for: there are no more. With a vt of 0, the same ones would return.
            full = len(taken) == step and min((d.lease.vt for d in taken), default=0) > 0
            while full and len(taken) < count and not taken[0].suspect:
                biggest, size = max(len(d.body) for d in taken), _size(taken)
                left = min(max_bytes - size, CALL_BUDGET.get().room)
                step = min(count - len(taken), left // max(biggest, 1024))
                if step < 1:
                    break
                more, _ = await self._now(step, queues, vt, left)
                full = len(more) == step
                if more and more[0].suspect:
                    more[0].release_nowait(
                        unseen=True
                    )  # a suspect comes alone, with the next receive
                    break
                taken += more
        except BaseException:
            for delivery in taken:
                delivery.release_nowait(unseen=True)
            raise
        return taken, next_visible

    async def recover(
        self,
        queue: Queue,
        count: int,
        idle: float,
        vt: float | None,
        place: RecoverPlace | None,
    ) -> tuple[list[Delivery], RecoverPlace]:
        """Take over messages for one reply; return them and the start of the next reply."""
        taken: list[Delivery] = []
        recover_page = self._rsmq.gateway.recover_page
        if isinstance(queue, Subscription):
            await queue.keep_alive()
        step = min(count, max(_RECOVERED, await self.safe([queue], MAX_BYTES)))
        try:
            while True:
                page, found = await recover_page(queue, step, idle, vt=vt, after=place)
                taken += page
                if found.at is None and len(page) == step:
                    # More may follow from the same position: messages already taken are skipped.
                    found = RecoverPlace((place.at if place else 0) or 0, found.started_ms)
                place = found
                biggest = max([len(d.body) for d in taken], default=0)
                left = (MAX_BYTES - _size(taken)) // max(biggest, 1024)
                step = min(count - len(taken), left)
                if place.at is None or step < 1:
                    _cut(taken, MAX_BYTES)
                    return taken, place
        except BaseException:
            for delivery in taken:
                delivery.release_nowait(unseen=True)
            raise

    async def safe(self, queues: list[Queue], max_bytes: int, *, extra: int = 0) -> int:
        """Return how many messages of *queues* always fit into *max_bytes*, at least 1.

        *extra* are bytes that each may have besides its body.
        """
        return max(1, max_bytes // (await self._largest(queues, max_bytes) + extra))

    async def _largest(self, queues: list[Queue], max_bytes: int) -> int:
        """Return the largest possible size of a message of *queues*; at most *max_bytes*."""
        now, largest = asyncio.get_running_loop().time(), 1
        for queue in queues:
            until, limit = self._maxsizes.get(queue.name, (0.0, 0))
            if now >= until:
                limit = (await queue.attributes()).maxsize
                self._maxsizes[queue.name] = (now + _MAXSIZE_TTL_S, limit)
            largest = max(largest, limit if 0 < limit <= DEFAULT_MAXSIZE else max_bytes)
        return largest

    async def _now(
        self, count: int, queues: list[Queue], vt: float | None, size: int
    ) -> tuple[list[Delivery], float | None]:
        """Wait for room for *size* more bytes of the reply, then lease what is ready."""
        budget = CALL_BUDGET.get()
        reserved = await self._admission.reply(budget, size)
        try:
            if isinstance(queues[0], Subscription):
                found, next_visible = await queues[0].receive_many(count, vt=vt), None
            else:
                found, next_visible = await self._rsmq.gateway.receive_now(queues, count, vt=vt)
        except BaseException:
            budget.change(-reserved)
            raise
        budget.change(_size(found) - reserved)
        return found, next_visible

    async def wait(
        self, count: int, queues: list[Queue], vt: float | None, wait: float
    ) -> list[Delivery]:
        """Wait for messages, until the broker stops."""
        receiving = asyncio.ensure_future(receive(self._rsmq, count, queues, vt, wait))
        receiving.add_done_callback(retrieve_exception)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else []
        except asyncio.CancelledError:
            if receiving.done() and not receiving.cancelled() and not receiving.exception():
                for delivery in receiving.result():
                    delivery.release_nowait(unseen=True)
            raise
        finally:
            stopping.cancel()
            receiving.cancel()  # gives back what it took


async def receive(
    rsmq: RSMQ, count: int, queues: list[Queue], vt: float | None, wait: float
) -> list[Delivery]:
    """Lease messages of one subscription, or of several queues, waiting for the first.

    The wait of a subscription is also a keep-alive of its peer.
    """
    if len(queues) == 1 and isinstance(queues[0], Subscription):
        return await queues[0].receive_many(count, vt=vt, wait=wait)
    return await rsmq.receive_many(queues, count, vt=vt, wait=wait)


def _size(taken: list[Delivery]) -> int:
    return sum(map(message_size, taken))


def _cut(taken: list[Delivery], max_bytes: int, *, keep_first: bool = True) -> None:
    """Release what does not fit. The first is kept, and sent without a body if too large."""
    size = 0
    for place, delivery in enumerate(taken):
        size += message_size(delivery)
        if size > max_bytes and (place or not keep_first):
            for surplus in reversed(taken[place:]):
                surplus.release_nowait(unseen=True)
            del taken[place:]
            return


def _release_result(take: asyncio.Future[tuple[list[Delivery], float | None]]) -> None:
    """Release what a receive leased for a caller that has disconnected."""
    if not take.cancelled() and take.exception() is None:
        for delivery in take.result()[0]:
            delivery.release_nowait(unseen=True)


def _received(
    broker: BrokerContext,
    source: Queue,
    max_bytes: int,
    taken: list[Delivery],
    next_visible: float | None,
) -> pb.ReceiveResponse:
    # 0 is for messages that are ready and have no room in this reply.
    next_ms = next_visible and max(1, math.ceil(next_visible * 1000))
    return pb.ReceiveResponse(
        deliveries=[broker.replies.loan(delivery, source, max_bytes) for delivery in taken],
        next_visible_ms=None if next_ms is None else int(next_ms),
    )


def until_deadline(context: Any) -> float:
    """Return the seconds that a call may wait and still reply before its deadline."""
    remaining = context.time_remaining()
    return math.inf if remaining is None else max(0.0, remaining - _MARGIN_S)
