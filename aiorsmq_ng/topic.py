"""The Topic: what is published goes into every subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Protocol, TypeVar, overload

from ._common.message_headers import header_texts
from ._common.queue_defaults import DEFAULT_MAXSIZE
from ._protocol import argument_checks
from ._protocol.argument_checks import Seconds
from ._protocol.operation import Operation
from ._protocol.operations import queues, topics
from ._protocol.operations.message_values import Dedup
from ._protocol.operations.topics import Joining, TopicChanged, TopicKeys
from ._protocol.topic_names import check_part
from ._protocol.topic_state import BROADCAST, SHARED, Member, TopicState
from ._runtime.long_poll import LongPoll
from ._runtime.publish_plan import Plans, Publication, PublishToken
from ._runtime.queue_context import QueueContext
from .codec import to_body
from .errors import InvalidValue, QueueNotFound, SendToken, SendUnknown
from .models import (
    PeerInfo,
    QueueAttributes,
    Sent,
    SubscriptionInfo,
    SubscriptionMode,
    TopicInfo,
)
from .queue import Queue
from .retry import Retry
from .subscription import Subscription, nonce

R = TypeVar("R")
T = TypeVar("T")

#: Lifts a limit of the backlog.
_NO_LIMIT = -1


class Unchanged(Enum):
    """Default of a setting that stays as it is."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


class Parts(Protocol):
    """Makes what a handle on a queue needs."""

    def __call__(
        self,
        name: str,
        *,
        dead_letter: str | None = None,
        retry: Retry | None = None,
        vt: Seconds | None = None,
    ) -> tuple[QueueContext, LongPoll]:
        """Return the context of a queue, and its long poll."""
        ...


class Topic:
    """A handle on one topic. Making one costs nothing and checks nothing but the name."""

    def __init__(self, keys: TopicKeys, parts: Parts, plans: Plans, kept_ms: int = 0) -> None:
        self._keys = keys
        self._kept_ms = kept_ms
        self._parts = parts
        self._plans = plans
        own = parts(keys.own.queue)
        self._context, _ = own
        #: The topic's own queue, where messages wait for the first subscription.
        self.backlog = Queue(*own)

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._keys.name

    @overload
    async def publish(
        self,
        body: object,
        *,
        delay: Seconds | None = None,
        dedup_key: None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str: ...

    @overload
    async def publish(
        self,
        body: object,
        *,
        delay: Seconds | None = None,
        dedup_key: str,
        headers: Mapping[str, str] | None = None,
    ) -> Sent: ...

    async def publish(
        self,
        body: object,
        *,
        delay: Seconds | None = None,
        dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Store a message in every subscription, and return its id, which is the same in all.

        One atomic step: every consumer that subscribed before it began gets the message. Without
        any subscription it waits in the topic's own queue. Delay, *dedup_key*, lost replies and
        ``SendUnknown`` are as with ``Queue.send``; ``resend`` is this topic's.

        Args:
            body: ``str`` and ``bytes`` as they are; anything else goes through the client's codec.
            delay: seconds until the message becomes visible; by default the queue's ``delay``.
            dedup_key: name for this message; a second one with the same key is not stored within
                ``Options.dedup_window``.
            headers: names and texts to travel beside the body into every subscription.
        """
        dedup = None if dedup_key is None else self._context.dedup(dedup_key)
        return (await self._publish([body], delay, dedup, header_texts(headers)))[0]

    async def publish_many(
        self,
        bodies: Iterable[object],
        *,
        delay: Seconds | None = None,
        headers: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None = None,
    ) -> list[str]:
        """Store messages in order in every subscription, all or none, and return their ids.

        Args:
            bodies: the bodies, each as for a single one.
            delay: seconds until the message becomes visible; by default the queue's ``delay``.
            headers: headers of all the messages, or a list with those of each.
        """
        if isinstance(bodies, str | bytes | bytearray):
            raise InvalidValue("publish_many takes a list of bodies; use publish() for one")
        batch = list(bodies)
        if not batch:
            return []
        argument_checks.check_count(len(batch))
        return await self._publish(batch, delay, None, header_texts(headers, len(batch)))

    async def resend(self, token: SendToken) -> list[str]:
        """Learn the outcome of a publish that raised ``SendUnknown``; publish it if it is not yet.

        Never makes a second copy. Returns the ids, one for each body.

        Args:
            token: ``error.token`` of the ``SendUnknown``.
        """
        if not isinstance(token, PublishToken) or token.topic != self._keys:
            raise InvalidValue("the token is not of a publish to this topic by this client")
        try:
            sent: list[str] = await self._context.resume(token.token)
        except TopicChanged:
            # It has not run, and never will: subscriptions have changed since.
            return await self._run(token.publication)
        except SendUnknown as error:
            error.token = token
            raise
        return sent

    def subscription(
        self,
        consumer: str,
        *,
        mode: SubscriptionMode = "shared",
        peer: str | None = None,
        peer_timeout: Seconds = 30,
        dead_letter: str | None = None,
        retry: Retry | None = None,
    ) -> Subscription:
        """Return a handle on a subscription that is there already; no I/O.

        *dead_letter* and *retry* are as with ``RSMQ.queue``.

        Args:
            consumer: name under which the subscriber is known.
            mode: ``shared``: all peers read one queue; ``broadcast``: a copy for each peer.
            peer: name of one process of the consumer.
            peer_timeout: seconds without a sign of life after which a peer counts as gone.
            dead_letter: as for ``RSMQ.queue``.
            retry: as for ``RSMQ.queue``.
        """
        joining = self._joining(consumer, mode, peer, peer_timeout)
        return self._subscription(joining, dead_letter, retry)

    async def subscribe(
        self,
        consumer: str,
        *,
        mode: SubscriptionMode = "shared",
        peer: str | None = None,
        vt: Seconds = 30,
        delay: Seconds = 0,
        maxsize: int = DEFAULT_MAXSIZE,
        peer_timeout: Seconds = 30,
    ) -> Subscription:
        """Subscribe, or find the subscription that is there; return its queue.

        Every message that is published after this has returned is in it. The first subscription of
        a topic also gets what waited for one, in order. *mode* ``shared``: all that use the
        name *consumer* share the messages, and *peer* only names a process for ``describe``.
        ``broadcast``: every *peer* of the consumer gets a copy of its own. One that gives no sign
        of life for *peer_timeout*, while others do, loses its queue: the first peer's passes to
        another of them, so that the consumer misses nothing; what any other left is deleted. *vt*,
        *delay* and *maxsize* are stored on the queue if it is new.

        Args:
            consumer: name under which the subscriber is known.
            mode: ``shared``: all peers read one queue; ``broadcast``: a copy for each peer.
            peer: name of one process of the consumer.
            vt: lease in seconds of a queue that is created.
            delay: delay in seconds of a queue that is created.
            maxsize: largest body in bytes of a queue that is created.
            peer_timeout: seconds without a sign of life after which a peer counts as gone.
        """
        joining = self._joining(
            consumer, mode, peer, peer_timeout, vt=vt, delay=delay, maxsize=maxsize
        )
        subscription = self._subscription(joining)
        await subscription.join()
        return subscription

    async def unsubscribe(
        self, consumer: str, *, peer: str | None = None, discard: bool = False
    ) -> int:
        """End the subscription of a consumer, or of one peer of it; return how much stays in it.

        It gets nothing more. What it has not received yet stays in its queue and is there again
        when it subscribes again; with *discard* it is deleted. An empty queue is deleted in any
        case. With *peer*, in mode ``broadcast`` that peer's copy ends, and another peer gets what
        is only there; in mode ``shared`` that peer is only not counted any more.

        Dead letters stay in any case, in ``subscription.dead_letter``: delete that queue by
        ``RSMQ.delete_queue`` if they are not needed.

        Args:
            consumer: name under which the subscriber is known.
            peer: end the copy of this peer only; ``None`` ends the subscription of the consumer.
            discard: delete what was not received yet.
        """
        check_part("consumer", consumer)
        while True:
            state = await self._read()
            ending = state.leaving(consumer, peer)
            if not ending.members and not ending.fields:
                return 0
            try:
                return await self._transact(
                    topics.leave(self._keys, state, ending, discard=discard, nonce=nonce())
                )
            except TopicChanged:
                continue

    async def describe(self, *, attributes: bool = True) -> TopicInfo:
        """Describe the topic and its subscriptions. One round trip, and one for each queue.

        Args:
            attributes: with False, those of the queues are left out, and there is no look at them.
        """
        state = await self._read()
        members = state.members
        found: list[QueueAttributes | None] = [None] * len(members)
        if attributes:
            found = await asyncio.gather(*(self._attributes(m.queue) for m in members))
        described = [
            SubscriptionInfo(
                consumer=member.consumer,
                mode="broadcast" if member.mode == BROADCAST else "shared",
                queue=member.queue,
                state="on" if member.on else "left",
                peers=_peers(member, state),
                peer_timeout=member.peer_timeout_ms / 1000,
                attributes=known,
            )
            for member, known in zip(members, found, strict=True)
        ]
        return TopicInfo(
            name=self.name,
            queue=self.backlog.name,
            waiting=state.waiting,
            max_length=state.max_length,
            max_age=None if state.max_age_ms is None else state.max_age_ms / 1000,
            trimmed=state.trimmed,
            lost=state.lost,
            subscriptions=tuple(sorted(described, key=lambda s: (s.consumer, s.queue))),
        )

    async def set_backlog(
        self,
        *,
        max_length: int | Unchanged | None = UNCHANGED,
        max_age: Seconds | Unchanged | None = UNCHANGED,
        maxsize: int | None = None,
    ) -> None:
        """Limit what waits in the topic's own queue: only what is named; ``None`` lifts a limit.

        The oldest messages go first, when a message is published or a consumer subscribes;
        ``TopicInfo.trimmed`` counts them. The age counts from when a message could be received.
        *maxsize*, if given, is stored on the own queue, which is made if it is not there. One
        atomic round trip: changes of different limits at the same time do not undo each other.

        Args:
            max_length: how many messages may wait; ``None`` for any number.
            max_age: seconds that a message may wait; ``None`` for any time.
            maxsize: largest body in bytes; ``None`` leaves it.
        """
        operation = topics.set_limits(
            self._keys,
            max_length=_limit(max_length, _check_length),
            max_age_ms=_limit(max_age, partial(argument_checks.seconds_to_ms, "max_age")),
            maxsize=None if maxsize is None else argument_checks.check_maxsize(maxsize),
        )
        await self._context.transport.run(operation)

    async def delete(self) -> bool:
        """Delete the topic, its subscriptions and their messages; return True if it was there.

        Dead letters stay: ``<queue of the subscription>-dead`` is a queue of its own. Delete it by
        ``RSMQ.delete_queue``. Otherwise a later topic of that name finds them there.
        """
        while True:
            state = await self._read()
            try:
                return await self._transact(topics.delete(self._keys, state))
            except TopicChanged:
                continue

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} in namespace {self._keys.namespace.name!r}>"

    def _joining(
        self,
        consumer: str,
        mode: SubscriptionMode,
        peer: str | None,
        peer_timeout: Seconds,
        *,
        vt: Seconds = 30,
        delay: Seconds = 0,
        maxsize: int = DEFAULT_MAXSIZE,
    ) -> Joining:
        check_part("consumer", consumer)
        if mode not in (SHARED, BROADCAST):
            raise InvalidValue(f"mode must be 'shared' or 'broadcast', not {mode!r}")
        if peer is None and mode == BROADCAST:
            raise InvalidValue(
                "mode 'broadcast' needs a name for this process: pass peer=",
                code="missingParameter",
            )
        if peer is not None:
            check_part("peer", peer)
        peer_timeout_ms = argument_checks.seconds_to_ms("peer_timeout", peer_timeout)
        if not peer_timeout_ms:
            raise InvalidValue("peer_timeout must be more than 0 seconds")
        return Joining(
            consumer=consumer,
            mode=mode,
            peer=peer,
            peer_timeout_ms=peer_timeout_ms,
            vt=argument_checks.whole_seconds("vt", vt),
            delay=argument_checks.whole_seconds("delay", delay),
            maxsize=argument_checks.check_maxsize(maxsize),
            kept_ms=self._kept_ms,
        )

    def _subscription(
        self,
        joining: Joining,
        dead_letter: str | None = None,
        retry: Retry | None = None,
    ) -> Subscription:
        name = joining.queue(self._keys).queue
        parts = self._parts(name, dead_letter=dead_letter, retry=retry)
        return Subscription(parts, self._keys, joining)

    async def _publish(
        self,
        bodies: list[object],
        delay: Seconds | None,
        dedup: Dedup | None,
        headers: Sequence[bytes],
    ) -> list[str]:
        raw = [to_body(body, self._context.codec) for body in bodies]
        delay_ms = argument_checks.optional_ms("delay", delay)
        return await self._run(Publication(raw, delay_ms, dedup, headers))

    async def _run(self, publication: Publication) -> list[str]:
        plan = self._plans.get(self._keys)
        while True:
            try:
                return await self._context.transport.run(publication.under(plan))
            except TopicChanged:
                plan = await self._plans.renew(plan, self._context.transport.submit)
            except SendUnknown as error:
                if error.token is not None:
                    error.token = PublishToken(self._keys, publication, error.token)
                raise

    async def _read(self) -> TopicState:
        return await self._context.transport.run(topics.read(self._keys))

    async def _transact(self, operation: Operation[R]) -> R:
        return await self._context.transport.run(operation)

    async def _attributes(self, queue: str) -> QueueAttributes | None:
        try:
            return await self._transact(queues.attributes(self._keys.named(queue)))
        except QueueNotFound:
            return None


def _limit(given: T | Unchanged | None, check: Callable[[T], int]) -> int | None:
    """Return a limit as an operation takes it: ``None`` leaves it, -1 lifts it."""
    if isinstance(given, Unchanged):
        return None
    return _NO_LIMIT if given is None else check(given)


def _check_length(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValue(f"max_length must be a whole number of messages, not {value!r}")
    return value


def _peers(member: Member, state: TopicState) -> tuple[PeerInfo, ...]:
    if member.mode == BROADCAST:
        heard = member.heard_ms[1] if member.heard else state.now_ms
        return (PeerInfo(str(member.peer), (state.now_ms - heard) / 1000),)
    return tuple(
        PeerInfo(name, (state.now_ms - heard) / 1000)
        for queue, name, heard in state.peers
        if queue == member.queue and state.now_ms - heard <= member.peer_timeout_ms
    )
