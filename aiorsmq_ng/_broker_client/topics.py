"""Topics: the broker knows their state, and looks after the peers of consumers by itself."""

from __future__ import annotations

from typing import Any

from .._protocol import topics
from .._protocol.queues import FIRST_PAGE, NamesPage
from .._protocol.topic_state import BROADCAST, SHARED, Member, TopicState
from ..errors import NotSupported
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler, unary
from .conversions import optional, stored_as


def _state(found: Any) -> TopicState:
    # Times are relative to now: the broker tells for how long a peer has been silent.
    return TopicState(
        now_ms=0,
        waiting=found.waiting,
        members=tuple(sorted(_member(one) for one in found.subscriptions)),
        peers=tuple(
            (one.queue, peer.name, -peer.idle_ms)
            for one in found.subscriptions
            if one.subscriber.mode != pb.MODE_BROADCAST
            for peer in one.peers
        ),
        max_length=optional(found, "max_length"),
        max_age_ms=optional(found, "max_age_ms"),
        lost=found.lost,
        trimmed=found.trimmed,
    )


def _member(one: Any) -> Member:
    who, broadcast = one.subscriber, one.subscriber.mode == pb.MODE_BROADCAST
    return Member(
        queue=one.queue,
        consumer=who.consumer,
        mode=BROADCAST if broadcast else SHARED,
        peer=who.peer if broadcast else None,
        peer_timeout_ms=who.peer_timeout_ms,
        since_us=0,
        state=one.state,
        keeper=False,
        # By the consumer's clock no peer is silent: that is for the broker to judge.
        heard=f"0 {-one.peers[0].idle_ms}" if broadcast and one.peers else "",
    )


def _of_topic(request: Any, **fields: Any) -> dict[str, Any]:
    return {"topic": request.topic.name, **fields}


def _subscriber(request: topics.JoinRequest | topics.BeatRequest) -> dict[str, Any]:
    joining = request.joining
    who = _of_topic(
        request,
        consumer=joining.consumer,
        mode=pb.MODE_BROADCAST if joining.mode == BROADCAST else pb.MODE_SHARED,
        peer=joining.peer,
        peer_timeout_ms=joining.peer_timeout_ms,
    )
    return {"subscriber": who}


def _joining(request: topics.JoinRequest) -> dict[str, Any]:
    if request.joining.kept_ms:
        raise NotSupported("keep_backlog is not for clients of a broker; leave it out")
    return {**_subscriber(request), **stored_as(request.joining)}


async def _left_to_the_broker(_: Attempt, _request: Any) -> int:
    return -1


HANDLERS: dict[Any, Handler] = {
    topics.LIST_TOPICS: unary(
        "ListTopics", lambda _: {}, lambda found: NamesPage(FIRST_PAGE, list(found.topics))
    ),
    topics.READ: unary("DescribeTopic", lambda r: _of_topic(r, without_attributes=True), _state),
    topics.JOIN: unary("Subscribe", _joining, lambda _: 1),
    topics.ADOPT: _left_to_the_broker,
    topics.LEAVE: unary(
        "Unsubscribe",
        lambda r: _of_topic(r, consumer=r.ending.consumer, peer=r.ending.peer, discard=r.discard),
        lambda found: found.left,
    ),
    topics.BEAT: unary("KeepAlive", _subscriber, lambda found: (int(found.subscribed), False)),
    topics.SET_LIMITS: unary(
        "SetBacklog",
        lambda r: _of_topic(r, max_length=r.max_length, max_age_ms=r.max_age_ms, maxsize=r.maxsize),
        lambda _: 1,
    ),
    topics.DELETE: unary("DeleteTopic", _of_topic, lambda found: found.deleted),
}
