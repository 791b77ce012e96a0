"""Kinds that are one call, as a table; and reads of messages, page by page."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from .._protocol.operations import inspection, messages, presence, queues, topics
from .._protocol.topic_state import BROADCAST, SHARED, Member, TopicState
from ..errors import NotSupported, QueueNotFound
from ..models import ConsumerInfo, PendingMessage, QueueStats, ScannedMessage
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import dead_letter_field, optional, read_attributes, read_message
from .attempt import Attempt, Handler
from .status_to_error import Answered


def _unary(
    method: str,
    result: Callable[[Any], Any] = lambda _: None,
    fields: Callable[[Any], dict[str, Any]] = lambda _: {},
    absent: Any = ...,
) -> Handler:
    """Return the handler of a kind that is one call; *result* reads the response.

    What *fields* does not return is taken from the request's attributes of the same names. A call
    with a number gets a request id. *absent*, if given, is the result if there is no such queue.
    """
    names = set(getattr(pb, f"{method}Request").DESCRIPTOR.fields_by_name)

    async def run(attempt: Attempt, requests: list[Any]) -> list[Any]:
        (request,) = requests
        values = {name: getattr(request, name, None) for name in names}
        if "queue" in names:
            values["queue"] = request.keys.queue
        if "topic" in names:
            values["topic"] = request.topic.name
        if "count" in names:
            values["count"] = min(request.count, attempt.max_batch)
        if attempt.call.number:
            values["request"] = attempt.request_id()
        try:
            return [result(await attempt.ask(method, **values | fields(request)))]
        except Answered as answered:
            if absent is ... or not isinstance(answered.error, QueueNotFound):
                raise
            return [absent]

    return run


async def _read(attempt: Attempt, requests: list[Any]) -> list[Any]:
    queue, count = requests[0].keys.queue, requests[0].count
    if attempt.call.kind is inspection.PEEK:
        found = attempt.read("Peek", queue, count, requests[0].start)
        return [[read_message(message) async for message in found]]
    start = count if count < 0 else requests[0].skip
    rows = [
        read_message(m.message, PendingMessage, delivered_ms=m.delivered, idle_ms=m.idle_ms)
        async for m in attempt.read("ListPending", queue, abs(count), start)
    ]
    return [inspection.PendingPage(rows[::-1] if count < 0 else rows, None, 0)]


async def _left_to_the_broker(_: Attempt, requests: list[Any]) -> list[int]:
    return [-1]


def _stored(request: Any) -> dict[str, Any]:
    """Return the fields for what is stored on a queue; ``None`` is not given."""
    vt, delay = (None if s is None else s * 1000 for s in (request.vt, request.delay))
    return {"vt_ms": vt, "delay_ms": delay, "maxsize": request.maxsize}


def _scan_place(request: inspection.ScanRequest) -> dict[str, Any]:
    if len(request.at) == 1:
        return {"start": request.at[0]}
    score, id = (x.decode() if isinstance(x, bytes) else x for x in request.at)
    return {"after": {"visible_at": float(score), "id": id}}


def _scanned(found: Any) -> inspection.ScanPage:
    rows = [
        read_message(one.message, ScannedMessage, visible_at=one.visible_at, state=one.state)
        for one in found.messages
    ]
    after = optional(found, "next")
    return inspection.ScanPage(rows, (repr(after.visible_at), after.id) if after else None)


def _stats(found: Any) -> QueueStats:
    consumers = tuple(
        ConsumerInfo(one.name, one.consumers, tuple(one.holding), one.idle_ms / 1000)
        for one in found.consumers
    )
    return QueueStats(read_attributes(found.attributes), found.dead, consumers)


def _state(found: Any) -> TopicState:
    # Times are relative to now: the broker tells for how long a peer has been silent. By the
    # consumer's clock no peer is silent: that is for the broker to judge.
    members, peers = [], []
    for one in found.subscriptions:
        mode, peer, heard, who = SHARED, None, "", one.subscriber
        if who.mode == pb.MODE_BROADCAST:
            mode, peer = BROADCAST, who.peer
            heard = f"0 {-one.peers[0].idle_ms}" if one.peers else ""
        else:
            peers += [(one.queue, peer.name, -peer.idle_ms) for peer in one.peers]
        began = (mode, peer, who.peer_timeout_ms, 0)
        members.append(Member(one.queue, who.consumer, *began, one.state, False, heard))
    return TopicState(
        waiting=found.waiting,
        members=tuple(sorted(members)),
        peers=tuple(peers),
        max_length=optional(found, "max_length"),
        max_age_ms=optional(found, "max_age_ms"),
        lost=found.lost,
        trimmed=found.trimmed,
    )


def _subscriber(request: topics.JoinRequest | topics.BeatRequest) -> dict[str, Any]:
    mode = pb.MODE_BROADCAST if request.joining.mode == BROADCAST else pb.MODE_SHARED
    who = {n: getattr(request.joining, n) for n in ("consumer", "peer", "peer_timeout_ms")}
    return {"subscriber": {"topic": request.topic.name, "mode": mode, **who}}


def _joining(request: topics.JoinRequest) -> dict[str, Any]:
    if request.joining.kept_ms:
        raise NotSupported("keep_backlog is not for clients of a broker; leave it out")
    return _subscriber(request) | _stored(request.joining)


def _names(field: str) -> Callable[[Any], queues.NamesPage]:
    return lambda found: queues.NamesPage(queues.FIRST_PAGE, list(getattr(found, field)))


HANDLERS: dict[Any, Handler] = {
    queues.CREATE: _unary(
        "CreateQueue", attrgetter("created"), lambda r: {**_stored(r), "exist_ok": True}
    ),
    queues.DELETE: _unary("DeleteQueue"),
    queues.EXISTS: _unary("GetAttributes", lambda _: True, absent=False),
    queues.LIST_QUEUES: _unary("ListQueues", _names("queues")),
    queues.ATTRIBUTES: _unary("GetAttributes", read_attributes),
    queues.SET_ATTRIBUTES: _unary("SetAttributes", read_attributes, _stored),
    queues.STATS: _unary(
        "GetStats", _stats, lambda r: {"dead_letter": dead_letter_field(r.keys.queue, r.dead.queue)}
    ),
    presence.ANNOUNCE: _unary("Announce"),
    queues.PURGE: _unary("Purge", lambda f: (f.removed, optional(f, "next", -1), f.before)),
    queues.PURGE_ALL: _unary("Purge", attrgetter("removed"), lambda _: {"leased": True}),
    messages.REDRIVE: _unary(
        "Redrive",
        attrgetter("moved"),
        lambda r: {"source": r.keys.queue, "target": r.target.queue},
    ),
    # The broker's clients do not wait on the server one by one, so none is named there.
    messages.UNWAIT: _left_to_the_broker,
    inspection.PEEK: _read,
    inspection.PENDING: _read,
    inspection.SCAN: _unary("Scan", _scanned, _scan_place),
    inspection.REASON: _unary("GetReason", lambda found: optional(found, "reason")),
    topics.LIST_TOPICS: _unary("ListTopics", _names("topics")),
    topics.READ: _unary("DescribeTopic", _state, lambda _: {"without_attributes": True}),
    topics.JOIN: _unary("Subscribe", lambda _: 1, _joining),
    topics.ADOPT: _left_to_the_broker,
    topics.LEAVE: _unary(
        "Unsubscribe",
        attrgetter("left"),
        lambda r: {"consumer": r.ending.consumer, "peer": r.ending.peer},
    ),
    topics.BEAT: _unary("KeepAlive", lambda found: (int(found.subscribed), False), _subscriber),
    topics.SET_LIMITS: _unary("SetBacklog", lambda _: 1),
    topics.DELETE: _unary("DeleteTopic", attrgetter("deleted")),
}
