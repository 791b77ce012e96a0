"""A subscription of a topic: a queue, and the peer that reads it."""

from __future__ import annotations

import asyncio

from . import entropy
from .codec import Codec
from .delivery import Delivery, Origin
from .ids import suffixes
from .models import Message
from .protocol import limits, topics
from .protocol.limits import Seconds
from .protocol.topic_state import EACH, GONE, OFF, ON, Member, TopicState, orphans
from .protocol.topics import Joining, TopicChanged, TopicKeys
from .queue import Queue
from .receiver import Receiver

#: Messages that one observe returns at most, unless it is told otherwise.
OBSERVED = 50
#: Parts of a peer's silence: how often it is heard of at most, and at least while it waits.
_BEAT, _WAIT = 1 / 10, 1 / 3
#: Steps of taking over what others left that one receive makes, each some 2 ms of the server.
_STEPS = 10
#: How often a peer looks again at a topic that others change at the same moment.
_TRIES = 10


def nonce() -> str:
    """Return random characters that no two changes of a topic share."""
    return suffixes(entropy.take(22))[0].decode()


class Subscription(Queue):
    """The queue in which a consumer, or one peer of it, finds what is published.

    Everything that a queue can do works here. What a peer receives, by whatever method, also
    keeps it alive: one that was silent for too long is taken off, and comes back with its next
    receive.
    """

    def __init__(
        self, parts: tuple[Origin, Receiver, Codec], keys: TopicKeys, joining: Joining
    ) -> None:
        super().__init__(*parts)
        self._topic = keys
        self._joining = joining
        self._field = topics.heard_field(parts[0].keys, joining.mode, joining.peer)
        self._silence_s = joining.silence_ms / 1000
        self._beat_at = 0.0
        # The version at which everything was found in order, and how far a walk has come.
        self._version: str | None = None
        self._walks: dict[str, int] = {}
        self._looking = False

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic.name

    @property
    def consumer(self) -> str:
        """Who subscribed."""
        return self._joining.consumer

    @property
    def peer(self) -> str | None:
        """Which of the consumer's peers this is, if that was said."""
        return self._joining.peer

    @property
    def mode(self) -> str:
        """``shared``: peers share the messages; ``each``: every peer gets its own copy."""
        return self._joining.mode

    async def observe(
        self, count: int = OBSERVED, *, vt: Seconds | None = None, wait: Seconds = 0
    ) -> list[Delivery]:
        """Say that this peer is alive, and lease up to *count* messages, waiting for the first."""
        limits.check_count(count)
        vt_ms = limits.optional_ms("vt", vt)
        wait_s = limits.seconds_to_ms("wait", wait) / 1000
        return await self._receive(count, vt_ms, wait_s)

    async def keep_alive(self) -> bool:
        """Say that this peer is alive; the result tells whether it is subscribed.

        For a peer that works for longer than its silence may last. One that was taken off is
        subscribed again.
        """
        if not self._field:
            state = await self.origin.transport.run(topics.read(self._topic))
            member = state.find(self.name)
            return member is not None and member.on
        return await self._beat()

    async def receive(self, *, vt: Seconds | None = None, wait: Seconds = 0) -> Delivery | None:
        """Lease the next ready message, or return ``None``; as ``Queue.receive``."""
        if not self._field:
            return await super().receive(vt=vt, wait=wait)
        received = await self.observe(1, vt=vt, wait=wait)
        return received[0] if received else None

    async def pop_many(self, count: int) -> list[Message]:
        """Take and delete up to *count* ready messages by one call; as ``Queue.pop_many``."""
        limits.check_count(count)
        await self._beat_if_due()
        return await super().pop_many(count)

    async def recover(
        self, count: int, idle: Seconds, *, vt: Seconds | None = None
    ) -> list[Delivery]:
        """Take over messages that were leased long ago; as ``Queue.recover``."""
        limits.check_count(count)
        await self._beat_if_due()
        return await super().recover(count, idle, vt=vt)

    async def _receive(self, count: int, vt_ms: int, wait_s: float) -> list[Delivery]:
        if not self._field:
            return await super()._receive(count, vt_ms, wait_s)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while True:
            await self._beat_if_due()
            left_s = max(0.0, until - loop.time())
            received = await super()._receive(count, vt_ms, min(left_s, self._silence_s * _WAIT))
            if received or loop.time() >= until:
                return received

    async def _beat_if_due(self) -> None:
        if self._field and asyncio.get_running_loop().time() >= self._beat_at:
            await self._beat()

    async def _beat(self) -> bool:
        run = self.origin.transport.run
        on, version = await run(topics.beat(self._topic, self.origin.keys, self._field, nonce()))
        self._beat_at = asyncio.get_running_loop().time() + self._silence_s * _BEAT
        if self.mode == EACH and not self._looking and (not on or version != self._version):
            self._looking = True
            try:
                on = await self._look_around()
            finally:
                self._looking = False
        return on

    async def _look_around(self) -> bool:
        """Come back if this peer was taken off, and take over what others left."""
        for _ in range(_TRIES):
            try:
                return await self._attend()
            except TopicChanged:
                continue
        self._beat_at = 0.0
        return False

    async def _attend(self) -> bool:
        state = await self.origin.transport.run(topics.read(self._topic))
        member = state.find(self.name)
        if member is None or member.state not in (ON, OFF, GONE):
            return False
        if not member.on:
            self._beat_at = 0.0
            joining = topics.join(self._topic, self._joining, state, nonce())
            return await self.origin.transport.run(joining) > 0
        if await self._take_over(member, state):
            self._version = state.version
        else:
            self._beat_at = 0.0
        return True

    async def _take_over(self, member: Member, state: TopicState) -> bool:
        """Move what this peer lacks, in a few steps; tell whether there is nothing left to do."""
        steps = _STEPS
        for left, whole in orphans(member, state):
            at = self._walks.get(left.queue, 0)
            while at >= 0:
                if not steps:
                    return False
                steps -= 1
                at = await self.origin.transport.run(
                    topics.inherit(
                        *(self._topic, state, left.queue, self.name),
                        whole=whole,
                        at=at,
                        nonce=nonce(),
                    )
                )
                self._walks[left.queue] = at
        self._walks.clear()
        return True

    def __repr__(self) -> str:
        who = self.consumer if self.peer is None else f"{self.consumer}/{self.peer}"
        return f"<Subscription of {who!r} to topic {self.topic!r}, queue {self.name!r}>"
