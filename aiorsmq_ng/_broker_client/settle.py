"""``Ack``, ``Extend``, ``Release``, ``Reject``, ``Forward``, and what is done by id alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .._protocol import messages
from .._protocol.recovery import DELETE_LEASED, DeleteLeasedRequest
from .._protocol.values import Receipt
from .._transport.driver import NotExecuted, ReplyLost
from ..errors import InvalidValue, LeaseLost, RSMQError, Unavailable
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler
from .conversions import dead_letter_field, given
from .errors import Answered, Failure

#: The error of a receipt, or None if it is settled.
Outcome = RSMQError | None


async def _ack(attempt: Attempt, requests: list[messages.AckRequest]) -> list[Outcome]:
    receipts = [request.receipt for request in requests]
    return await _settle(attempt, requests[0].keys.queue, receipts, "Ack")


async def _ack_many(attempt: Attempt, requests: list[messages.AckManyRequest]) -> list[Any]:
    receipts = [receipt for request in requests for receipt in request.receipts]
    outcomes = iter(await _settle(attempt, requests[0].keys.queue, receipts, "Ack"))
    return [_acked([next(outcomes) for _ in request.receipts]) for request in requests]


def _acked(outcomes: list[Outcome]) -> list[bool] | RSMQError:
    """Return for each receipt whether it was the newest; or the error that is something else."""
    for outcome in outcomes:
        if outcome is not None and not isinstance(outcome, LeaseLost):
            return outcome
    return [outcome is None for outcome in outcomes]


async def _reject(attempt: Attempt, request: messages.RejectRequest) -> Outcome:
    queue = request.keys.queue
    how = {
        "reason": request.reason,
        "dead_letter": dead_letter_field(queue, request.target.queue),
    }
    return (await _settle(attempt, queue, [request.receipt], "Reject", **how))[0]


async def _forward(attempt: Attempt, request: messages.ForwardRequest) -> Outcome:
    how = {"target": request.target.queue, "delay_ms": given(request.delay_ms)}
    return (await _settle(attempt, request.keys.queue, [request.receipt], "Forward", **how))[0]


async def _visibility(
    attempt: Attempt, requests: list[messages.VisibilityRequest]
) -> list[bool | RSMQError]:
    """Change visibilities, those of leases that change alike by one call."""
    groups: dict[Any, list[int]] = {}
    for place, request in enumerate(requests):
        alike = place if request.receipt is None else (request.vt_ms, request.how)
        groups.setdefault(alike, []).append(place)
    work = [_change_alike(attempt, requests, places) for places in groups.values()]
    results: list[Any] = [None] * len(requests)
    for places, found in zip(groups.values(), await _gather(work), strict=True):
        for place, outcome in zip(places, found, strict=True):
            results[place] = outcome
    return results


async def _change_alike(
    attempt: Attempt, requests: list[messages.VisibilityRequest], places: list[int]
) -> list[Any]:
    first = requests[places[0]]
    queue, id, vt_ms = first.keys.queue, first.id, first.vt_ms
    receipts: list[Any] = [requests[place].receipt for place in places]
    try:
        if first.receipt is None:
            name = attempt.request_id(f"-{places[0]}")
            changed = await attempt.ask(
                "ChangeVisibility", queue=queue, id=id, vt_ms=vt_ms, request=name
            )
            return [changed.changed]
        if not first.how:
            found = await _settle(attempt, queue, receipts, "Extend", vt_ms=vt_ms)
        else:
            how = {"delay_ms": vt_ms, "unseen": first.how == "u"}
            found = await _settle(attempt, queue, receipts, "Release", **how)
        return [True if outcome is None else outcome for outcome in found]
    except Answered as answered:
        return [answered.error] * len(places)


async def _gather(work: list[Any]) -> list[Any]:
    """Wait for all; of several errors raise the one that leaves the most open."""
    found: list[Any] = await asyncio.gather(*work, return_exceptions=True)
    for kind in (asyncio.CancelledError, ReplyLost, NotExecuted, BaseException):
        for fault in found:
            if isinstance(fault, kind):
                raise fault
    return found


async def _settle(
    attempt: Attempt, queue: str, receipts: Sequence[Receipt], method: str, **how: Any
) -> list[Outcome]:
    """Settle by as few calls as possible."""
    results: list[Outcome] = []
    for page in attempt.pages(receipts):
        proofs = [receipt.proof for receipt in page]
        try:
            response = await attempt.ask(method, receipts=proofs, **how)
        except Answered as answered:
            # Of this page only: those before it are settled.
            results += [answered.error] * len(page)
            continue
        errors = {error.index: error.error for error in response.errors}
        for place, (receipt, outcome) in enumerate(zip(page, response.outcomes, strict=True)):
            done = outcome == pb.OUTCOME_DONE
            if outcome == pb.OUTCOME_FAILED:
                results.append(_failed(method, errors.get(place, pb.Error())))
            else:
                results.append(None if done else _refused(attempt, queue, receipt, outcome))
    return results


def _failed(method: str, error: pb.Error) -> RSMQError:
    found = Failure.of_part(method, error).outcome()
    if isinstance(found, Unavailable):
        # It may have run; all of these may be repeated.
        raise ReplyLost(str(found))
    return found


def _refused(attempt: Attempt, queue: str, receipt: Receipt, outcome: Any) -> Outcome:
    gone = outcome == pb.OUTCOME_GONE
    if gone and attempt.call.in_doubt and attempt.call.kind.repeatable:
        return None
    lost = LeaseLost(queue, receipt.id, gone=gone)
    if outcome != pb.OUTCOME_BAD_RECEIPT:
        return lost
    if not receipt.proof:
        return InvalidValue(
            f"the receipt of message {receipt.id} of queue {queue!r} has no proof; through a "
            "broker a message is settled by the whole receipt of its delivery"
        )
    # A broker that is started without a receipt key knows only receipts of its own life.
    text = (
        f"lease on message {receipt.id} of queue {queue!r} is lost: the broker does not know its "
        "receipt; it was restarted without a receipt key, or the token is another one"
    )
    lost.args = (text,)
    return lost


async def _delete(attempt: Attempt, requests: list[messages.DeleteRequest]) -> list[list[str]]:
    ids = list(dict.fromkeys([id for request in requests for id in request.ids]))
    found = await _delete_ids(attempt, requests[0].keys.queue, ids)
    results = []
    for request in requests:
        results.append([id for id in request.ids if id in found])
        if not attempt.call.in_doubt:
            # Of several operations that name the same message one has deleted it.
            found -= set(request.ids)
    return results


async def _delete_leased(attempt: Attempt, request: DeleteLeasedRequest) -> list[str]:
    found = await _delete_ids(attempt, request.keys.queue, request.ids, only_leased=True)
    return [id for id in request.ids if id in found]


async def _delete_ids(
    attempt: Attempt, queue: str, ids: Sequence[str], *, only_leased: bool = False
) -> set[str]:
    found: set[str] = set()
    for page in attempt.pages(ids):
        how = {"queue": queue, "ids": page, "only_leased": only_leased}
        found.update((await attempt.ask("DeleteMessages", **how)).ids)
    # What is gone by now was deleted by an earlier attempt, or by another client.
    return set(ids) if attempt.call.in_doubt else found


HANDLERS: dict[Any, Handler] = {
    messages.ACK: _ack,
    messages.ACK_MANY: _ack_many,
    messages.DELETE: _delete,
    DELETE_LEASED: _delete_leased,
    messages.VISIBILITY: _visibility,
    messages.REJECT: _reject,
    messages.FORWARD: _forward,
}
