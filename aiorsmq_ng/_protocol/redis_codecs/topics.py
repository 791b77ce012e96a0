"""Codecs of topics: publish, subscribe, unsubscribe, keep alive, adopt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ..._common.message_ids import SUFFIX_LENGTH, mark_headers, suffix
from ...errors import MessageTooLong, QueueCorrupt, RSMQError
from ..operation import Argument, Operation, Reply
from ..operations import topics
from ..operations.queues import ListRequest, NamesPage
from ..operations.topics import (
    PAGE,
    AdoptRequest,
    BeatRequest,
    DeleteTopicRequest,
    JoinRequest,
    LeaveRequest,
    Plan,
    PublishRequest,
    ReadRequest,
    SetLimitsRequest,
    TopicRequest,
    heard_field,
)
from ..topic_names import escape
from ..topic_state import BROADCAST, TopicState, read_state
from .codec import Codec, Entropy, Words
from .queues import NAMES_PAGE, decode_names
from .send import OUTCOMES, check_refusal, read_outcome


def _failure(request: TopicRequest, code: str) -> RSMQError:
    return request.topic.failure(code)


# A plan stays the same for many calls, and may be long.
@lru_cache(maxsize=1024)
def _targets(plan: Plan) -> tuple[Sequence[str], Sequence[Argument]]:
    """Return the keys of a topic and its subscriptions, and the arguments that describe them."""
    topic, own = plan.keys, plan.keys.own
    keys = [own.topic, own.heard, own.namespace.topics, own.namespace.index, own.zset, own.hash]
    head: list[Argument] = [topic.name, own.queue, topic.channel(own), plan.version]
    head.append(len(plan.queues))
    for queue in plan.queues:
        keys += (queue.zset, queue.hash)
        head += (queue.queue, topic.channel(queue))
    return keys, head


def _encode_publish(operations: Sequence[Operation[Any]], entropy: Entropy) -> Words:
    """KEYS: topic, subscriptions, markers of dedup keys. ARGV: targets, then what is published."""
    first: PublishRequest = operations[0].request
    names, head = _targets(first.plan)
    keys, args = [*names], [*head]
    for operation in operations:
        request: PublishRequest = operation.request
        bodies, dedup = request.bodies, request.dedup
        if dedup is not None:
            keys.append(request.keys.marker(dedup.digest))
        args += (request.delay_ms, dedup.window_ms if dedup else 0)
        random, headers = suffix(entropy(SUFFIX_LENGTH * len(bodies))), request.headers
        args.append(f"{len(bodies)} {len(headers)}" if headers else len(bodies))
        if headers:
            random = mark_headers(random, headers)
        for at, body in enumerate(bodies):
            args += (random[SUFFIX_LENGTH * at : SUFFIX_LENGTH * (at + 1)], body)
        args += headers
    return keys, args


def _decode_published(request: PublishRequest, reply: Reply) -> list[str]:
    if reply[0] == b"messageTooLong":
        raise MessageTooLong(request.plan.keys.name, reply[1], reply[2])
    check_refusal(request.keys, reply)
    if reply[-1] in OUTCOMES:
        return [read_outcome(reply)]
    return [id.decode() for id in reply]


def _decode_state(request: ReadRequest, reply: Reply) -> TopicState:
    now, waiting, stored, times = reply
    try:
        return read_state(int(now), waiting, _pairs(stored), _pairs(times))
    except (ValueError, IndexError):
        queue = request.topic.own.queue
        raise QueueCorrupt(queue, "what is stored about the topic is damaged") from None


def _join_keys(request: JoinRequest) -> Sequence[str]:
    own, queue = request.topic.own, request.joining.queue(request.topic)
    return (
        *(own.topic, own.heard, own.namespace.topics, own.namespace.index),
        *(own.zset, own.hash, queue.zset, queue.hash, own.gone, *own.kept),
        *(own.deliveries, queue.deliveries),
    )


def _join_args(request: JoinRequest) -> Sequence[Argument]:
    topic, joining, state = request.topic, request.joining, request.state
    queue = joining.queue(topic)
    keeper = state.keeper(joining.consumer) if joining.mode == BROADCAST else None
    alone = joining.mode == BROADCAST and (keeper is None or keeper.queue == queue.queue)
    return (
        state.version,
        request.nonce,
        topic.name,
        queue.queue,
        joining.record(keeper=alone),
        heard_field(queue, joining.mode, joining.peer),
        joining.vt,
        joining.delay,
        joining.maxsize,
        int(not any(m.on for m in state.members)),
        PAGE,
        topic.channel(queue),
        keeper.queue if keeper and not alone else "",
        joining.kept_ms,
    )


def _adopt_keys(request: AdoptRequest) -> Sequence[str]:
    topic = request.topic
    own, old, new = topic.own, topic.named(request.ended.queue), topic.named(request.keeper.queue)
    first = (own.topic, own.heard, own.gone, own.namespace.index)
    return (*first, *old.with_deliveries, *new.with_deliveries)


def _adopt_args(request: AdoptRequest) -> Sequence[Argument]:
    topic, ended, keeper = request.topic, request.ended, request.keeper
    return (
        *(request.state.version, request.nonce, ended.queue),
        *(ended.heard if ended.on else "", keeper.queue),
        *(PAGE, topic.channel(topic.named(keeper.queue))),
    )


def _leave_keys(request: LeaveRequest) -> Sequence[str]:
    own = request.topic.own
    keys = [own.topic, own.heard, own.gone, own.namespace.index]
    for member in request.ending.members:
        keys += request.topic.named(member.queue).with_deliveries
    return keys


def _leave_args(request: LeaveRequest) -> Sequence[Argument]:
    ending = request.ending
    args: list[Argument] = [request.state.version, request.nonce, int(request.discard)]
    args += (ending.successor, len(ending.members))
    for member in ending.members:
        args += (member.queue, int(member in ending.spare), member.heard if ending.dead else "")
    return (*args, *ending.fields)


def _beat_args(request: BeatRequest) -> Sequence[Argument]:
    joining = request.joining
    queue = joining.queue(request.topic)
    clock = escape(joining.consumer) if joining.mode == BROADCAST else ""
    return (queue.queue, heard_field(queue, joining.mode, joining.peer), clock)


def _limits_keys(request: SetLimitsRequest) -> Sequence[str]:
    own = request.topic.own
    return (own.topic, own.namespace.topics, own.namespace.index, own.zset, own.hash)


def _limits_args(request: SetLimitsRequest) -> Sequence[Argument]:
    limits = (request.max_length, request.max_age_ms, request.maxsize)
    values = ("" if value is None else value for value in limits)
    return (request.topic.name, request.topic.own.queue, *values)


def _delete_keys(request: DeleteTopicRequest) -> Sequence[str]:
    topic, own = request.topic, request.topic.own
    keys = [own.topic, own.heard, own.gone, own.namespace.topics, own.namespace.index]
    for queue in (own, *(topic.named(m.queue) for m in request.state.members)):
        keys += queue.with_deliveries
    return (*keys, *own.kept)


def _delete_args(request: DeleteTopicRequest) -> Sequence[Argument]:
    state, topic = request.state, request.topic
    return (state.version, topic.name, topic.own.queue, *(m.queue for m in state.members))


def _pairs(flat: list[bytes]) -> dict[str, str]:
    values = iter(text.decode() for text in flat)
    return dict(zip(values, values, strict=True))


PUBLISH: Codec[PublishRequest, list[str]] = Codec(
    kind=topics.PUBLISH,
    script="publish",
    keys=lambda r: _targets(r.plan)[0],
    decode=_decode_published,
    fail=lambda r, code: r.plan.keys.failure(code),
    encode_all=_encode_publish,
)
READ: Codec[ReadRequest, TopicState] = Codec(
    kind=topics.READ,
    script="topic_read",
    keys=lambda r: (r.keys.topic, r.keys.heard, r.keys.zset),
    decode=_decode_state,
    fail=_failure,
)
JOIN: Codec[JoinRequest, int] = Codec(
    kind=topics.JOIN,
    script="topic_join",
    keys=_join_keys,
    args=_join_args,
    decode=lambda _, reply: int(reply),
    fail=_failure,
)
ADOPT: Codec[AdoptRequest, int] = Codec(
    kind=topics.ADOPT,
    script="topic_adopt",
    keys=_adopt_keys,
    args=_adopt_args,
    decode=lambda _, reply: int(reply),
    fail=_failure,
)
LEAVE: Codec[LeaveRequest, int] = Codec(
    kind=topics.LEAVE,
    script="topic_leave",
    keys=_leave_keys,
    args=_leave_args,
    decode=lambda _, reply: int(reply),
    fail=_failure,
)
BEAT: Codec[BeatRequest, tuple[int, bool]] = Codec(
    kind=topics.BEAT,
    script="topic_beat",
    keys=lambda r: (r.keys.topic, r.keys.heard, r.keys.gone),
    args=_beat_args,
    decode=lambda _, reply: (int(reply[0]), bool(reply[1])),
    fail=_failure,
)
SET_LIMITS: Codec[SetLimitsRequest, int] = Codec(
    kind=topics.SET_LIMITS,
    script="topic_limits",
    keys=_limits_keys,
    args=_limits_args,
    decode=lambda _, reply: int(reply),
    fail=_failure,
)
DELETE: Codec[DeleteTopicRequest, bool] = Codec(
    kind=topics.DELETE,
    script="topic_delete",
    keys=_delete_keys,
    args=_delete_args,
    decode=lambda _, reply: bool(reply),
    fail=_failure,
)
LIST_TOPICS: Codec[ListRequest, NamesPage] = Codec(
    kind=topics.LIST_TOPICS,
    script="list_queues",
    keys=lambda r: (r.namespace.topics,),
    args=lambda r: (r.cursor, NAMES_PAGE),
    decode=decode_names,
)

CODECS: tuple[Codec[Any, Any], ...] = (
    PUBLISH, READ, JOIN, ADOPT, LEAVE, BEAT, SET_LIMITS, DELETE, LIST_TOPICS
)  # fmt: skip
