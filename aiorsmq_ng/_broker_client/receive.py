"""``Receive``, ``Pop`` and ``Recover``: messages that this client takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from .._common.queue_defaults import dead_letter_queue
from .._protocol.keys import QueueKeys
from .._protocol.messages import (
    POP,
    RECEIVE,
    RECEIVE_FIRST,
    UNWAIT,
    Popped,
    PopRequest,
    ReceiveFirstRequest,
    ReceiveRequest,
    ReceiveSpec,
    UnwaitRequest,
)
from .._protocol.recovery import RECOVER, Recovered, RecoverRequest
from .._protocol.values import DeadLettered, Leased, Received
from .._transport.driver import NotExecuted, ReplyLost
from ..errors import InvalidValue, RSMQError
from ..models import Message
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler
from .errors import Answered

#: Bytes of bodies in one reply; a message that is larger alone comes without its body.
MAX_BYTES = 64 * 1024 * 1024


async def _receive(attempt: Attempt, requests: list[ReceiveRequest]) -> list[Received]:
    spec = requests[0].spec
    message = pb.ReceiveRequest(sources=[_source(spec, -1)], max_bytes=MAX_BYTES)
    message.request.CopyFrom(attempt.request_id())
    for place, request in enumerate(requests):
        share = message.more.add() if place else message
        share.count = min(request.count, attempt.max_batch)
        if request.vt_ms >= 0:
            share.vt_ms = request.vt_ms
    response = await attempt.ask("Receive", message)
    shares = [response, *response.more]
    return await _received(attempt, (spec.keys,), shares, response.dead_letters)


async def _receive_first(attempt: Attempt, request: ReceiveFirstRequest) -> Received:
    message = pb.ReceiveRequest(
        sources=[_source(spec, request.vt_ms) for spec in request.specs],
        count=min(request.count, attempt.max_batch),
        max_bytes=MAX_BYTES,
        request=attempt.request_id(),
    )
    response = await attempt.ask("Receive", message)
    keys = tuple(spec.keys for spec in request.specs)
    return (await _received(attempt, keys, [response], response.dead_letters))[0]


async def _recover(attempt: Attempt, request: RecoverRequest) -> Recovered:
    after = request.after
    message = pb.RecoverRequest(
        source=_source(request.spec, -1),
        count=min(request.count, attempt.max_batch),
        idle_ms=request.idle_ms,
        vt_ms=None if request.vt_ms < 0 else request.vt_ms,
        request=attempt.request_id(),
    )
    if after is not None:
        message.after.at, message.after.started_ms = after.next_at or 0, after.started_ms
    response = await attempt.ask("Recover", message)
    page = await _received(attempt, (request.keys,), [response], response.dead_letters)
    more = response.HasField("next")
    return Recovered(page[0], response.next.at if more else None, response.next.started_ms)


async def _pop(attempt: Attempt, requests: list[PopRequest]) -> list[Popped]:
    queue, wanted = requests[0].keys.queue, sum([request.count for request in requests])
    popped: list[Message] = []
    try:
        while len(popped) < wanted:
            count = min(wanted - len(popped), attempt.max_batch)
            response = await attempt.ask("Pop", pb.PopRequest(queue=queue, count=count))
            popped += [Message(m.id, m.body, m.rc, m.fr) for m in response.messages]
            if not response.messages:
                break
    except (Answered, NotExecuted, ReplyLost, RSMQError):
        # What was popped is nowhere else any more.
        if not popped:
            raise
    rows = iter(popped)
    return [Popped(list(islice(rows, request.count)), again=False) for request in requests]


async def _unwait(_: Attempt, _request: UnwaitRequest) -> int:
    # The broker's clients do not wait on the server one by one, so none is named there.
    return 0


async def _received(
    attempt: Attempt, queues: Sequence[QueueKeys], shares: Sequence[Any], letters: Iterable[Any]
) -> list[Received]:
    """Return what each share of a reply brought; what an earlier attempt took is leased again.

    Leases count from the first attempt, and the caller counts from this one.
    """
    keys = {key.queue: key for key in queues}
    taken = [list(share.deliveries) for share in shares]
    everything = [delivery for one in taken for delivery in one]
    if everything and (attempt.call.recall or attempt.call.in_doubt):
        kept = [] if attempt.call.recall else await _lease_again(attempt, everything)
        if attempt.call.recall:
            await _release(attempt, everything)
        held = {delivery.receipt for delivery in kept}
        taken = [[d for d in one if d.receipt in held] for one in taken]
    for delivery in everything:
        if delivery.omitted_bytes:
            await _refuse(attempt, everything, delivery)
    found: list[Received] = []
    for share, deliveries in zip(shares, taken, strict=True):
        known = isinstance(share, pb.ReceiveResponse) and share.HasField("next_visible_ms")
        # 0 would mean to come back at once.
        next_ms = 0 if deliveries else max(1, share.next_visible_ms) if known else -1
        dead = () if found else tuple(_dead_letter(keys[x.queue], x) for x in letters)
        found.append(Received([_leased(keys[d.queue], d) for d in deliveries], next_ms, 0.0, dead))
    return found


def _leased(keys: QueueKeys, d: Any) -> Leased:
    return Leased(d.id, d.body, d.rc, d.fr, keys, d.vt_ms, d.strikes, d.excused, d.receipt)


def _dead_letter(keys: QueueKeys, letter: Any) -> DeadLettered:
    message = Message(letter.id, letter.body, letter.rc, letter.fr)
    dead = keys.namespace.queue(letter.dead_letter or dead_letter_queue(keys.queue))
    return DeadLettered(message, keys, dead, letter.reason)


async def _lease_again(attempt: Attempt, taken: list[Any]) -> list[Any]:
    kept = []
    for vt_ms in {d.vt_ms for d in taken}:
        own = [d for d in taken if d.vt_ms == vt_ms]
        request = pb.ExtendRequest(receipts=[d.receipt for d in own], vt_ms=vt_ms)
        outcomes = (await attempt.ask("Extend", request)).outcomes
        kept += [d for d, how in zip(own, outcomes, strict=True) if how == pb.OUTCOME_DONE]
    return kept


async def _release(attempt: Attempt, taken: list[Any]) -> None:
    receipts = [delivery.receipt for delivery in taken]
    await attempt.ask("Release", pb.ReleaseRequest(receipts=receipts, unseen=True))


async def _refuse(attempt: Attempt, taken: list[Any], large: Any) -> None:
    """Give everything back: a message without its body is of no use."""
    await _release(attempt, taken)
    raise Answered(
        InvalidValue(
            f"message {large.id} of queue {large.queue!r} has {large.omitted_bytes} bytes, more "
            f"than the {MAX_BYTES} that are taken through a broker"
        )
    )


def _source(spec: ReceiveSpec, vt_ms: int) -> pb.Source:
    source = pb.Source(queue=spec.keys.queue)
    source.max_receives, dead, _ = spec.limit
    if dead and dead != dead_letter_queue(source.queue):
        source.dead_letter = dead
    lease_ms = spec.vt_ms if vt_ms < 0 else vt_ms
    if lease_ms >= 0:
        source.vt_ms = lease_ms
    return source


HANDLERS: dict[Any, Handler] = {
    RECEIVE: _receive,
    RECEIVE_FIRST: _receive_first,
    RECOVER: _recover,
    POP: _pop,
    UNWAIT: _unwait,
}
