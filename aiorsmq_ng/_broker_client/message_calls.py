"""Operations on messages: send and publish, receive and pop, settle, delete by id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

from .._common.durability import MEMORY
from .._common.pages import pages
from .._common.queue_defaults import dead_letter_queue
from .._protocol.keys import QueueKeys
from .._protocol.operations import messages as kinds
from .._protocol.operations.message_values import DeadLettered, Leased, Receipt, Received
from .._protocol.operations.recovery import DELETE_LEASED, RECOVER, Recovered, RecoverRequest
from .._protocol.operations.topics import PUBLISH
from .._transport.driver import NotExecuted, ReplyLost
from ..errors import InvalidValue, LeaseLost, RSMQError, SendUnknown
from ..models import Message, Sent
from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import dead_letter_field, optional, read_message, write_headers
from .attempt import Attempt, Handler, given
from .status_to_error import Answered, Forgotten, part_error

#: Bytes of bodies in one reply; a message that is larger alone comes without its body.
MAX_BYTES = 64 * 1024 * 1024


async def _store(attempt: Attempt, requests: list[Any]) -> list[Any]:
    """Send or publish; operations that share a call are parts of one request."""
    try:
        return await _store_parts(attempt, requests, attempt.request_id())
    except Forgotten as error:
        # Another broker stores no second copy under a dedup key. Of the rest no more is known.
        if not (keyed := [request for request in requests if request.dedup]):
            raise
        name = attempt.request_id("-keyed", anywhere=True)
        found = zip(await _store_parts(attempt, keyed, name), attempt.call.reached, strict=True)
        rows = [next(found) if r.dedup else (SendUnknown(str(error)), MEMORY) for r in requests]
        attempt.call.reached = [level for _, level in rows]
        return [result for result, _ in rows]


async def _store_parts(attempt: Attempt, requests: list[Any], name: pb.RequestId) -> list[Any]:
    method, target = "Send", {"queue": requests[0].keys.queue}
    if attempt.call.kind is PUBLISH:
        # The broker knows the subscriptions, so the plan is only asked for the topic.
        method, target = "Publish", {"topic": requests[0].plan.keys.name}
    parts: list[dict[str, Any]] = []  # protobuf would copy messages
    for one in requests:
        key = one.dedup and f"digest:{one.dedup.digest}"
        part = {"bodies": one.bodies, "delay_ms": given(one.delay_ms), "dedup_key": key}
        if one.headers:
            part["headers"] = write_headers(one.headers)
        parts.append(part)
    outcomes = (await attempt.ask(method, parts=parts, request=name, **target)).outcomes
    # The call compares what each part reached with what this client wants.
    attempt.call.reached = [outcome.durability or MEMORY for outcome in outcomes]
    return [_outcome(attempt, *row, method) for row in zip(requests, outcomes, strict=True)]


def _outcome(attempt: Attempt, request: Any, outcome: Any, method: str) -> list[str] | RSMQError:
    # With ids it is stored, though perhaps not as safely as the broker wants it.
    ids: list[str] = outcome.ids[:]
    if not ids:
        # What this broker did not store, the one asked first may have.
        return part_error(method, outcome.error, again=attempt.elsewhere)
    if request.dedup is None:
        return ids
    sent = Sent(ids[0])
    # After a repetition at another broker the message that is there may be this request's own.
    sent.duplicate = outcome.duplicate and not attempt.elsewhere
    return [sent]


async def _receive(attempt: Attempt, requests: list[Any]) -> list[Received]:
    """Receive by one call; requests after the first are shares of it.

    If the reply has no room for some of these, they share the next call.
    """
    results: dict[int, Received] = {}
    specs, left = requests[0].specs, list(range(len(requests)))
    # The lease that a request names is that of all its queues.
    sources = [_source(spec, -1 if requests[0].vt_ms >= 0 else spec.vt_ms) for spec in specs]
    while left:
        first, *more = [_share(attempt, requests[place]) for place in left]
        name = attempt.request_id(f"-{left[0]}" if left[0] else "")
        fields = {**first, "max_bytes": MAX_BYTES, "request": name}
        response = await attempt.ask("Receive", sources=sources, more=more, **fields)
        shares = [response, *response.more]
        found = await _received(attempt, [spec.keys for spec in specs], shares)
        results.update(zip(left, found, strict=True))
        rest = zip(left[1:], shares[1:], strict=True)
        left = [place for place, share in rest if optional(share, "next_visible_ms") == 0]
    return [results[place] for place in range(len(requests))]


async def _recover(attempt: Attempt, requests: list[RecoverRequest]) -> list[Recovered]:
    (request,) = requests
    after = request.after
    response = await attempt.ask(
        "Recover",
        source=_source(request.spec, request.spec.vt_ms),
        **_share(attempt, request),
        idle_ms=request.idle_ms,
        after=after and {"at": after.next_at or 0, "started_ms": after.started_ms},
        request=attempt.request_id(),
    )
    (page,) = await _received(attempt, [request.keys], [response])
    more = optional(response, "next")
    return [Recovered(page, more and more.at, response.next.started_ms)]


def _share(attempt: Attempt, request: Any) -> dict[str, Any]:
    return {"count": min(request.count, attempt.max_batch), "vt_ms": given(request.vt_ms)}


def _source(spec: kinds.ReceiveSpec, vt_ms: int) -> pb.Source:
    queue, (max_receives, dead, _) = spec.keys.queue, spec.limit
    dead = dead_letter_field(queue, dead)
    return pb.Source(queue=queue, max_receives=max_receives, dead_letter=dead, vt_ms=given(vt_ms))


async def _received(attempt: Attempt, queues: list[QueueKeys], shares: list[Any]) -> list[Received]:
    """Return what each share of a reply brought; what an earlier attempt took is leased again.

    Leases count from the first attempt, and the caller counts from this one.
    """
    own, call = {key.queue: key for key in queues}, attempt.call
    found: list[Received] = []
    for share in shares:
        leased = [
            Leased(
                *(d.id, d.body, d.rc, d.fr, own[d.queue], d.vt_ms, d.strikes, d.excused, d.receipt),
                dict(d.headers) or b"",
            )
            for d in share.deliveries
        ]
        dead = () if found else tuple(_dead_letter(own[x.queue], x) for x in share.dead_letters)
        next_ms = 0 if leased else getattr(share, "next_visible_ms", 0) or -1
        found.append(Received(leased, next_ms, 0.0, dead))
    taken = [message for one in found for message in one.messages]
    large = next((d for share in shares for d in share.deliveries if d.omitted_bytes), None)
    lost: set[Receipt] = set()
    if taken and (call.recall or large):
        lost = {message.receipt for message in taken}
        await _settle_alike(attempt, list(lost), "Release", unseen=True)
    elif taken and call.in_doubt:
        for vt_ms in {message.vt_ms for message in taken}:
            again = [message.receipt for message in taken if message.vt_ms == vt_ms]
            outcomes = await _settle_alike(attempt, again, "Extend", vt_ms=vt_ms)
            lost.update(receipt for receipt, error in zip(again, outcomes, strict=True) if error)
    if large and not call.recall:
        # A message without its body is of no use.
        text = f"message {large.id} of queue {large.queue!r} has {large.omitted_bytes} bytes, "
        text += f"more than the {MAX_BYTES} that are taken through a broker"
        raise Answered(InvalidValue(text))
    for one in found:
        one.messages[:] = [message for message in one.messages if message.receipt not in lost]
    return found


def _dead_letter(keys: QueueKeys, letter: Any) -> DeadLettered:
    dead = keys.namespace.queue(letter.dead_letter or dead_letter_queue(keys.queue))
    return DeadLettered(read_message(letter), keys, dead, letter.reason)


async def _pop(attempt: Attempt, requests: list[kinds.PopRequest]) -> list[kinds.Popped]:
    wanted = sum([request.count for request in requests])
    popped: list[Message] = []
    try:
        async for found in attempt.read("Pop", requests[0].keys.queue, wanted):
            popped.append(read_message(found))  # noqa: PERF401 - what came before an error counts
    except (Answered, NotExecuted, ReplyLost, RSMQError):
        # What was popped is nowhere else any more.
        if not popped:
            raise
    rows = iter(popped)
    return [kinds.Popped(list(islice(rows, r.count)), again=False) for r in requests]


def _verb(request: Any) -> tuple[Any, ...]:
    """Return the method that does what *request* wants, and its fields, each with its value."""
    match request:
        case kinds.AckRequest():
            return ("Ack",)
        case kinds.RejectRequest():
            dead = dead_letter_field(request.keys.queue, request.target.queue)
            return "Reject", ("reason", request.reason), ("dead_letter", dead)
        case kinds.ForwardRequest():
            return (
                "Forward",
                ("target", request.target.queue),
                ("delay_ms", given(request.delay_ms)),
            )
        case kinds.VisibilityRequest(receipt=None, id=id, vt_ms=ms):
            return "ChangeVisibility", ("queue", request.keys.queue), ("id", id), ("vt_ms", ms)
        case kinds.VisibilityRequest(how=""):
            return "Extend", ("vt_ms", request.vt_ms)
    return "Release", ("delay_ms", request.vt_ms), ("unseen", request.how == "u")


async def _settle(attempt: Attempt, requests: list[Any]) -> list[Any]:
    """Settle receipts, those that are settled alike by one call."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, request in enumerate(requests):
        alike.setdefault(_verb(request), []).append(place)
    results: list[Any] = [None] * len(requests)
    settled = True if attempt.call.kind is kinds.VISIBILITY else None

    async def settle(places: list[int], method: str, *fields: tuple[str, Any]) -> None:
        receipts, how = [requests[place].receipt for place in places], dict(fields)
        try:
            if method == "ChangeVisibility":
                how["request"] = attempt.request_id(f"-{places[0]}")
                found: list[Any] = [(await attempt.ask(method, **how)).changed] * len(places)
            else:
                found = await _settle_alike(attempt, receipts, method, **how)
        except Answered as answered:
            found = [answered.error] * len(places)
        for place, outcome in zip(places, found, strict=True):
            results[place] = settled if outcome is None else outcome

    work = [settle(places, *verb) for verb, places in alike.items()]
    if len(work) == 1:  # a task of its own would cost more than the rest
        await work[0]
    elif faults := [f for f in await asyncio.gather(*work, return_exceptions=True) if f]:
        # The one that leaves the most open.
        raise next((fault for fault in faults if isinstance(fault, ReplyLost)), faults[0])
    return results


async def _ack_many(attempt: Attempt, requests: list[kinds.AckManyRequest]) -> list[Any]:
    receipts = [receipt for request in requests for receipt in request.receipts]
    outcomes = iter(await _settle_alike(attempt, receipts, "Ack"))
    results: list[list[RSMQError | None] | RSMQError] = []
    for request in requests:
        own = [next(outcomes) for _ in request.receipts]
        errors = [error for error in own if error and not isinstance(error, LeaseLost)]
        results.append(errors[0] if errors else own)
    return results


async def _settle_alike(
    attempt: Attempt, receipts: Sequence[Receipt], method: str, **how: Any
) -> list[RSMQError | None]:
    """Return for each receipt its error, or None if it is settled."""
    results: list[RSMQError | None] = []
    for page in pages(receipts, attempt.max_batch):
        try:
            response = await attempt.ask(method, receipts=[r.proof for r in page], **how)
        except Answered as answered:
            # Of this page only: those before it are settled.
            results += [answered.error] * len(page)
            continue
        errors = {error.index: error.error for error in response.errors}
        for place, (receipt, outcome) in enumerate(zip(page, response.outcomes, strict=True)):
            if outcome == pb.OUTCOME_DONE:
                results.append(None)
            elif outcome == pb.OUTCOME_FAILED:
                # It may have run; all of these may be repeated.
                results.append(part_error(method, errors.get(place, pb.Error()), again=True))
            else:
                results.append(_refused(attempt, receipt, outcome))
    return results


def _refused(attempt: Attempt, receipt: Receipt, outcome: Any) -> RSMQError | None:
    call, gone = attempt.call, outcome == pb.OUTCOME_GONE
    queue = call.operations[0].request.keys.queue
    if gone and call.in_doubt and call.kind.repeatable:
        return None
    if outcome != pb.OUTCOME_BAD_RECEIPT:
        return LeaseLost(queue, receipt.id, gone=gone)
    if receipt.proof:
        # A broker that is started without a receipt key knows only receipts of its own life.
        cause = "the broker does not know its receipt; it was restarted without a receipt key, or "
        return LeaseLost(queue, receipt.id, gone=False, cause=cause + "the token is another one")
    return InvalidValue(
        f"the receipt of message {receipt.id} of queue {queue!r} has no proof; through a broker a "
        "message is settled by the whole receipt of its delivery"
    )


async def _delete(attempt: Attempt, requests: list[Any]) -> list[list[str]]:
    """Delete by id; a result is those of the ids that existed."""
    queue, in_doubt = requests[0].keys.queue, attempt.call.in_doubt
    ids = list(dict.fromkeys([id for request in requests for id in request.ids]))
    # What is gone by now was deleted by an earlier attempt, or by another client.
    found = set(ids) if in_doubt else set()
    for page in pages(ids, attempt.max_batch):
        fields = {"queue": queue, "ids": page, "only_leased": attempt.call.kind is DELETE_LEASED}
        found.update((await attempt.ask("DeleteMessages", **fields)).ids)
    results = []
    for request in requests:
        results.append([id for id in request.ids if id in found])
        if not in_doubt:
            # Of several operations that name the same message one has deleted it.
            found -= set(request.ids)
    return results


HANDLERS: dict[Any, Handler] = {
    kinds.SEND: _store,
    PUBLISH: _store,
    kinds.RECEIVE: _receive,
    kinds.RECEIVE_FIRST: _receive,
    kinds.POP: _pop,
    RECOVER: _recover,
    **dict.fromkeys((kinds.ACK, kinds.REJECT, kinds.FORWARD, kinds.VISIBILITY), _settle),
    kinds.ACK_MANY: _ack_many,
    kinds.DELETE: _delete,
    DELETE_LEASED: _delete,
}
