"""Operations on topics: publish, subscribe, unsubscribe, keep alive, adopt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .._common.ids import suffixes
from ..errors import MessageTooLong, QueueCorrupt, RSMQError, SendUnknown
from ..models import Sent
from .keys import Namespace, QueueKeys
from .messages import OUTCOMES, read_outcome
from .operation import Argument, Operation, Reply
from .queues import NamesPage, list_names
from .scripts import load
from .topic_names import escape, queue_name
from .topic_state import EACH, NOBODY, Ending, Member, TopicState, read_state
from .values import Dedup

#: Messages that one step of moving a queue into another handles, in about 2 ms.
PAGE = 1000

_PUBLISH = load("publish")


class TopicChanged(RSMQError):
    """The subscriptions are not what the caller believed; nothing was done."""

    code = "topicChanged"


@dataclass(frozen=True)
class TopicKeys:
    """A topic, the keys of its own queue, and how arrivals in its queues are announced."""

    name: str
    own: QueueKeys
    channel: Callable[[QueueKeys], str] = field(compare=False)

    @property
    def namespace(self) -> Namespace:
        """The namespace in which all its queues lie."""
        return self.own.namespace

    def queue(self, *parts: str) -> QueueKeys:
        """Return the keys of the queue for a consumer, or for a peer of it."""
        return self.named(queue_name(self.name, *parts))

    def named(self, queue: str) -> QueueKeys:
        """Return the keys of one of its queues."""
        return self.namespace.queue(queue)

    def failure(self, code: str) -> RSMQError:
        """Return the error that a script's code word means for this topic."""
        if code == TopicChanged.code:
            return TopicChanged(f"the subscriptions of topic {self.name!r} have changed")
        word, _, queue = code.partition(" ")
        return (self.named(queue) if queue else self.own).failure(word)


class Plan:
    """Where a topic's messages go, ready to be handed to the script."""

    def __init__(self, keys: TopicKeys, state: TopicState) -> None:
        self.keys = keys
        self.version = state.version
        own = keys.own
        names = [own.topic, own.heard, own.namespace.topics, own.namespace.index]
        names += (own.zset, own.hash)
        members = [m for m in state.members if m.on]
        self.copies = max(1, len(members))
        head: list[Argument] = [keys.name, own.queue, keys.channel(own), state.version]
        head.append(len(members))
        for member in members:
            queue = keys.named(member.queue)
            names += (queue.zset, queue.hash)
            head += (member.queue, keys.channel(queue))
        self.names, self.head = tuple(names), tuple(head)


def publish(
    plan: Plan,
    bodies: Sequence[bytes],
    *,
    delay_ms: int,
    entropy: bytes,
    dedup: Dedup | None = None,
) -> Operation[list[str]]:
    """Store *bodies* in order in every subscription, all or none."""
    args: list[Argument] = [delay_ms, dedup.window_ms if dedup else 0, len(bodies)]
    for suffix, body in zip(suffixes(entropy), bodies, strict=True):
        args += (suffix, body)
    keys = plan.keys

    def parse(reply: Reply) -> list[str]:
        if reply[0] == b"messageTooLong":
            raise MessageTooLong(keys.name, reply[1], reply[2])
        if reply[-1] in OUTCOMES:
            return [read_outcome(reply)]
        return [id.decode() for id in reply]

    return Operation(
        script=_PUBLISH,
        keys=plan.names,
        own_keys=(keys.own.marker(dedup.digest),) if dedup else (),
        head=plan.head,
        args=tuple(args),
        parse=parse,
        fail=keys.failure,
        merge=True,
        weight=len(bodies) * plan.copies,
        size=sum(map(len, bodies)) * plan.copies,
        memory=keys.own.memory,
        lost=SendUnknown,
        graded=lambda ids, level: [Sent.at(id, level) for id in ids],
    )


def read(keys: TopicKeys) -> Operation[TopicState]:
    """Ask what is stored about a topic."""
    own = keys.own

    def parse(reply: Reply) -> TopicState:
        now, waiting, stored, times = reply
        try:
            return read_state(int(now), waiting, _pairs(stored), _pairs(times))
        except (ValueError, IndexError):
            raise QueueCorrupt(own.queue, "what is stored about the topic is damaged") from None

    return Operation(
        script=load("topic_read"),
        keys=(own.topic, own.heard, own.zset),
        args=(),
        parse=parse,
        fail=keys.failure,
        repeatable=True,
    )


class Joining(NamedTuple):
    """A subscription that is to begin."""

    consumer: str
    mode: str
    peer: str | None
    silence_ms: int
    #: Attributes of the queue, if it is new: seconds, seconds, bytes.
    vt: int
    delay: int
    maxsize: int
    #: How long what waited for the first subscription is kept for other consumers.
    kept_ms: int = 0

    def queue(self, keys: TopicKeys) -> QueueKeys:
        """Return the keys of its queue."""
        if self.mode == EACH:
            return keys.queue(self.consumer, self.peer or "")
        return keys.queue(self.consumer)

    def record(self, *, keeper: bool) -> str:
        """Return what the topic keeps of it."""
        peer = escape(self.peer) if self.mode == EACH and self.peer else NOBODY
        return f"{self.mode} {self.silence_ms} {int(keeper)} {escape(self.consumer)} {peer}"


def heard_field(queue: QueueKeys, mode: str, peer: str | None) -> str:
    """Return under which name a peer is heard of; nothing for a consumer without peers."""
    if mode == EACH:
        return queue.queue
    return shared_field(queue.queue, peer) if peer else ""


def shared_field(queue: str, peer: str) -> str:
    """Return under which name a peer of a shared subscription is heard of."""
    return f"{queue} {escape(peer)}"


def join(keys: TopicKeys, joining: Joining, state: TopicState, nonce: str) -> Operation[int]:
    """Begin a subscription: 1 if it has begun, 0 if a long backlog is still being moved.

    -1: the backlog is just being moved elsewhere, come again a little later.
    """
    own, queue = keys.own, joining.queue(keys)
    keeper = state.keeper(joining.consumer) if joining.mode == EACH else None
    alone = joining.mode == EACH and (keeper is None or keeper.queue == queue.queue)
    return Operation(
        script=load("topic_join"),
        keys=(
            *(own.topic, own.heard, own.namespace.topics, own.namespace.index),
            *(own.zset, own.hash, queue.zset, queue.hash, own.gone, *own.kept),
            *(own.deliveries, queue.deliveries),
        ),
        args=(
            state.version,
            nonce,
            keys.name,
            queue.queue,
            joining.record(keeper=alone),
            heard_field(queue, joining.mode, joining.peer),
            joining.vt,
            joining.delay,
            joining.maxsize,
            int(not any(m.on for m in state.members)),
            PAGE,
            keys.channel(queue),
            keeper.queue if keeper and not alone else "",
            joining.kept_ms,
        ),
        parse=int,
        fail=keys.failure,
        repeatable=True,
    )


def adopt(
    keys: TopicKeys, state: TopicState, ended: Member, keeper: Member, nonce: str
) -> Operation[int]:
    """Let *keeper* have what *ended* left and it lacks, one step: 1 if that is done, 0 if not."""
    own, old, new = keys.own, keys.named(ended.queue), keys.named(keeper.queue)
    return Operation(
        script=load("topic_adopt"),
        keys=(
            *(own.topic, own.heard, own.gone, own.namespace.index),
            *(old.zset, old.hash, old.deliveries, new.zset, new.hash, new.deliveries),
        ),
        args=(
            *(state.version, nonce, ended.queue, ended.heard if ended.on else "", keeper.queue),
            *(PAGE, keys.channel(new)),
        ),
        parse=int,
        fail=keys.failure,
        repeatable=True,
    )


def leave(
    keys: TopicKeys, state: TopicState, ending: Ending, *, discard: bool, nonce: str
) -> Operation[int]:
    """End subscriptions, and forget peers of shared ones; the result is how many messages stay."""
    own = keys.own
    names = [own.topic, own.heard, own.gone, own.namespace.index]
    args: list[Argument] = [state.version, nonce, int(discard)]
    args += (ending.successor, len(ending.members))
    for member in ending.members:
        queue = keys.named(member.queue)
        names += (queue.zset, queue.hash, queue.deliveries)
        args += (member.queue, int(member in ending.spare), member.heard if ending.dead else "")
    return Operation(
        script=load("topic_leave"),
        keys=tuple(names),
        args=(*args, *ending.fields),
        parse=int,
        fail=keys.failure,
        repeatable=True,
    )


def beat(keys: TopicKeys, joining: Joining) -> Operation[tuple[int, bool]]:
    """Say that a peer is alive: 1 if it is subscribed, 0 if not, -1 if it was taken for dead.

    And whether it is time to look for siblings that are silent.
    """
    queue = joining.queue(keys)
    return Operation(
        script=load("topic_beat"),
        keys=(keys.own.topic, keys.own.heard, keys.own.gone),
        args=(
            queue.queue,
            heard_field(queue, joining.mode, joining.peer),
            escape(joining.consumer) if joining.mode == EACH else "",
        ),
        parse=lambda reply: (int(reply[0]), bool(reply[1])),
        fail=keys.failure,
        repeatable=True,
    )


def set_limits(
    keys: TopicKeys, *, max_length: int | None, max_age_ms: int | None, maxsize: int | None
) -> Operation[int]:
    """Set how much may wait in the topic's own queue."""
    own = keys.own
    limits = ("" if value is None else value for value in (max_length, max_age_ms, maxsize))
    return Operation(
        script=load("topic_limits"),
        keys=(own.topic, own.namespace.topics, own.namespace.index, own.zset, own.hash),
        args=(keys.name, own.queue, *limits),
        parse=int,
        fail=keys.failure,
        repeatable=True,
    )


def delete(keys: TopicKeys, state: TopicState) -> Operation[bool]:
    """Delete a topic with all its queues; the result tells whether there was one."""
    own = keys.own
    queues = [own, *(keys.named(m.queue) for m in state.members)]
    names = [own.topic, own.heard, own.gone, own.namespace.topics, own.namespace.index]
    for queue in queues:
        names += (queue.zset, queue.hash, queue.deliveries)
    return Operation(
        script=load("topic_delete"),
        keys=(*names, *own.kept),
        args=(state.version, keys.name, *(queue.queue for queue in queues)),
        parse=bool,
        fail=keys.failure,
        repeatable=True,
    )


def list_topics(namespace: Namespace, cursor: bytes) -> Operation[NamesPage]:
    """List the names of topics, from *cursor* on."""
    return list_names(namespace, namespace.topics, cursor)


def _pairs(flat: list[bytes]) -> dict[str, str]:
    values = iter(text.decode() for text in flat)
    return dict(zip(values, values, strict=True))
