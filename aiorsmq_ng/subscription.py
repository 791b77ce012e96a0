"""A subscription of a topic: a queue, and the peer that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from ._common import entropy
from ._common.message_ids import suffixes
from ._protocol import argument_checks
from ._protocol.argument_checks import Seconds
from ._protocol.operation import Operation
from ._protocol.operations import topics
from ._protocol.operations.topics import Joining, TopicChanged, TopicKeys
from ._protocol.topic_state import BROADCAST, Member, TopicState
from ._runtime.long_poll import LongPoll
from ._runtime.queue_context import QueueContext
from .delivery import Delivery
from .errors import InvalidValue, QueueNotFound
from .models import Message, SubscriptionMode
from .queue import Queue

#: The most messages that one observe returns by default.
OBSERVED = 50
#: Parts of a peer's timeout between two signs of life: the shortest, the longest while it waits.
_BEAT, _WAIT = 1 / 10, 1 / 3
#: Takeover steps per receive at most; each costs the server about 2 ms.
_STEPS = 10
#: How long a subscriber waits before it asks again whether another has moved the backlog.
_ELSEWHERE_S = 0.02

P = ParamSpec("P")
R = TypeVar("R")


def nonce() -> str:
    """Return random characters that no two changes of a topic share."""
    return suffixes(entropy.take(22))[0].decode()


class Subscription(Queue):
    """The queue in which a consumer, or one peer of it, finds what is published.

    Everything that a queue can do works here. What a peer receives, by any method, also
    keeps it alive: one that timed out comes back with its next receive, with an empty
    queue.
    """

    def __init__(
        self, parts: tuple[QueueContext, LongPoll], keys: TopicKeys, joining: Joining
    ) -> None:
        super().__init__(*parts)
        self._topic = keys
        self._joining = joining
        self._field = topics.heard_field(parts[0].keys, joining.mode, joining.peer)
        self._peer_timeout_s = joining.peer_timeout_ms / 1000
        self._beat_at = 0.0
        # True while this peer takes over from siblings; True if the last takeover is not finished.
        self._looking = self._unfinished = False

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic.name

    @property
    def consumer(self) -> str:
        """Name of the consumer that subscribed."""
        return self._joining.consumer

    @property
    def peer(self) -> str | None:
        """Name of this peer of the consumer, if one was given."""
        return self._joining.peer

    @property
    def mode(self) -> SubscriptionMode:
        """``shared``: peers share the messages; ``broadcast``: every peer gets its own copy."""
        return "broadcast" if self._joining.mode == BROADCAST else "shared"

    async def observe(
        self, count: int = OBSERVED, *, vt: Seconds | None = None, wait: Seconds = 0
    ) -> list[Delivery]:
        """Announce this peer, and lease up to *count* messages, waiting for the first.

        Args:
            count: how many messages at most.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            wait: seconds to wait for a message; 0 returns at once.
        """
        argument_checks.check_count(count)
        vt_ms = argument_checks.optional_ms("vt", vt)
        wait_s = argument_checks.seconds_to_ms("wait", wait) / 1000
        receiving = self._receive(count, vt_ms, wait_s)
        return await self._context.receiving((self.name,), count, wait_s, receiving)

    async def keep_alive(self) -> bool:
        """Give a sign of life of this peer; return True if it is subscribed.

        For a peer that works for longer than its timeout. One that timed out is
        subscribed again.
        """
        if not self._field:
            member = (await self._read()).find(self.name)
            return member is not None and member.on
        return await self._beat() != 0

    async def receive(self, *, vt: Seconds | None = None, wait: Seconds = 0) -> Delivery | None:
        """Lease the next ready message, or return ``None``; as ``Queue.receive``.

        Args:
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            wait: seconds to wait for a message; 0 returns at once.
        """
        if not self._field:
            return await super().receive(vt=vt, wait=wait)
        received = await self.observe(1, vt=vt, wait=wait)
        return received[0] if received else None

    async def pop_many(self, count: int) -> list[Message]:
        """Take and delete up to *count* ready messages by one call; as ``Queue.pop_many``.

        Args:
            count: how many messages at most.
        """
        argument_checks.check_count(count)
        return await self._alive(super().pop_many, count)

    async def recover(
        self, count: int, idle: Seconds, *, vt: Seconds | None = None
    ) -> list[Delivery]:
        """Take over messages that were leased long ago; as ``Queue.recover``.

        Args:
            count: how many messages at most.
            idle: seconds since the last delivery, at least.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
        """
        argument_checks.check_count(count)
        return await self._alive(super().recover, count, idle, vt=vt)

    async def _receive(
        self, count: int, vt_ms: int, wait_s: float, context: QueueContext | None = None
    ) -> list[Delivery]:
        if not self._field:
            return await super()._receive(count, vt_ms, wait_s, context)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        receive = super()._receive
        while True:
            left_s = min(max(0.0, until - loop.time()), self._peer_timeout_s * _WAIT)
            received = await self._alive(receive, count, vt_ms, left_s, context)
            if received or loop.time() >= until:
                return received

    async def _alive(self, take: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Take messages, and announce this peer if that is due."""
        if not self._field:
            return await take(*args, **kwargs)
        if asyncio.get_running_loop().time() >= self._beat_at:
            await self._beat()
        try:
            return await take(*args, **kwargs)
        except QueueNotFound:
            # It timed out since its last sign of life: after a long pause of this process.
            if not await self._beat():
                raise
            return await take(*args, **kwargs)

    async def _beat(self) -> int:
        """Announce this peer; return 1 if it is subscribed, 0 if not, -1 if it came back."""
        state, due = await self._context.transport.run(topics.beat(self._topic, self._joining))
        self._beat_at = asyncio.get_running_loop().time() + self._peer_timeout_s * _BEAT
        if state < 0:
            await self.join()
        elif state and (due or self._unfinished) and not self._looking:
            await self._look_after_siblings()
        return state

    async def join(self) -> None:
        """Subscribe. A long backlog is moved by several calls, the last of which subscribes."""
        while True:
            state = await self._read()
            self._check_mode(state)
            own, keeper = state.find(self.name), state.keeper(self.consumer)
            try:
                # What it left belongs to the present peers.
                if keeper and own and not own.on and await self._adopt(own, keeper, state):
                    continue
                joined = await self._run(topics.join(self._topic, self._joining, state, nonce()))
            except TopicChanged:
                continue
            if joined > 0:
                break
            if joined < 0:
                await asyncio.sleep(_ELSEWHERE_S)
        if self.mode == BROADCAST:
            await self._look_after_siblings()

    async def _look_after_siblings(self) -> None:
        """End subscriptions of siblings that timed out; move what they left to the keeper."""
        self._looking = True
        try:
            for _ in range(_STEPS):
                state = await self._read()
                me = state.find(self.name)
                self._unfinished = me is not None and me.on and await self._step(me, state)
                if not self._unfinished:
                    return
        finally:
            self._looking = False

    async def _step(self, me: Member, state: TopicState) -> bool:
        """Make one takeover step. Return True if there was one to make."""
        dead, (keeper, left) = state.dead(me), state.left(me)
        try:
            if dead.members:
                ending = topics.leave(self._topic, state, dead, discard=False, nonce=nonce())
                await self._run(ending)
                return True
            return bool(left) and await self._adopt(left[0], keeper, state)
        except TopicChanged:
            return True

    async def _adopt(self, left: Member, keeper: Member, state: TopicState) -> bool:
        """Move a part of what a peer left; a broker does it by itself, and then this is False."""
        return await self._run(topics.adopt(self._topic, state, left, keeper, nonce())) >= 0

    def _check_mode(self, state: TopicState) -> None:
        if other := next((m for m in state.of(self.consumer) if m.mode != self.mode), None):
            raise InvalidValue(
                f"consumer {self.consumer!r} of topic {self.topic!r} is subscribed in mode "
                f"{other.mode!r}, or has messages left from that; use that mode, or "
                "unsubscribe it with discard=True"
            )

    async def _read(self) -> TopicState:
        return await self._run(topics.read(self._topic))

    async def _run(self, operation: Operation[R]) -> R:
        return await self._context.transport.run(operation)

    def __repr__(self) -> str:
        who = self.consumer if self.peer is None else f"{self.consumer}/{self.peer}"
        return f"<Subscription of {who!r} to topic {self.topic!r}, queue {self.name!r}>"
