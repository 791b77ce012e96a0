"""All peers of GOMQ's consumers that are connected to this broker."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import anyio
import anyio.to_thread

from aiorsmq_ng import (
    AccessDenied,
    ClientClosed,
    RSMQError,
    Subscription,
    SubscriptionMode,
    Unavailable,
)

from ...broker.broker_context import BrokerContext
from ...broker.error_to_status import BrokerError
from ...broker.receive import BoundedReceiver
from .connections import connected
from .peer import PEER_TIMEOUT_S, Peer
from .subscription_index import SubscriptionIndex

logger = logging.getLogger("aiorsmq_ng.broker")

#: Peers of one GOMQ consumer: each its own copy, or one copy that they share.
GomqMode = Literal["copy", "share"]

#: Age at which the index of subscriptions is refreshed in the background, because another broker
#: may have changed them; and the age at which a peer waits for the refresh.
_KNOWN_S, _TOO_OLD_S = 15.0, 60.0
#: Longest wait of an Observe for the refresh, seconds.
_LEARN_S = 0.5
#: Delay with which GOMQ notices a subscription. All that began in it get the messages kept so far.
_NOTICED_S = 1.0
#: Limit of peers.
_MOST_PEERS = 50_000
#: Limit of consumer ids per connection: each costs work while the connection lives.
_MOST_CONSUMERS = 100
#: Keep-alive calls in flight.
_KEPT_AT_A_TIME = 16
#: Interval of the check for connected peers, seconds.
_CONNECTION_CHECK_S = 5.0


class Peers:
    """All peers of this broker, by consumer and connection; keeps them alive and removes them."""

    def __init__(self, broker: BrokerContext, receiver: BoundedReceiver, mode: GomqMode) -> None:
        self._broker, self._rsmq = broker, broker.rsmq
        self._receiver = receiver
        self._mode: SubscriptionMode = "broadcast" if mode == "copy" else "shared"
        self._peers: OrderedDict[tuple[str, str], Peer] = OrderedDict()
        #: Consumers of each connection, including those whose Subscribe is in flight.
        self._consumers: dict[str, set[str]] = {}
        self._index = SubscriptionIndex(broker.rsmq, self._mode)
        self._watching: asyncio.Task[None] | None = None

    async def subscribe(self, consumer: str, name: str, key: str) -> None:
        """Subscribe a consumer to a key, and a peer of it."""
        if not self._fits(consumer, name):
            raise BrokerError(
                "tooManyCalls",
                f"connection {name} has {_MOST_CONSUMERS} consumer ids, which is the limit; "
                "use another connection",
            )
        self._consumers.setdefault(name, set()).add(consumer)
        try:
            subscription = await self._join(consumer, name, key)
            # Only now: nothing is kept of a subscription that is refused.
            self._peer(consumer, name).subscriptions[key] = subscription
        finally:
            if (consumer, name) not in self._peers:
                self._forget(consumer, name)
        self._index.change(consumer, key, subscribed=True)

    async def unsubscribe(self, consumer: str, key: str) -> None:
        """End the subscription of a consumer, with all its peers."""
        self._index.change(consumer, key, subscribed=False)
        await self._rsmq.topic(key).unsubscribe(consumer)
        self._index.change(consumer, key, subscribed=False)
        for (other, _), peer in self._peers.items():
            if other == consumer:
                peer.drop(key)

    async def find(self, consumer: str, name: str) -> Peer | None:
        """Return a peer, or None if its consumer has no subscription."""
        index = self._index
        known = (consumer, name) in self._peers
        if not known and not index.fresh:
            await index.learn(_LEARN_S)
        elif index.age_s > _KNOWN_S:
            # Its subscriptions made here are known, and need not wait for a refresh of all.
            await index.learn(_LEARN_S if index.age_s > _TOO_OLD_S else 0.0)
        if not known and not (index.fresh and index.keys(consumer)):
            return None
        if not self._fits(consumer, name):
            return None
        return self._peer(consumer, name)

    async def refresh(self, peer: Peer, allowed: Callable[[str], bool]) -> None:
        """Give a peer the subscriptions of its consumer, whichever peer made them."""
        keys = set(filter(allowed, self._index.keys(peer.consumer)))
        for key in keys - set(peer.subscriptions):
            try:
                subscription = await self._join(peer.consumer, peer.name, key)
            except (Unavailable, AccessDenied, ClientClosed):
                raise
            except Exception as error:
                logger.warning("cannot subscribe a peer to topic %r: %r", key, error)
                continue
            if key in self._index.keys(peer.consumer):
                peer.subscriptions[key] = subscription
            else:  # it has ended
                await self._rsmq.topic(key).unsubscribe(peer.consumer)
        for key in set(peer.subscriptions) - keys:
            peer.drop(key)

    async def close(self) -> None:
        """Give back what every peer holds."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._index.close()
        await asyncio.gather(*(peer.give_back() for peer in self._peers.values()))

    async def _join(self, consumer: str, name: str, key: str) -> Subscription:
        topic = self._rsmq.topic(key, keep_backlog=_NOTICED_S)
        who: dict[str, Any] = {"mode": self._mode, "peer": name, "peer_timeout": PEER_TIMEOUT_S}
        await self._broker.check_subscriptions(topic, topic.subscription(consumer, **who))
        return await topic.subscribe(consumer, maxsize=-1, **who)

    def _peer(self, consumer: str, name: str) -> Peer:
        now = asyncio.get_running_loop().time()
        peer = self._peers.pop((consumer, name), None) or Peer(
            consumer, name, self._receiver, joint_receive="," not in self._rsmq.ns
        )
        peer.seen_at = now
        self._peers[consumer, name] = peer
        self._consumers.setdefault(name, set()).add(consumer)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="aiorsmq-ng broker peers")
        return peer

    def _fits(self, consumer: str, name: str) -> bool:
        """Return True if a connection may have this consumer as well."""
        there = self._consumers.get(name, ())
        return consumer in there or len(there) < _MOST_CONSUMERS

    def _forget(self, consumer: str, name: str) -> Peer | None:
        """Remove a peer, and return it."""
        if there := self._consumers.get(name):
            there.discard(consumer)
            if not there:
                del self._consumers[name]
        return self._peers.pop((consumer, name), None)

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(_CONNECTION_CHECK_S)
            try:
                await self._check_connections(await anyio.to_thread.run_sync(connected))
            except Exception:
                logger.exception("cannot keep the peers of GOMQ's consumers alive; trying again")

    async def _check_connections(self, there: set[str]) -> None:
        """Keep connected peers alive, and give back the messages of the others.

        Every connection has its own address, so a peer whose connection is gone never returns.
        """
        now = asyncio.get_running_loop().time()
        # The peer that has been silent the longest is first.
        surplus = len(self._peers) - _MOST_PEERS
        gone: list[tuple[str, str]] = []
        quiet: list[Peer] = []
        for place, (key, peer) in enumerate(self._peers.items()):
            if place < surplus or peer.name not in there:
                gone.append(key)
            elif max(peer.seen_at, peer.kept_at) < now - PEER_TIMEOUT_S / 3:
                quiet.append(peer)
        left = filter(None, [self._forget(*key) for key in gone])
        await asyncio.gather(*(peer.give_back() for peer in left))
        turns = anyio.CapacityLimiter(_KEPT_AT_A_TIME)
        await asyncio.gather(*(self._keep_alive(peer, turns) for peer in quiet))

    async def _keep_alive(self, peer: Peer, turns: anyio.CapacityLimiter) -> None:
        """Send the keep-alive of a peer; a few at a time, so that clients' calls get through."""
        async with turns:
            kept_at = asyncio.get_running_loop().time()
            try:
                for subscription in list(peer.subscriptions.values()):
                    await subscription.keep_alive()
            except RSMQError as error:
                logger.warning("cannot keep a GOMQ peer alive: %s", error)
            else:
                peer.kept_at = kept_at
