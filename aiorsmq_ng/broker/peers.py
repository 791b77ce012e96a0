"""Peers of GOMQ's consumers: what each is subscribed to, and what it was given."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

import anyio
import anyio.to_thread

from aiorsmq_ng import (
    AccessDenied,
    ClientClosed,
    Delivery,
    LeaseLost,
    Queue,
    QueueNotFound,
    RSMQError,
    Subscription,
    Unavailable,
)

from .base import Shared
from .budget import VISIT
from .connections import connected
from .directory import Directory
from .messages import Taking
from .options import GomqMode
from .records import LIMIT, record_size
from .status import BrokerError

logger = logging.getLogger("aiorsmq_ng.broker")

#: Records of one key in a reply, as GOMQ has it.
_PAGE = 50
#: A peer that says nothing for so long is taken off, and what it was given is delivered again.
_SILENCE_S = 30.0
#: How old what is known of the subscriptions of all consumers may be (another broker may have
#: changed them): so old, it is learnt anew, in the background; so old, a peer waits for that.
_KNOWN_S, _TOO_OLD_S = 15.0, 60.0
#: How long an Observe waits for that at most.
_LEARN_S = 0.5
#: GOMQ notices a subscription so late: all that began meanwhile get what had waited for one.
_NOTICED_S = 1.0
#: Peers remembered at most.
_MOST_PEERS = 50_000
#: Consumer ids of one connection at most: each costs work for as long as the connection lives.
_MOST_CONSUMERS = 100
#: Peers that are kept alive at a time.
_KEPT_AT_A_TIME = 16
#: How often it is looked which peers are connected.
_LOOK_S = 5.0

#: A client whose next call comes so shortly before or after its deadline of the last one has
#: most likely not got the reply to that, which was late on its way.
_TIMED_OUT_S = (-0.02, 0.1)

Taken = list[tuple[str, Delivery]]


class _Reply(NamedTuple):
    """What was in a reply, and until when the client waits for it."""

    number: int
    taken: Taken
    deadline: float

    def ended(self) -> bool:
        """Return True if a lease of it is over, so that its message could be received again."""
        now = anyio.current_time()
        return any(delivery.expires_at <= now for _, delivery in self.taken)


class Peer:
    """One connection that observes for a consumer."""

    def __init__(self, consumer: str, name: str, taking: Taking, *, together: bool) -> None:
        self.consumer = consumer
        self.name = name
        self.lock = asyncio.Lock()
        self.subscriptions: dict[str, Subscription] = {}
        self.seen_at = 0.0
        #: When it was last said for the client that it is alive.
        self.kept_at = 0.0
        self._taking = taking
        #: Whether one call can receive from several keys.
        self._together = together
        self._rotation = 0
        #: Leased for a reply into which they did not fit any more.
        self._carried: dict[str, deque[Delivery]] = {}
        #: Their bytes, as bytes of replies that are not read yet.
        self._stock = taking.stock()
        # Observes that arrived, those of them under way, and the most that were so at a time.
        self._arrived = self._under_way = self._width = 0
        self._answered = 0
        #: Replies that are not acknowledged yet.
        self._unacknowledged: deque[_Reply] = deque()

    def arrive(self) -> int:
        """Count an Observe; return the number of the last reply that the client has for sure.

        A client has no more calls under way than we have seen at a time, so when its call number n
        comes, all but the last few replies before it have reached it.
        """
        self._arrived += 1
        self._under_way += 1
        self._width = max(self._width, self._under_way)
        return self._arrived - self._width

    def leave(self, *, answered: bool = False) -> None:
        """Take note that an Observe has ended; one without an answer counts as if it never came."""
        self._under_way -= 1
        if not answered:
            self._arrived -= 1

    async def acknowledge(self, upto: int, arrived: float, *, ended: bool = False) -> None:
        """Delete what is in the replies that the client has, as a call that *arrived* shows.

        With *ended*, only up to the last reply whose leases are over.
        """
        while self._unacknowledged and self._unacknowledged[0].number <= upto:
            reply = self._unacknowledged[0]
            if ended and not reply.ended():
                return
            early, late = _TIMED_OUT_S
            missed = early <= arrived - reply.deadline <= late
            done = [
                # Only once, or a client that always asks at that moment would never be done.
                delivery.release() if missed and delivery.rc == 1 else delivery.ack()
                for _, delivery in reply.taken
            ]
            for outcome in await asyncio.gather(*done, return_exceptions=True):
                # Somebody has received it since: then it is theirs.
                if isinstance(outcome, BaseException) and not isinstance(outcome, LeaseLost):
                    raise outcome
            # Unless all of it was given back meanwhile.
            if self._unacknowledged and self._unacknowledged[0] is reply:
                self._unacknowledged.popleft()

    def answer(self, taken: Taken, deadline: float = math.inf) -> None:
        """Remember what goes into a reply, and until when the client waits for it."""
        self._answered += 1
        for _, delivery in taken:
            # For as long as its client is connected, however slow that is.
            delivery.origin.keeper.keep(delivery)
        if taken:
            self._unacknowledged.append(_Reply(self._answered, taken, deadline))

    async def take(self, wait_s: float) -> Taken:
        """Lease what is there, fairly over the keys and as much as fits, waiting a little."""
        if not self.subscriptions or self._taking.stopping:
            await anyio.sleep(wait_s)
        taken: Taken = []
        if self._taking.stopping:
            return taken  # the call came to acknowledge the last reply
        room = [LIMIT]
        try:
            await self._sweep(taken, room)
            if not taken and self.subscriptions:
                for delivery in await self._wait(wait_s):
                    if (key := self._key_of(delivery)) is None:
                        delivery.give_back()  # the subscription was ended meanwhile
                        continue
                    # Not given back, or it would come after those that arrive meanwhile.
                    self._carried.setdefault(key, deque()).append(delivery)
                    await self._sweep(taken, room)
        except BaseException:
            for _, delivery in taken:
                delivery.give_back()
            raise
        finally:
            self._count()
        return taken

    async def give_back(self) -> None:
        """Release what is not acknowledged, and what was not even sent."""
        held = [d for reply in self._unacknowledged for _, d in reply.taken]
        held += [d for carried in self._carried.values() for d in carried]
        self._unacknowledged.clear()
        self._carried.clear()
        self._count()
        await asyncio.gather(*(d.release() for d in held), return_exceptions=True)

    async def _wait(self, wait_s: float) -> list[Delivery]:
        """Wait for one message of any key."""
        subscriptions: list[Queue] = [*self.subscriptions.values()]
        if not self._together:
            subscriptions = subscriptions[self._rotation % len(subscriptions) :][:1]
        return await self._taking.wait(1, subscriptions, _SILENCE_S, wait_s)

    def drop(self, key: str) -> None:
        """Take note that a subscription was ended; what was leased of it is given back."""
        self.subscriptions.pop(key, None)
        carried = self._carried.pop(key, None)
        while carried:
            carried.pop().give_back()
        self._count()

    def _count(self) -> None:
        """Count what waits for the next reply, and give it back if there is no room for it."""
        size = sum(len(d.body) for carried in self._carried.values() for d in carried)
        # Room for two replies is left: what waits must not keep others from getting theirs.
        if not self._stock.hold(VISIT.get().who, size, leaving=2 * LIMIT):
            for carried in self._carried.values():
                while carried:
                    carried.pop().give_back()

    def _key_of(self, delivery: Delivery) -> str | None:
        found = (k for k, s in self.subscriptions.items() if s.name == delivery.queue)
        return next(found, None)

    async def _sweep(self, taken: Taken, room: list[int]) -> None:
        """Take up to a page of every key, beginning with another one each time."""
        keys = sorted(self.subscriptions)
        self._rotation += 1
        start = self._rotation % len(keys) if keys else 0
        for key in keys[start:] + keys[:start]:
            # It may be ended at any moment: then it has nothing for this reply.
            if key in self.subscriptions:
                await self._page(key, max(room[0], 1))
            if not await self._pack(key, taken, room):
                return  # the rest is for the next reply

    async def _pack(self, key: str, taken: Taken, room: list[int]) -> bool:
        """Put what waits into a reply; tell whether all of it fitted."""
        while waiting := self._carried.get(key):
            delivery = waiting[0]
            size = record_size(key, len(delivery.body))
            if LIMIT >= size > room[0]:
                return False
            waiting.popleft()
            if size > LIMIT:
                await self._bury(delivery, size)
            elif not delivery.lease_lost and anyio.current_time() < delivery.expires_at:
                room[0] -= size
                taken.append((key, delivery))
        return True

    async def _page(self, key: str, room: int) -> None:
        """Fill up what is waiting to be sent to a page."""
        waiting = self._carried.setdefault(key, deque())
        count = _PAGE - len(waiting)
        if count < 1 or sum(len(d.body) for d in waiting) >= room:
            return
        subscription = self.subscriptions[key]
        try:
            found, _ = await self._taking.about([subscription], count, _SILENCE_S, room, 0.0)
        except QueueNotFound:
            self.drop(key)  # ended by somebody else
            return
        if self._carried.get(key) is waiting:
            waiting += found
            for delivery in found:
                delivery.origin.keeper.keep(delivery)
        else:  # ended meanwhile
            for delivery in found:
                delivery.give_back()

    async def _bury(self, delivery: Delivery, size: int) -> None:
        """Move a message away that no client of GOMQ can receive: it would stay in the way."""
        await delivery.reject(f"{size} bytes do not fit into a reply of {LIMIT} bytes")
        logger.warning(
            "message %s of queue %s has %d bytes, more than a client of GOMQ can receive; it is in "
            "the dead-letter queue", delivery.id, delivery.queue, size,
        )  # fmt: skip


class Peers:
    """All peers of this broker, and the keys that consumers are subscribed to."""

    def __init__(self, shared: Shared, taking: Taking, mode: GomqMode) -> None:
        self._rsmq = shared.rsmq
        self._taking = taking
        self._mode = "each" if mode == "copy" else "shared"
        self._peers: OrderedDict[tuple[str, str], Peer] = OrderedDict()
        #: Consumers of each connection, with those that are just being subscribed.
        self._consumers: dict[str, set[str]] = {}
        self._directory = Directory(shared.rsmq, self._mode)
        self._watching: asyncio.Task[None] | None = None

    async def subscribe(self, consumer: str, name: str, key: str) -> None:
        """Subscribe a consumer to a key, and a peer of it."""
        if not self._fits(consumer, name):
            raise BrokerError(
                "tooManyCalls",
                f"connection {name} has {_MOST_CONSUMERS} consumer ids, and no more are taken of "
                "one; use another connection",
            )
        self._consumers.setdefault(name, set()).add(consumer)
        try:
            subscription = await self._join(consumer, name, key)
            # Not before: of a subscription that is refused nothing is kept.
            self._peer(consumer, name).subscriptions[key] = subscription
        finally:
            if (consumer, name) not in self._peers:
                self._forget(consumer, name)
        self._directory.change(consumer, key, subscribed=True)

    async def unsubscribe(self, consumer: str, key: str) -> None:
        """End the subscription of a consumer, with all its peers."""
        self._directory.change(consumer, key, subscribed=False)
        await self._rsmq.topic(key).unsubscribe(consumer)
        self._directory.change(consumer, key, subscribed=False)
        for (other, _), peer in self._peers.items():
            if other == consumer:
                peer.drop(key)

    async def find(self, consumer: str, name: str) -> Peer | None:
        """Return a peer, if its consumer is subscribed to something."""
        directory = self._directory
        known = (consumer, name) in self._peers
        if not known and not directory.fresh:
            await directory.learn(_LEARN_S)
        elif directory.age_s > _KNOWN_S:
            # What it is subscribed to here is known, and need not wait for all the others.
            await directory.learn(_LEARN_S if directory.age_s > _TOO_OLD_S else 0.0)
        if not known and not (directory.fresh and directory.keys(consumer)):
            return None
        if not self._fits(consumer, name):
            return None
        return self._peer(consumer, name)

    async def refresh(self, peer: Peer, allowed: Callable[[str], bool]) -> None:
        """Let a peer have what its consumer is subscribed to, whichever peer asked for it."""
        keys = set(filter(allowed, self._directory.keys(peer.consumer)))
        for key in keys - set(peer.subscriptions):
            try:
                subscription = await self._join(peer.consumer, peer.name, key)
            except (Unavailable, AccessDenied, ClientClosed):
                raise
            except Exception as error:
                logger.warning("cannot subscribe a peer to topic %r: %r", key, error)
                continue
            if key in self._directory.keys(peer.consumer):
                peer.subscriptions[key] = subscription
            else:  # ended meanwhile
                await self._rsmq.topic(key).unsubscribe(peer.consumer)
        for key in set(peer.subscriptions) - keys:
            peer.drop(key)

    async def close(self) -> None:
        """Give back what every peer holds."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._directory.close()
        await asyncio.gather(*(peer.give_back() for peer in self._peers.values()))

    async def _join(self, consumer: str, name: str, key: str) -> Subscription:
        return await self._rsmq.topic(key, keep_backlog=_NOTICED_S).subscribe(
            consumer, mode=self._mode, peer=name, maxsize=-1, silence=_SILENCE_S
        )

    def _peer(self, consumer: str, name: str) -> Peer:
        now = asyncio.get_running_loop().time()
        peer = self._peers.pop((consumer, name), None) or Peer(
            consumer, name, self._taking, together="," not in self._rsmq.ns
        )
        peer.seen_at = now
        self._peers[consumer, name] = peer
        self._consumers.setdefault(name, set()).add(consumer)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="aiorsmq-ng broker peers")
        return peer

    def _fits(self, consumer: str, name: str) -> bool:
        """Return True if a connection may have this consumer, too."""
        there = self._consumers.get(name, ())
        return consumer in there or len(there) < _MOST_CONSUMERS

    def _forget(self, consumer: str, name: str) -> Peer | None:
        """Take a peer out of the books, and return it."""
        if there := self._consumers.get(name):
            there.discard(consumer)
            if not there:
                del self._consumers[name]
        return self._peers.pop((consumer, name), None)

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                await self._look(await anyio.to_thread.run_sync(connected))
            except Exception:
                logger.exception("cannot look after the peers of GOMQ's consumers; trying again")

    async def _look(self, there: set[str]) -> None:
        """Keep alive the peers that are connected, and take back what the others held.

        A connection has an address of its own, so a peer without one never comes back.
        """
        now = asyncio.get_running_loop().time()
        # The longest silent one is the first.
        surplus = len(self._peers) - _MOST_PEERS
        gone: list[tuple[str, str]] = []
        quiet: list[Peer] = []
        for place, (who, peer) in enumerate(self._peers.items()):
            if place < surplus or peer.name not in there:
                gone.append(who)
            elif max(peer.seen_at, peer.kept_at) < now - _SILENCE_S / 3:
                quiet.append(peer)
        left = filter(None, [self._forget(*who) for who in gone])
        await asyncio.gather(*(peer.give_back() for peer in left))
        turns = anyio.CapacityLimiter(_KEPT_AT_A_TIME)
        await asyncio.gather(*(self._keep_alive(peer, turns) for peer in quiet))

    async def _keep_alive(self, peer: Peer, turns: anyio.CapacityLimiter) -> None:
        """Say that a peer is alive, a few at a time: clients' calls come in between."""
        async with turns:
            kept_at = asyncio.get_running_loop().time()
            try:
                for subscription in list(peer.subscriptions.values()):
                    await subscription.keep_alive()
            except RSMQError as error:
                logger.warning("cannot keep a peer of GOMQ's alive: %s", error)
            else:
                peer.kept_at = kept_at
