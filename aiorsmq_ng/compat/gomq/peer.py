"""One peer of a GOMQ consumer: leases messages of its keys for the next reply."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque

import anyio

from aiorsmq_ng import Delivery, Queue, QueueNotFound, Subscription

from ...broker.memory_budget import CALL_BUDGET
from ...broker.receive import BoundedReceiver
from .records import LIMIT, record_size
from .unacknowledged import Taken, UnacknowledgedReplies

logger = logging.getLogger("aiorsmq_ng.broker")

#: Records of one key in a reply, as in GOMQ.
_PAGE = 50
#: A peer without a call for this long times out, and its messages are delivered again.
PEER_TIMEOUT_S = 30.0


class Peer:
    """One connection that observes for a consumer."""

    def __init__(
        self, consumer: str, name: str, receiver: BoundedReceiver, *, joint_receive: bool
    ) -> None:
        self.consumer = consumer
        self.name = name
        self.lock = asyncio.Lock()
        self.subscriptions: dict[str, Subscription] = {}
        self.seen_at = 0.0
        #: When a keep-alive was last sent for the client.
        self.kept_at = 0.0
        self._receiver = receiver
        #: True if one call can receive from several keys.
        self._joint_receive = joint_receive
        self._rotation = 0
        #: Leased messages that did not fit into the last reply. They go into the next.
        self._carried: dict[str, deque[Delivery]] = {}
        #: Their bytes, counted as bytes of unread replies.
        self._retained = receiver.retained()
        #: Deliveries in replies that the client may not have received.
        self.unacknowledged = UnacknowledgedReplies()

    def reply(self, taken: Taken, deadline: float = math.inf) -> None:
        """Record the deliveries of a reply, and until when the client waits for it."""
        for _, delivery in taken:
            # Renewed while the client is connected, however slow it is.
            delivery.hold()
        self.unacknowledged.add(taken, deadline)

    async def take(self, wait_s: float) -> Taken:
        """Lease ready messages, fairly over the keys and as many as fit, after a short wait."""
        if not self.subscriptions or self._receiver.stopping:
            await anyio.sleep(wait_s)
        taken: Taken = []
        if self._receiver.stopping:
            return taken  # the call only acknowledges the last reply
        room = [LIMIT]
        try:
            await self._sweep(taken, room)
            if not taken and self.subscriptions:
                for delivery in await self._wait(wait_s):
                    if (key := self._key_of(delivery)) is None:
                        delivery.release_nowait(unseen=True)  # the subscription has ended
                        continue
                    # Kept: if given back, it would come after messages that arrive in the meantime.
                    self._carried.setdefault(key, deque()).append(delivery)
                    await self._sweep(taken, room)
        except BaseException:
            for _, delivery in taken:
                delivery.release_nowait(unseen=True)
            raise
        finally:
            self._count()
        return taken

    async def give_back(self) -> None:
        """Release what is not acknowledged, and what was not sent."""
        held = self.unacknowledged.clear()
        held += [d for carried in self._carried.values() for d in carried]
        self._carried.clear()
        self._count()
        await asyncio.gather(*(d.release() for d in held), return_exceptions=True)

    async def _wait(self, wait_s: float) -> list[Delivery]:
        """Wait for one message of any key."""
        subscriptions: list[Queue] = [*self.subscriptions.values()]
        if not self._joint_receive:
            subscriptions = subscriptions[self._rotation % len(subscriptions) :][:1]
        return await self._receiver.wait(1, subscriptions, PEER_TIMEOUT_S, wait_s)

    def drop(self, key: str) -> None:
        """Remove a subscription that has ended, and give back the messages leased from it."""
        self.subscriptions.pop(key, None)
        carried = self._carried.pop(key, None)
        while carried:
            carried.pop().release_nowait(unseen=True)
        self._count()

    def _count(self) -> None:
        """Count the messages kept for the next reply. Give them back if there is no room."""
        size = sum(len(d.body) for carried in self._carried.values() for d in carried)
        # Leave room for two replies, so that kept messages do not block the replies of others.
        if not self._retained.hold(CALL_BUDGET.get().caller, size, leaving=2 * LIMIT):
            for carried in self._carried.values():
                while carried:
                    carried.pop().release_nowait(unseen=True)

    def _key_of(self, delivery: Delivery) -> str | None:
        found = (k for k, s in self.subscriptions.items() if s.name == delivery.queue)
        return next(found, None)

    async def _sweep(self, taken: Taken, room: list[int]) -> None:
        """Lease up to a page of every key, and start with another key each time."""
        keys = sorted(self.subscriptions)
        self._rotation += 1
        start = self._rotation % len(keys) if keys else 0
        for key in keys[start:] + keys[:start]:
            # The subscription may end at any moment, and then has nothing for this reply.
            if key in self.subscriptions:
                await self._page(key, max(room[0], 1))
            if not await self._pack(key, taken, room):
                return  # the rest is for the next reply

    async def _pack(self, key: str, taken: Taken, room: list[int]) -> bool:
        """Put the kept messages into a reply. Return True if all of them fitted."""
        while waiting := self._carried.get(key):
            delivery = waiting[0]
            size = record_size(key, len(delivery.body))
            if LIMIT >= size > room[0]:
                return False
            waiting.popleft()
            if size > LIMIT:
                await self._dead_letter(delivery, size)
            elif not delivery.lease_lost and anyio.current_time() < delivery.lease.expires_at:
                room[0] -= size
                taken.append((key, delivery))
        return True

    async def _page(self, key: str, room: int) -> None:
        """Lease messages of a key until a page of them is kept."""
        waiting = self._carried.setdefault(key, deque())
        count = _PAGE - len(waiting)
        if count < 1 or sum(len(d.body) for d in waiting) >= room:
            return
        subscription = self.subscriptions[key]
        try:
            found, _ = await self._receiver.take_roughly(
                [subscription], count, PEER_TIMEOUT_S, room, 0.0
            )
        except QueueNotFound:
            self.drop(key)  # ended by another client
            return
        if self._carried.get(key) is waiting:
            waiting += found
            for delivery in found:
                delivery.hold()
        else:  # it has ended
            for delivery in found:
                delivery.release_nowait(unseen=True)

    async def _dead_letter(self, delivery: Delivery, size: int) -> None:
        """Reject a message that no client of GOMQ can receive, because it would block the queue."""
        await delivery.reject(f"{size} bytes do not fit into a reply of {LIMIT} bytes")
        logger.warning(
            "message %s of queue %s has %d bytes, more than a client of GOMQ can receive; moved "
            "to the dead-letter queue", delivery.id, delivery.queue, size,
        )  # fmt: skip
