"""Calls on queues as such, and those that only look."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from .._protocol.operation import Reply
from ..errors import QueueNotFound, RSMQError
from ..rpc import v1_pb2 as pb
from .errors import Answered
from .script_call import ScriptCall

#: Bytes of bodies in a reply from which on it may have been cut short.
_LARGE = 1_000_000


async def create_queue(call: ScriptCall) -> Reply:
    """Create a queue, or find that it is there."""
    call.numbered()
    name, vt, delay, maxsize = call.args
    request = pb.CreateQueueRequest(
        queue=str(name),
        vt_ms=int(vt) * 1000,
        delay_ms=int(delay) * 1000,
        maxsize=int(maxsize),
        exist_ok=True,
        request=call.request_id(),
    )
    return await call.answer("CreateQueue", request, lambda response: int(response.created))


async def delete_queue(call: ScriptCall) -> Reply:
    """Delete a queue."""
    call.numbered()
    request = pb.DeleteQueueRequest(queue=str(call.args[0]), request=call.request_id())
    reply = await call.answer("DeleteQueue", request, lambda _: 1)
    return 0 if isinstance(reply, QueueNotFound) else reply


async def list_queues(call: ScriptCall) -> Reply:
    """List queues, or topics: the key tells which."""

    def one_page(names: Sequence[str]) -> list[bytes]:
        return [b"0", *(name.encode() for name in names)]

    if call.keys[0].endswith(":ng:topics"):
        return await call.answer(
            "ListTopics", pb.ListTopicsRequest(), lambda found: one_page(found.topics)
        )
    return await call.answer(
        "ListQueues", pb.ListQueuesRequest(), lambda found: one_page(found.queues)
    )


async def attributes(call: ScriptCall) -> Reply:
    """Describe a queue."""
    return await call.answer(
        "GetAttributes", pb.GetAttributesRequest(queue=call.queue()), _snapshot
    )


async def exists(call: ScriptCall) -> Reply:
    """Find out whether a queue is there."""
    name = call.queue().removesuffix(":Q")
    reply = await call.answer("GetAttributes", pb.GetAttributesRequest(queue=name), lambda _: 1)
    return 0 if isinstance(reply, QueueNotFound) else reply


async def set_attributes(call: ScriptCall) -> Reply:
    """Change what is stored on a queue, and describe it."""
    call.numbered()
    vt, delay, maxsize = (None if x == "" else int(x) for x in call.args)
    request = pb.SetAttributesRequest(
        queue=call.queue(),
        vt_ms=None if vt is None else vt * 1000,
        delay_ms=None if delay is None else delay * 1000,
        maxsize=maxsize,
        request=call.request_id(),
    )
    return await call.answer("SetAttributes", request, _snapshot)


async def stats(call: ScriptCall) -> Reply:
    """Describe a queue with its dead letters and consumers."""
    queue, dead = call.queue(), call.queue(2)
    request = pb.GetStatsRequest(queue=queue, dead_letter="" if dead == f"{queue}-dead" else dead)

    def read(found: Any) -> Reply:
        reply = [_snapshot(found.attributes), found.dead]
        for one in found.consumers:
            told = {"consumers": one.consumers, "holding": list(one.holding)}
            reply += (one.name.encode(), one.silent_ms, json.dumps(told).encode())
        return reply

    return await call.answer("GetStats", request, read)


async def announce(call: ScriptCall) -> Reply:
    """Say that this client consumes from a queue."""
    name, told, _ = call.args
    said = json.loads(told) if told and not isinstance(told, int) else {}
    request = pb.AnnounceRequest(
        queue=call.keys[1].removeprefix(f"{call.link.namespace}:").removesuffix(":Q"),
        name=str(name),
        consumers=said.get("consumers", 0),
        holding=said.get("holding", ()),
    )
    return await call.answer("Announce", request, lambda _: 1)


async def purge(call: ScriptCall) -> Reply:
    """Remove the messages that nobody holds; the broker walks over the whole queue."""
    call.numbered()
    request = pb.PurgeRequest(queue=call.queue(), request=call.request_id())
    return await call.answer("Purge", request, lambda found: [found.removed, -1, found.removed])


async def purge_all(call: ScriptCall) -> Reply:
    """Remove all messages."""
    call.numbered()
    request = pb.PurgeRequest(queue=call.queue(), leased=True, request=call.request_id())
    return await call.answer("Purge", request, lambda found: found.removed)


async def redrive(call: ScriptCall) -> Reply:
    """Move messages to another queue; which ones is not told, only how many."""
    call.numbered()
    _, count, *ids = call.args
    request = pb.RedriveRequest(
        source=call.queue(),
        target=call.queue(3),
        count=int(count),
        ids=[str(id) for id in ids],
        request=call.request_id(),
    )
    return await call.answer("Redrive", request, lambda found: [b""] * found.moved)


async def peek(call: ScriptCall) -> Reply:
    """Read ready messages, in as many replies as it takes."""
    start, count = (int(arg) for arg in call.args)
    found = await _pages(call, "Peek", pb.PeekRequest, start, count)
    if isinstance(found, RSMQError):
        return found
    return [value for m in found for value in (m.id.encode(), m.body, m.rc, m.fr)]


async def pending(call: ScriptCall) -> Reply:
    """Read leased messages; the broker walks over the whole queue."""
    skip, count, _ = (int(arg) for arg in call.args)
    start, most = (skip, count) if count >= 0 else (count, -count)
    found = await _pages(call, "ListPending", pb.ListPendingRequest, start, most)
    if isinstance(found, RSMQError):
        return found
    if count < 0:
        found.reverse()
    reply: list[Reply] = [-1, 0]
    for row in found:
        m = row.message
        reply += (m.id.encode(), m.body, m.rc, m.fr, row.delivered, row.idle_ms)
    return reply


async def _pages(
    call: ScriptCall, method: str, kind: Any, start: int, count: int
) -> list[Any] | RSMQError:
    """Read *count* messages from *start* on, by several calls if they are large."""
    found: list[Any] = []
    size = _LARGE
    try:
        # A short page of small messages is the last one.
        while len(found) < count and size >= _LARGE and (start >= 0 or start + len(found) < 0):
            most = min(count - len(found), call.link.most)
            request = kind(queue=call.queue(), start=start + len(found), count=most)
            page = (await call.ask(method, request)).messages
            size = sum(len(_body(row)) for row in page) if len(page) < most else _LARGE
            found += page
    except Answered as answered:
        return answered.error
    return found


def _body(row: Any) -> bytes:
    body: bytes = row.message.body if isinstance(row, pb.PendingMessage) else row.body
    return body


async def scan(call: ScriptCall) -> Reply:
    """Read a page of the messages of every state."""
    count, *place = call.args
    request = pb.ScanRequest(queue=call.queue(), count=min(int(count), call.link.most))
    if len(place) == 2:
        score, id = (x.decode() if isinstance(x, bytes) else str(x) for x in place)
        request.after.visible_at, request.after.id = float(score), id
    else:
        request.start = int(place[0])

    def read(found: Any) -> Reply:
        more = found.HasField("next")
        score = repr(found.next.visible_at).encode() if more else b""
        reply: list[Reply] = [_now(found.messages), score, found.next.id.encode() if more else b""]
        for row in found.messages:
            m = row.message
            reply += (m.id.encode(), m.body, m.rc, m.fr, repr(row.visible_at).encode())
        return reply

    return await call.answer("Scan", request, read)


async def reason(call: ScriptCall) -> Reply:
    """Tell why a message was rejected."""
    hash = call.keys[1].removeprefix(f"{call.link.namespace}:")
    request = pb.GetReasonRequest(queue=hash.removesuffix(":Q"), id=str(call.args[0]))
    return await call.answer(
        "GetReason",
        request,
        lambda found: [found.reason.encode()] if found.HasField("reason") else [],
    )


def _now(rows: Any) -> float:
    """Return a moment at which the messages had the states that the broker tells."""
    now = time.time() * 1000
    if hidden := [row.visible_at for row in rows if row.state != "ready"]:
        now = min(now, min(hidden) - 1)
    ready: list[float] = [row.visible_at for row in rows if row.state == "ready"]
    return max([now, *ready])


def _snapshot(found: Any) -> list[Reply]:
    """Return attributes as the scripts tell them."""
    stored = (found.vt, found.delay, found.maxsize, found.totalrecv, found.totalsent)
    age_ms = found.oldest_age_ms if found.HasField("oldest_age_ms") else -1
    return [
        *(repr(value).encode() for value in (*stored, found.created, found.modified)),
        *(found.msgs, found.hiddenmsgs, found.leased, int(found.exact), age_ms),
    ]
