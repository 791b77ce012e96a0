"""Topics: the broker knows their state, and looks after the peers of consumers by itself."""

from __future__ import annotations

from typing import Any

from .._protocol import topics
from .._protocol.queues import FIRST_PAGE, ListRequest, NamesPage
from .._protocol.topic_state import EACH, SHARED, Member, TopicState
from ..errors import NotSupported
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler, gather_answers

_MODES = {SHARED: pb.MODE_SHARED, EACH: pb.MODE_EACH}


async def _list(attempt: Attempt, _: ListRequest) -> NamesPage:
    found = await attempt.ask("ListTopics", pb.ListTopicsRequest())
    return NamesPage(FIRST_PAGE, list(found.topics))


async def _read(attempt: Attempt, request: topics.ReadRequest) -> TopicState:
    message = pb.DescribeTopicRequest(topic=request.topic.name, without_attributes=True)
    found = await attempt.ask("DescribeTopic", message)
    # Times are relative to now: the broker tells for how long a peer has been silent.
    return TopicState(
        now_ms=0,
        waiting=found.waiting,
        members=tuple(sorted(_member(one) for one in found.subscriptions)),
        peers=tuple(
            (one.queue, peer.name, -peer.silent_ms)
            for one in found.subscriptions
            if one.subscriber.mode != pb.MODE_EACH
            for peer in one.peers
        ),
        max_length=found.max_length if found.HasField("max_length") else None,
        max_age_ms=found.max_age_ms if found.HasField("max_age_ms") else None,
        lost=found.lost,
        trimmed=found.trimmed,
    )


def _member(one: Any) -> Member:
    who, each = one.subscriber, one.subscriber.mode == pb.MODE_EACH
    return Member(
        queue=one.queue,
        consumer=who.consumer,
        mode=EACH if each else SHARED,
        peer=who.peer if each else None,
        silence_ms=who.silence_ms,
        since_us=0,
        state=one.state,
        keeper=False,
        # By the consumer's clock no peer is silent: that is for the broker to judge.
        heard=f"0 {-one.peers[0].silent_ms}" if each and one.peers else "",
    )


def _subscriber(topic: topics.TopicKeys, joining: topics.Joining) -> pb.Subscriber:
    return pb.Subscriber(
        topic=topic.name,
        consumer=joining.consumer,
        mode=_MODES[joining.mode],
        peer=joining.peer or "",
        silence_ms=joining.silence_ms,
    )


async def _join(attempt: Attempt, request: topics.JoinRequest) -> int:
    joining = request.joining
    if joining.kept_ms:
        raise NotSupported("keep_backlog is not for clients of a broker; leave it out")
    message = pb.SubscribeRequest(
        subscriber=_subscriber(request.topic, joining),
        vt_ms=joining.vt * 1000,
        delay_ms=joining.delay * 1000,
        maxsize=joining.maxsize,
    )
    await attempt.ask("Subscribe", message)
    return 1


async def _adopt(_: Attempt, _request: topics.AdoptRequest) -> int:
    return -1  # the broker does that by itself


async def _leave(attempt: Attempt, request: topics.LeaveRequest) -> int:
    ending, state = request.ending, request.state
    leaving: list[tuple[str, str]] = []
    if ending.members:
        first = ending.members[0]
        # Several are all of a consumer's.
        leaving.append((first.consumer, first.peer or "" if len(ending.members) == 1 else ""))
    queues = {member.queue: member.consumer for member in state.members}
    ended = {member.queue for member in ending.members}
    for queue, peer, _ in state.peers:
        # The peers of a subscription that ends are forgotten with it.
        if queue not in ended and topics.shared_field(queue, peer) in ending.fields:
            leaving.append((queues[queue], peer))
    found = await gather_answers(
        *(
            attempt.ask(
                "Unsubscribe",
                pb.UnsubscribeRequest(
                    topic=request.topic.name, consumer=consumer, peer=peer, discard=request.discard
                ),
            )
            for consumer, peer in leaving
        )
    )
    left = 0
    for one in found:
        if isinstance(one, Exception):
            raise one
        left += one.left
    return left


async def _beat(attempt: Attempt, request: topics.BeatRequest) -> tuple[int, bool]:
    who = _subscriber(request.topic, request.joining)
    found = await attempt.ask("KeepAlive", pb.KeepAliveRequest(subscriber=who))
    return int(found.subscribed), False


async def _set_limits(attempt: Attempt, request: topics.SetLimitsRequest) -> int:
    message = pb.SetBacklogRequest(
        topic=request.topic.name,
        max_length=request.max_length,
        max_age_ms=request.max_age_ms,
        maxsize=request.maxsize,
    )
    await attempt.ask("SetBacklog", message)
    return 1


async def _delete(attempt: Attempt, request: topics.DeleteTopicRequest) -> bool:
    found = await attempt.ask("DeleteTopic", pb.DeleteTopicRequest(topic=request.topic.name))
    return bool(found.deleted)


HANDLERS: dict[Any, Handler] = {
    topics.LIST_TOPICS: _list,
    topics.READ: _read,
    topics.JOIN: _join,
    topics.ADOPT: _adopt,
    topics.LEAVE: _leave,
    topics.BEAT: _beat,
    topics.SET_LIMITS: _set_limits,
    topics.DELETE: _delete,
}
