"""Peers with copies of their own that come, go, hop, die and return; on Redis or through a broker.

All are tasks of one process: one that dies just says nothing more. Of what is published while the
consumer has a peer nothing may be lost to it, and no queue of a dead peer may be left.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiorsmq_ng import RSMQ, LeaseLost, QueueNotFound, Subscription
from aiorsmq_ng.broker import Broker, BrokerOptions
from aiorsmq_ng.testing import PrivateServer

from ..lab import Verdict, Violation
from .topic_peer import PATIENT

#: How long a peer may be silent, in seconds.
PEER_TIMEOUT = 0.5
#: How often a client that comes under a new name for each look may get a message, on average: once
#: what came during a look, once what the keeper had. And it may be slow, and be taken for dead.
MOST = 3


class Cast:
    """A topic, one consumer of it, and all its peers."""

    def __init__(self, url: str, seconds: float, seed: int) -> None:
        self._url = url
        self._chance = random.Random(seed)
        self._seconds = seconds
        self._names = itertools.count()
        self._over = False
        self.published = 0
        self.seen: Counter[str] = Counter()
        self.subscribed = self.returned = 0

    async def play(self, *parts: Callable[[RSMQ], Awaitable[None]]) -> dict[str, Any]:
        """Publish while all play their parts, then let a last peer have the rest."""
        async with RSMQ(self._url, options=PATIENT) as rsmq:
            await self._join(rsmq)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._publish(rsmq))
                for part in parts:
                    tasks.create_task(part(rsmq))
            last = await self._join(rsmq)
            topic = rsmq.topic("storm")
            async with asyncio.timeout(300):
                while True:
                    await self._take(last)
                    found = (await topic.describe()).subscriptions
                    if [s.queue for s in found] == [last.name]:
                        break
                    await asyncio.sleep(PEER_TIMEOUT / 5)
            await self._take(last)
            left = [q for q in await rsmq.list_queues() if q != topic.backlog.name]
        return {
            "published": self.published, "peers": self.subscribed, "returns": self.returned,
            "lost": self.published - len(self.seen), "deliveries": sum(self.seen.values()),
            "most of one": max(self.seen.values()), "queues left": len(left) - 1,
        }  # fmt: skip

    async def hop(self, rsmq: RSMQ) -> None:
        """Come under a new name for each look."""
        while not self._over:
            await self._take(await self._join(rsmq))
            await self._pause(0.05)

    async def live(self, rsmq: RSMQ) -> None:
        """Receive regularly; then be silent for a while, and return, die or unsubscribe."""
        peer = await self._join(rsmq)
        while not self._over:
            for _ in range(self._chance.randrange(1, 20)):
                await self._take(peer)
                await self._pause(0.05)
            await self._pause(2 * PEER_TIMEOUT)
            if self._chance.random() < 0.5:
                self.returned += 1
                continue
            if self._chance.random() < 0.3:
                await rsmq.topic("storm").unsubscribe("c", peer=peer.peer)
            peer = await self._join(rsmq)

    async def _publish(self, rsmq: RSMQ) -> None:
        topic, loop = rsmq.topic("storm"), asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while loop.time() < until:
            count = self._chance.randrange(1, 4)
            await topic.publish_many(map(str, range(self.published, self.published + count)))
            self.published += count
            await self._pause(0.02)
        self._over = True

    async def _join(self, rsmq: RSMQ) -> Subscription:
        self.subscribed += 1
        name = f"peer {next(self._names)}"
        return await rsmq.topic("storm").subscribe(
            "c", mode="broadcast", peer=name, vt=60, peer_timeout=PEER_TIMEOUT
        )

    async def _take(self, peer: Subscription) -> None:
        try:
            while found := await peer.observe(10):
                for message in found:
                    self.seen[message.text] += 1
                    await message.ack()
        except (LeaseLost, QueueNotFound):
            return  # this machine was slow, and the peer was taken for dead

    async def _pause(self, at_most_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(0, at_most_s))


async def storm(seconds: float, *, hops: bool, broker: bool, seed: int = 1) -> dict[str, Any]:
    """Let one client hop, or many peers of all kinds play; return what came of it."""
    async with PrivateServer() as server, _way(server.url, broker=broker) as url:
        cast = Cast(url, seconds, seed)
        parts = [cast.hop] if hops else [cast.hop, *[cast.live] * 6]
        return await cast.play(*parts)


async def by_peers(
    seconds: float, *, hops: bool, broker: bool = False
) -> tuple[dict[str, Any], Verdict | None]:
    """Play it as a scene of the report."""
    found = await storm(seconds, hops=hops, broker=broker)
    wrong = [Violation("O1", f"lost: {found['lost']}")] if found["lost"] else []
    if found["queues left"]:
        wrong.append(Violation("O3", f"queues left: {found['queues left']}"))
    if hops and found["deliveries"] > MOST * found["published"]:
        wrong.append(Violation("O3", f"deliveries: {found['deliveries']}"))
    return found, Verdict(wrong)


@asynccontextmanager
async def _way(url: str, *, broker: bool) -> AsyncIterator[str]:
    if not broker:
        yield url
        return
    async with (
        RSMQ(url, options=PATIENT) as inner,
        Broker(inner, BrokerOptions(listen=("127.0.0.1:0",), grace=0.2)) as served,
    ):
        yield f"grpc://{served.addresses[0]}"
