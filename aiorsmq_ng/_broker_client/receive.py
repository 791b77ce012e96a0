"""``receive``, ``receive_first``, ``pop`` and ``recover``: messages that come into our hands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from .._protocol.operation import Argument, Reply
from .._transport.driver import NotExecuted, ReplyLost
from ..errors import InvalidValue, RSMQError
from ..rpc import v1_pb2 as pb
from .errors import Answered
from .receipts import key_of
from .script_call import ScriptCall

#: Bytes of bodies in one reply; a message that is larger alone comes without its body.
MAX_BYTES = 64 * 1024 * 1024


async def receive(call: ScriptCall) -> Reply:
    """Lease messages of one queue for one caller or several; earlier ones are served first."""
    call.numbered()
    # Behind a broker its own name stands for the holder, and waiters are not called one by one, so
    # none is named.
    limit, shares = call.args[1:4], _shares(call.args[6:])
    source = _source(call.queue(), *limit)
    replies: list[Reply] = []
    for at, (vt_ms, counts) in enumerate(_runs(shares)):
        request = pb.ReceiveRequest(sources=[source], request=call.request_id(f"-{at}"))
        try:
            taken, next_ms, letters = await _take(call, request, sum(counts), vt_ms)
        except Answered as answered:
            replies += [answered.error] * len(counts)
            continue
        rows = iter(taken)
        for count in counts:
            own = list(islice(rows, count))
            lease_ms = own[0].vt_ms if own else max(vt_ms, 0)
            replies.append([lease_ms, 0 if own else next_ms, *_flat(own), *_remarks(own, letters)])
            letters = []
    return replies


async def receive_first(call: ScriptCall) -> Reply:
    """Lease messages of several queues in order of priority."""
    call.numbered()
    count, rest = int(call.args[1]), call.args[5:]
    request = pb.ReceiveRequest(request=call.request_id())
    queues: list[str] = []
    for at in range(len(rest) // 4):
        vt_ms, *limit = rest[4 * at : 4 * at + 4]
        queues.append(call.queue(1 + 6 * at))
        source = _source(queues[-1], *limit)
        if int(vt_ms) >= 0:
            source.vt_ms = int(vt_ms)
        request.sources.append(source)
    try:
        taken, next_ms, letters = await _take(call, request, count, -1)
    except Answered as answered:
        return answered.error
    reply: list[Reply] = [0 if taken else next_ms]
    for number, queue in enumerate(queues, 1):
        own = [d for d in taken if d.queue == queue]
        remarks = _remarks(own, [letter for letter in letters if letter.queue == queue])
        if own or remarks:
            reply += (number, [own[0].vt_ms if own else 0, 0, *_flat(own), *remarks])
    return reply


async def recover(call: ScriptCall) -> Reply:
    """Take over messages that others hold: as many as the broker puts into one reply."""
    call.numbered()
    _, *limit, count, idle_ms, vt_ms, _, _ = call.args
    request = pb.RecoverRequest(
        source=_source(call.queue(), *limit),
        count=min(int(count), call.link.most),
        idle_ms=int(idle_ms),
        vt_ms=None if int(vt_ms) < 0 else int(vt_ms),
        request=call.request_id(),
    )
    try:
        response = await call.ask("Recover", request)
        taken = await _kept(call, response.deliveries)
    except Answered as answered:
        return answered.error
    remarks = _remarks(taken, response.dead_letters)
    return [taken[0].vt_ms if taken else 0, -1, 0, *_flat(taken), *remarks]


async def pop(call: ScriptCall) -> Reply:
    """Take and delete messages."""
    counts = [int(count) for count in call.args]
    popped: list[Any] = []
    try:
        while len(popped) < sum(counts):
            wanted = min(sum(counts) - len(popped), call.link.most)
            response = await call.ask("Pop", pb.PopRequest(queue=call.queue(), count=wanted))
            popped += response.messages
            if not response.messages:
                break
    except Answered as answered:
        if not popped:
            return [answered.error] * len(counts)
    except (NotExecuted, ReplyLost, RSMQError):
        # What was popped is nowhere else any more.
        if not popped:
            raise
    rows = iter(popped)
    return [[-1, *_flat(list(islice(rows, count)))] for count in counts]


async def _take(
    call: ScriptCall, request: pb.ReceiveRequest, count: int, vt_ms: int
) -> tuple[list[Any], int, Sequence[Any]]:
    """Return what a Receive brought, in how many ms to look again, and what was put aside."""
    request.count = min(count, call.link.most)
    request.max_bytes = MAX_BYTES
    if vt_ms >= 0:
        request.vt_ms = vt_ms
    response = await call.ask("Receive", request)
    taken = await _kept(call, response.deliveries)
    known = response.HasField("next_visible_ms")
    # 0 would mean to come back at once.
    return taken, max(1, response.next_visible_ms) if known else -1, response.dead_letters


async def _kept(call: ScriptCall, deliveries: Sequence[Any]) -> list[Any]:
    """Keep the receipts of what came; what came to an earlier attempt is leased anew.

    Leases count from the first attempt, and the caller counts from this one.
    """
    taken = list(deliveries)
    if taken and call.recalls:
        receipts = [d.receipt for d in taken]
        await call.ask("Release", pb.ReleaseRequest(receipts=receipts, unseen=True))
        return []
    if taken and call.again:
        taken = await _lease_anew(call, taken)
    for delivery in taken:
        call.receipts.keep(delivery)
    if large := [d for d in taken if d.omitted_bytes]:
        await _refuse(call, taken, large[0])
    return taken


async def _lease_anew(call: ScriptCall, taken: list[Any]) -> list[Any]:
    left = []
    for vt_ms in {d.vt_ms for d in taken}:
        own = [d for d in taken if d.vt_ms == vt_ms]
        request = pb.ExtendRequest(receipts=[d.receipt for d in own], vt_ms=vt_ms)
        outcomes = (await call.ask("Extend", request)).outcomes
        left += [d for d, how in zip(own, outcomes, strict=True) if how == pb.OUTCOME_DONE]
    return [d for d in taken if d in left]


async def _refuse(call: ScriptCall, taken: list[Any], large: Any) -> None:
    """Give everything back: a message without its body is of no use."""
    receipts = [d.receipt for d in taken]
    await call.ask("Release", pb.ReleaseRequest(receipts=receipts, unseen=True))
    for d in taken:
        call.receipts.settle(key_of(d.queue, d.id, d.rc, d.fr))
    raise Answered(
        InvalidValue(
            f"message {large.id} of queue {large.queue!r} has {large.omitted_bytes} bytes, more "
            f"than the {MAX_BYTES} that are taken through a broker"
        )
    )


def _source(queue: str, max_receives: Argument, dead: Argument, _: Argument) -> pb.Source:
    source = pb.Source(queue=queue, max_receives=int(max_receives))
    if source.max_receives and dead != f"{queue}-dead":
        source.dead_letter = str(dead)
    return source


def _shares(args: Sequence[Argument]) -> list[tuple[int, int]]:
    numbers = [int(arg) for arg in args]
    return list(zip(numbers[::3], numbers[1::3], strict=True))


def _runs(shares: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Yield the lease and the counts of neighbours that have the same lease."""
    run: list[int] = []
    for at, (count, vt_ms) in enumerate(shares):
        run.append(count)
        if at + 1 == len(shares) or shares[at + 1][1] != vt_ms:
            yield vt_ms, run
            run = []


def _remarks(taken: Sequence[Any], letters: Sequence[Any]) -> list[Any]:
    """Return what the script says after the messages, if there is something to say."""
    marks = [
        v for d in taken if d.strikes or d.excused for v in (d.id.encode(), d.strikes, d.excused)
    ]
    dead = [v for x in letters for v in (x.id.encode(), x.body, x.rc, x.fr, x.reason.encode())]
    return [[marks, dead]] if marks or dead else []


def _flat(messages: Sequence[Any]) -> list[Any]:
    return [value for m in messages for value in (m.id.encode(), m.body, m.rc, m.fr)]
