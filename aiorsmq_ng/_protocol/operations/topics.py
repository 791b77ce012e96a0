"""Operations on topics: publish, subscribe, unsubscribe, keep alive, adopt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...errors import RSMQError, SendUnknown
from ...models import Sent
from ..keys import Namespace, QueueKeys
from ..operation import Kind, Operation, Request
from ..topic_names import escape, queue_name
from ..topic_state import BROADCAST, NO_PEER, Ending, Member, TopicState
from .message_values import Dedup
from .queues import ListRequest, NamesPage

#: Messages that one step of moving a queue into another handles, in about 2 ms.
PAGE = 1000


class TopicChanged(RSMQError):
    """Raised when the subscriptions differ from those that the caller knew; nothing was done."""

    code = "topicChanged"


@dataclass(frozen=True)
class TopicKeys:
    """A topic, the keys of its own queue, and the channels on which arrivals are announced."""

    name: str
    own: QueueKeys
    channel: Callable[[QueueKeys], str] = field(compare=False)

    @property
    def namespace(self) -> Namespace:
        """The namespace of all its queues."""
        return self.own.namespace

    def queue(self, *parts: str) -> QueueKeys:
        """Return the keys of the queue for a consumer, or for a peer of it."""
        return self.named(queue_name(self.name, *parts))

    def named(self, queue: str) -> QueueKeys:
        """Return the keys of one of its queues."""
        return self.namespace.queue(queue)

    def failure(self, code: str) -> RSMQError:
        """Return the error for a script's error code on this topic."""
        if code == TopicChanged.code:
            return TopicChanged(f"the subscriptions of topic {self.name!r} have changed")
        word, _, queue = code.partition(" ")
        return (self.named(queue) if queue else self.own).failure(word)


class Plan:
    """Where a topic's messages go: the subscriptions that a client knows of.

    Compared by identity: a client keeps one plan for a topic until the subscriptions change.
    """

    def __init__(self, keys: TopicKeys, state: TopicState) -> None:
        self.keys = keys
        self.version = state.version
        #: The queues of the subscriptions that are on.
        self.queues = tuple(keys.named(m.queue) for m in state.members if m.on)
        #: How many times a message is stored; without subscriptions, once in the topic's own queue.
        self.copies = max(1, len(self.queues))


class Joining(NamedTuple):
    """A subscription that is to begin."""

    consumer: str
    mode: str
    peer: str | None
    peer_timeout_ms: int
    #: Attributes of the queue, if it is new: seconds, seconds, bytes.
    vt: int
    delay: int
    maxsize: int
    #: How long the backlog is kept for other consumers after the first subscription.
    kept_ms: int = 0

    def queue(self, keys: TopicKeys) -> QueueKeys:
        """Return the keys of its queue."""
        if self.mode == BROADCAST:
            return keys.queue(self.consumer, self.peer or "")
        return keys.queue(self.consumer)

    def record(self, *, keeper: bool) -> str:
        """Return the text that is stored for it."""
        peer = escape(self.peer) if self.mode == BROADCAST and self.peer else NO_PEER
        return f"{self.mode} {self.peer_timeout_ms} {int(keeper)} {escape(self.consumer)} {peer}"


def heard_field(queue: QueueKeys, mode: str, peer: str | None) -> str:
    """Return the field with a peer's last sign of life; empty for a consumer without peers."""
    if mode == BROADCAST:
        return queue.queue
    return shared_field(queue.queue, peer) if peer else ""


def shared_field(queue: str, peer: str) -> str:
    """Return the field with the last sign of life of a peer of a shared subscription."""
    return f"{queue} {escape(peer)}"


class TopicRequest(Request, frozen=True):
    """A request about one topic."""

    topic: TopicKeys

    @property
    def keys(self) -> QueueKeys:
        """The topic's own queue."""
        return self.topic.own


class PublishRequest(Request, frozen=True):
    """Store *bodies* in order in every subscription, all or none. The result is the ids.

    ``TopicChanged``, and nothing is stored, if the subscriptions are no longer those of *plan*.
    A driver whose server knows the subscriptions itself may ignore the plan, except for the topic
    in ``plan.keys``.
    """

    plan: Plan
    bodies: Sequence[bytes]
    #: -1 for each queue's stored delay.
    delay_ms: int
    dedup: Dedup | None
    #: As in ``SendRequest``.
    headers: Sequence[bytes] = ()

    @property
    def keys(self) -> QueueKeys:
        """The topic's own queue."""
        return self.plan.keys.own

    @property
    def lane(self) -> tuple[Any, ...]:
        """Messages published with one plan share a call."""
        return (self.plan,)

    @property
    def weight(self) -> int:
        """One per copy."""
        return len(self.bodies) * self.plan.copies

    @property
    def size(self) -> int:
        """The bytes of all copies."""
        return (sum(map(len, self.bodies)) + sum(map(len, self.headers))) * self.plan.copies


class ReadRequest(TopicRequest, frozen=True):
    """Read the stored state of a topic."""


class JoinRequest(TopicRequest, frozen=True):
    """Begin a subscription. The result is 1 if it has begun, 0 if a long backlog is being moved.

    It is -1 if another subscriber is moving the backlog; try again a little later.
    """

    joining: Joining
    state: TopicState
    #: Version of the subscriptions from then on.
    nonce: str


class AdoptRequest(TopicRequest, frozen=True):
    """Move what *ended* left and *keeper* lacks, one step. The result is 1 when all is moved."""

    state: TopicState
    ended: Member
    keeper: Member
    nonce: str


class LeaveRequest(TopicRequest, frozen=True):
    """End subscriptions, and remove peers of shared ones. The result is how many messages stay."""

    state: TopicState
    ending: Ending
    discard: bool
    nonce: str


class BeatRequest(TopicRequest, frozen=True):
    """Record a sign of life of a peer.

    The result is 1 if it is subscribed, 0 if not, -1 if it had timed out; and True if it is time to
    look for silent siblings.
    """

    joining: Joining


class SetLimitsRequest(TopicRequest, frozen=True):
    """Set the limits of the backlog: ``None`` leaves a limit as it is, -1 lifts it."""

    max_length: int | None
    max_age_ms: int | None
    maxsize: int | None


class DeleteTopicRequest(TopicRequest, frozen=True):
    """Delete a topic with all its queues. The result is True if it existed."""

    state: TopicState


def _with_level(ids: list[str], level: str) -> list[str]:
    return [Sent.at(id, level) for id in ids]


PUBLISH: Kind[list[str]] = Kind(
    name="publish", merge=True, numbered=True, unknown=SendUnknown, with_durability=_with_level
)
READ: Kind[TopicState] = Kind(name="topic_read", repeatable=True)
JOIN: Kind[int] = Kind(name="topic_join", repeatable=True)
ADOPT: Kind[int] = Kind(name="topic_adopt", repeatable=True)
LEAVE: Kind[int] = Kind(name="topic_leave", repeatable=True)
BEAT: Kind[tuple[int, bool]] = Kind(name="topic_beat", repeatable=True)
SET_LIMITS: Kind[int] = Kind(name="topic_limits", repeatable=True)
DELETE: Kind[bool] = Kind(name="topic_delete", repeatable=True)
LIST_TOPICS: Kind[NamesPage] = Kind(name="list_topics", repeatable=True)


def publish(
    plan: Plan,
    bodies: Sequence[bytes],
    *,
    delay_ms: int,
    dedup: Dedup | None = None,
    headers: Sequence[bytes] = (),
) -> Operation[list[str]]:
    """Store *bodies* in order in every subscription, all or none."""
    return Operation(PUBLISH, PublishRequest(plan, bodies, delay_ms, dedup, headers))


def read(keys: TopicKeys) -> Operation[TopicState]:
    """Read the stored state of a topic."""
    return Operation(READ, ReadRequest(keys))


def join(keys: TopicKeys, joining: Joining, state: TopicState, nonce: str) -> Operation[int]:
    """Begin a subscription; the result is 1 if it has begun, 0 if a long backlog is being moved.

    It is -1 if another subscriber is moving the backlog; try again a little later.
    """
    return Operation(JOIN, JoinRequest(keys, joining, state, nonce))


def adopt(
    keys: TopicKeys, state: TopicState, ended: Member, keeper: Member, nonce: str
) -> Operation[int]:
    """Move what *ended* left and *keeper* lacks, one step; the result is 1 when all is moved."""
    return Operation(ADOPT, AdoptRequest(keys, state, ended, keeper, nonce))


def leave(
    keys: TopicKeys, state: TopicState, ending: Ending, *, discard: bool, nonce: str
) -> Operation[int]:
    """End subscriptions, and remove peers of shared ones; the result is how many messages stay."""
    return Operation(LEAVE, LeaveRequest(keys, state, ending, discard, nonce))


def beat(keys: TopicKeys, joining: Joining) -> Operation[tuple[int, bool]]:
    """Record a sign of life of a peer; the result is that of ``BeatRequest``."""
    return Operation(BEAT, BeatRequest(keys, joining))


def set_limits(
    keys: TopicKeys, *, max_length: int | None, max_age_ms: int | None, maxsize: int | None
) -> Operation[int]:
    """Set the limits of the backlog: ``None`` leaves a limit as it is, -1 lifts it."""
    return Operation(SET_LIMITS, SetLimitsRequest(keys, max_length, max_age_ms, maxsize))


def delete(keys: TopicKeys, state: TopicState) -> Operation[bool]:
    """Delete a topic with all its queues; the result is True if it existed."""
    return Operation(DELETE, DeleteTopicRequest(keys, state))


def list_topics(namespace: Namespace, cursor: bytes) -> Operation[NamesPage]:
    """List the names of topics, from *cursor* on."""
    return Operation(LIST_TOPICS, ListRequest(namespace, cursor))
