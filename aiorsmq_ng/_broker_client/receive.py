"""``Receive``, ``Pop`` and ``Recover``: messages that this client takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from .._common.queue_defaults import dead_letter_queue
from .._protocol import messages
from .._protocol.keys import QueueKeys
from .._protocol.recovery import RECOVER, Recovered, RecoverRequest
from .._protocol.values import DeadLettered, Leased, Received
from .._transport.driver import NotExecuted, ReplyLost
from ..errors import InvalidValue, RSMQError
from ..models import Message
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler
from .conversions import dead_letter_field, given, optional, to_message
from .errors import Answered

#: Bytes of bodies in one reply; a message that is larger alone comes without its body.
MAX_BYTES = 64 * 1024 * 1024


async def _receive(attempt: Attempt, requests: list[messages.ReceiveRequest]) -> list[Received]:
    # The leases are in the requests.
    source = _source(requests[0].spec, vt_ms=-1)
    message = pb.ReceiveRequest(sources=[source], max_bytes=MAX_BYTES)
    message.request.CopyFrom(attempt.request_id())
    for place, request in enumerate(requests):
        share = message.more.add() if place else message
        share.count = min(request.count, attempt.max_batch)
        if request.vt_ms >= 0:
            share.vt_ms = request.vt_ms
    response = await attempt.ask("Receive", message)
    return await _received(attempt, [requests[0].keys], response, response.more)


async def _receive_first(attempt: Attempt, request: messages.ReceiveFirstRequest) -> Received:
    vt_ms = request.vt_ms
    sources = [_source(s, vt_ms=s.vt_ms if vt_ms < 0 else vt_ms) for s in request.specs]
    count = min(request.count, attempt.max_batch)
    name = attempt.request_id()
    response = await attempt.ask(
        "Receive", sources=sources, count=count, max_bytes=MAX_BYTES, request=name
    )
    return (await _received(attempt, [spec.keys for spec in request.specs], response))[0]


async def _recover(attempt: Attempt, request: RecoverRequest) -> Recovered:
    after = request.after
    response = await attempt.ask(
        "Recover",
        source=_source(request.spec, vt_ms=request.spec.vt_ms),
        count=min(request.count, attempt.max_batch),
        idle_ms=request.idle_ms,
        vt_ms=given(request.vt_ms),
        after=after and {"at": after.next_at or 0, "started_ms": after.started_ms},
        request=attempt.request_id(),
    )
    page = await _received(attempt, [request.keys], response)
    more = optional(response, "next")
    return Recovered(page[0], more and more.at, response.next.started_ms)


async def _pop(attempt: Attempt, requests: list[messages.PopRequest]) -> list[messages.Popped]:
    queue, wanted = requests[0].keys.queue, sum([request.count for request in requests])
    popped: list[Message] = []
    try:
        while len(popped) < wanted:
            count = min(wanted - len(popped), attempt.max_batch)
            response = await attempt.ask("Pop", queue=queue, count=count)
            popped += [to_message(one) for one in response.messages]
            if not response.messages:
                break
    except (Answered, NotExecuted, ReplyLost, RSMQError):
        # What was popped is nowhere else any more.
        if not popped:
            raise
    rows = iter(popped)
    return [messages.Popped(list(islice(rows, r.count)), again=False) for r in requests]


async def _unwait(_: Attempt, _request: messages.UnwaitRequest) -> int:
    # The broker's clients do not wait on the server one by one, so none is named there.
    return 0


async def _received(
    attempt: Attempt, queues: list[QueueKeys], response: Any, more: Sequence[Any] = ()
) -> list[Received]:
    """Return what each share of a reply brought; what an earlier attempt took is leased again.

    Leases count from the first attempt, and the caller counts from this one.
    """
    keys = {key.queue: key for key in queues}
    shares = [response, *more]
    taken = [delivery for share in shares for delivery in share.deliveries]
    kept = {delivery.receipt for delivery in taken}
    if taken and attempt.call.recall:
        kept = set()
        await _release(attempt, taken)
    elif taken and attempt.call.in_doubt:
        kept = await _lease_again(attempt, taken)
    for delivery in taken:
        if delivery.omitted_bytes:
            await _refuse(attempt, taken, delivery)
    found: list[Received] = []
    for share in shares:
        leased = [_leased(keys[d.queue], d) for d in share.deliveries if d.receipt in kept]
        dead = () if found else tuple(_dead_letter(keys[x.queue], x) for x in share.dead_letters)
        found.append(Received(leased, 0 if leased else _next_visible_ms(share), 0.0, dead))
    return found


def _next_visible_ms(share: Any) -> int:
    known = isinstance(share, pb.ReceiveResponse) and share.HasField("next_visible_ms")
    # 0 would mean to come back at once.
    return max(1, share.next_visible_ms) if known else -1


def _leased(keys: QueueKeys, d: Any) -> Leased:
    return Leased(d.id, d.body, d.rc, d.fr, keys, d.vt_ms, d.strikes, d.excused, d.receipt)


def _dead_letter(keys: QueueKeys, letter: Any) -> DeadLettered:
    dead = keys.namespace.queue(letter.dead_letter or dead_letter_queue(keys.queue))
    return DeadLettered(to_message(letter), keys, dead, letter.reason)


async def _lease_again(attempt: Attempt, taken: list[Any]) -> set[str]:
    kept: set[str] = set()
    for vt_ms in {d.vt_ms for d in taken}:
        receipts = [d.receipt for d in taken if d.vt_ms == vt_ms]
        outcomes = (await attempt.ask("Extend", receipts=receipts, vt_ms=vt_ms)).outcomes
        held = zip(receipts, outcomes, strict=True)
        kept.update(receipt for receipt, outcome in held if outcome == pb.OUTCOME_DONE)
    return kept


async def _release(attempt: Attempt, taken: list[Any]) -> None:
    receipts = [delivery.receipt for delivery in taken]
    await attempt.ask("Release", receipts=receipts, unseen=True)


async def _refuse(attempt: Attempt, taken: list[Any], large: Any) -> None:
    """Give everything back: a message without its body is of no use."""
    await _release(attempt, taken)
    raise Answered(
        InvalidValue(
            f"message {large.id} of queue {large.queue!r} has {large.omitted_bytes} bytes, more "
            f"than the {MAX_BYTES} that are taken through a broker"
        )
    )


def _source(spec: messages.ReceiveSpec, *, vt_ms: int) -> pb.Source:
    queue = spec.keys.queue
    max_receives, dead, _ = spec.limit
    return pb.Source(
        queue=queue,
        max_receives=max_receives,
        dead_letter=dead_letter_field(queue, dead),
        vt_ms=given(vt_ms),
    )


HANDLERS: dict[Any, Handler] = {
    messages.RECEIVE: _receive,
    messages.RECEIVE_FIRST: _receive_first,
    RECOVER: _recover,
    messages.POP: _pop,
    messages.UNWAIT: _unwait,
}
