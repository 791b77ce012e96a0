"""Topics: their state is the broker's; what the scripts change becomes calls of ``Topics``."""

from __future__ import annotations

import time
from typing import Any

from .._protocol.operation import Reply
from .._protocol.shards import TOPIC_MARK
from .._protocol.topic_names import escape, queue_name, unescape
from .._protocol.topic_state import EACH, NOBODY, SHARED
from ..errors import InvalidValue, RSMQError
from ..rpc import v1_pb2 as pb
from .errors import Answered
from .script_call import ScriptCall, together
from .subscribers import is_cut

#: Stands for the version of every topic: the broker notices changes by itself.
_VERSION = b"broker"
#: Peers that the broker tells of are alive; how long each may be silent it does not tell.
_ANY_SILENCE_MS = 10**12
_MODES = {SHARED: pb.MODE_SHARED, EACH: pb.MODE_EACH}


async def read(call: ScriptCall) -> Reply:
    """Tell what is known about a topic."""
    try:
        found = await _describe(call, call.queue(2))
    except Answered as answered:
        return answered.error
    now_ms = int(time.time() * 1000)
    if found is None:
        return [now_ms, 0, [b"version", _VERSION], []]
    stored: list[str] = ["version", _VERSION.decode(), "lost", str(found.lost)]
    stored += ("trimmed", str(found.trimmed))
    for limit in ("max_length", "max_age_ms"):
        if found.HasField(limit):
            stored += (limit, str(getattr(found, limit)))
    heard: list[str] = []
    for one in found.subscriptions:
        each = one.subscriber.mode == pb.MODE_EACH
        peer = escape(one.subscriber.peer) if each else NOBODY
        mode, consumer = EACH if each else SHARED, escape(one.subscriber.consumer)
        stored += (f"q:{one.queue}", f"{one.state} {mode} {_ANY_SILENCE_MS} 1 {consumer} {peer} 0")
        for living in one.peers:
            field = one.queue if each else f"{one.queue} {escape(living.name)}"
            heard += (field, str(now_ms - living.silent_ms))
    return [now_ms, found.waiting, [x.encode() for x in stored], [x.encode() for x in heard]]


async def join(call: ScriptCall) -> Reply:
    """Subscribe."""
    _, _, topic, queue, record, field, vt, delay, maxsize, *_, kept_ms = call.args
    if kept_ms:
        raise InvalidValue("keep_backlog is not for clients of a broker; leave it out")
    mode, silence_ms, _, consumer, peer = str(record).split(" ")
    name = peer if mode == EACH else str(field).partition(" ")[2]
    who = pb.Subscriber(
        topic=str(topic),
        consumer=unescape(consumer),
        mode=_MODES[mode],
        peer=unescape(name),
        silence_ms=int(silence_ms),
    )
    request = pb.SubscribeRequest(
        subscriber=who, vt_ms=int(vt) * 1000, delay_ms=int(delay) * 1000, maxsize=int(maxsize)
    )

    def subscribed(found: Any) -> Reply:
        if found.queue != queue:
            raise Answered(
                RSMQError(
                    f"the broker calls the subscription's queue {found.queue!r}, not {queue!r}"
                )
            )
        call.session.subscribers.learn(found.queue, who)
        return 1

    return await call.answer("Subscribe", request, subscribed)


async def leave(call: ScriptCall) -> Reply:
    """End subscriptions, and forget peers of shared ones."""
    _, _, discard, _, count, *rest = (str(arg) for arg in call.args)
    ending = rest[: 3 * int(count) : 3]
    fields = [field.partition(" ") for field in rest[3 * int(count) :] if " " in field]
    requests = []
    for queue in ending[:1]:
        who = await _owner(call, queue)
        # Several are all of a consumer's.
        peer = who.peer if who.mode == pb.MODE_EACH and len(ending) == 1 else ""
        requests.append(pb.UnsubscribeRequest(topic=who.topic, consumer=who.consumer, peer=peer))
    for queue, _, peer in fields:
        # The peers of a subscription that ends are forgotten with it.
        if queue not in ending:
            who = await _owner(call, queue)
            requests.append(
                pb.UnsubscribeRequest(topic=who.topic, consumer=who.consumer, peer=unescape(peer))
            )
    for request in requests:
        request.discard = discard == "1"
    found = await together(*(call.ask("Unsubscribe", request) for request in requests))
    errors = [one for one in found if isinstance(one, RSMQError)]
    return errors[0] if errors else sum(one.left for one in found if not isinstance(one, RSMQError))


async def beat(call: ScriptCall) -> Reply:
    """Say that a peer is alive; the broker does the rest."""
    queue, field, _ = (str(arg) for arg in call.args)
    try:
        who = pb.Subscriber()
        who.CopyFrom(await _owner(call, queue))
        if who.mode != pb.MODE_EACH:
            who.peer = unescape(field.partition(" ")[2])
        found = await call.ask("KeepAlive", pb.KeepAliveRequest(subscriber=who))
    except Answered as answered:
        return answered.error
    return [int(found.subscribed), 0]


async def adopt(_: ScriptCall) -> Reply:
    """Let the keeper have what others left: the broker does that by itself."""
    return -1


async def set_limits(call: ScriptCall) -> Reply:
    """Limit what waits for a first subscription."""
    topic, _, *limits = call.args
    length, age_ms, maxsize = (None if x == "" else int(x) for x in limits)
    request = pb.SetBacklogRequest(
        topic=str(topic), max_length=length, max_age_ms=age_ms, maxsize=maxsize
    )
    return await call.answer("SetBacklog", request, lambda _: 1)


async def delete(call: ScriptCall) -> Reply:
    """Delete a topic with all its queues."""
    request = pb.DeleteTopicRequest(topic=str(call.args[1]))
    return await call.answer("DeleteTopic", request, lambda found: int(found.deleted))


async def _describe(call: ScriptCall, own: str) -> Any | None:
    """Describe the topic whose own queue is *own*; nothing if there is none."""
    topic = unescape(own.removesuffix(TOPIC_MARK))
    if is_cut(own):
        topics = (await call.ask("ListTopics", pb.ListTopicsRequest())).topics
        topic = next((name for name in topics if queue_name(name) == own), "")
        if not topic:
            return None
    found = await call.ask("DescribeTopic", pb.DescribeTopicRequest(topic=topic))
    for one in found.subscriptions:
        call.session.subscribers.learn(one.queue, one.subscriber)
    return found


async def _owner(call: ScriptCall, queue: str) -> Any:
    """Return whose queue it is; a name that was cut is looked up."""
    found = call.session.subscribers.find(queue)
    if found is None:
        await _describe(call, queue.partition(TOPIC_MARK)[0] + TOPIC_MARK)
        found = call.session.subscribers.find(queue)
    if found is None:
        raise Answered(RSMQError(f"the broker knows no subscription with the queue {queue!r}"))
    return found
