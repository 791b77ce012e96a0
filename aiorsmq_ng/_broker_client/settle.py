"""``Ack``, ``Extend``, ``Release``, ``Reject``, ``Forward``, and what is done by id alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._common.queue_defaults import dead_letter_queue
from .._protocol.keys import QueueKeys
from .._protocol.messages import (
    ACK,
    ACK_MANY,
    DELETE,
    FORWARD,
    REJECT,
    VISIBILITY,
    AckManyRequest,
    AckRequest,
    DeleteRequest,
    ForwardRequest,
    RejectRequest,
    VisibilityRequest,
)
from .._protocol.recovery import DELETE_LEASED, DeleteLeasedRequest
from .._protocol.values import Receipt
from .._transport.driver import ReplyLost
from ..errors import ClientClosed, InvalidValue, LeaseLost, RSMQError, Unavailable
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler, gather_answers
from .errors import rebuild

#: Returns the method and the request that settles some receipts.
Settling = Callable[[list[str]], tuple[str, Any]]


class ReceiptRefused(LeaseLost):
    """Raised when the broker does not take its own receipt back; the operation changed nothing.

    A broker that is started without a receipt key knows only receipts of its own life.
    """

    def __init__(self, queue: str, id: str) -> None:
        super().__init__(queue, id, gone=False)
        text = (
            f"lease on message {id} of queue {queue!r} is lost: the broker does not know its "
            "receipt; it was restarted without a receipt key, or the token is another one"
        )
        self.args = (text,)


async def _ack(attempt: Attempt, requests: list[AckRequest]) -> list[Any]:
    keys, receipts = requests[0].keys, [request.receipt for request in requests]
    return await _settle(attempt, keys, receipts, _acking)


async def _ack_many(attempt: Attempt, requests: list[AckManyRequest]) -> list[Any]:
    receipts = [receipt for request in requests for receipt in request.receipts]
    outcomes = iter(await _settle(attempt, requests[0].keys, receipts, _acking))
    return [_acked([next(outcomes) for _ in request.receipts]) for request in requests]


def _acking(receipts: list[str]) -> tuple[str, Any]:
    return "Ack", pb.AckRequest(receipts=receipts)


def _acked(outcomes: list[RSMQError | None]) -> list[bool] | RSMQError:
    """Return for each receipt whether it was the newest; or the error that is something else."""
    for outcome in outcomes:
        if outcome is not None and not isinstance(outcome, LeaseLost):
            return outcome
    return [outcome is None for outcome in outcomes]


async def _delete(attempt: Attempt, requests: list[DeleteRequest]) -> list[list[str]]:
    ids = list(dict.fromkeys([id for request in requests for id in request.ids]))
    found = await _delete_ids(attempt, requests[0].keys.queue, ids)
    results = []
    for request in requests:
        results.append([id for id in request.ids if id in found])
        # Of several operations that name the same message one has deleted it.
        found -= set(request.ids)
    return results


async def _delete_leased(attempt: Attempt, request: DeleteLeasedRequest) -> list[str]:
    ids = list(request.ids)
    found = await _delete_ids(attempt, request.keys.queue, ids, only_leased=True)
    return [id for id in ids if id in found]


async def _delete_ids(
    attempt: Attempt, queue: str, ids: list[str], *, only_leased: bool = False
) -> set[str]:
    found: set[str] = set()
    for at in range(0, len(ids), attempt.max_batch):
        page = ids[at : at + attempt.max_batch]
        request = pb.DeleteMessagesRequest(queue=queue, ids=page, only_leased=only_leased)
        found.update((await attempt.ask("DeleteMessages", request)).ids)
    # What is gone by now was deleted by an earlier attempt, or by another client.
    return set(ids) if attempt.call.in_doubt else found


async def _visibility(attempt: Attempt, requests: list[VisibilityRequest]) -> list[Any]:
    keys = requests[0].keys
    groups: dict[tuple[int, str], list[int]] = {}
    work: list[Any] = []
    places: list[list[int]] = []
    for place, request in enumerate(requests):
        if request.receipt is not None:
            groups.setdefault((request.vt_ms, request.how), []).append(place)
        else:
            places.append([place])
            work.append(_change(attempt, request, place))
    for (vt_ms, how), group in groups.items():
        places.append(group)
        receipts: list[Any] = [requests[place].receipt for place in group]
        work.append(_settle(attempt, keys, receipts, _holding(vt_ms, how)))
    results: list[Any] = [True] * len(requests)
    for group, found in zip(places, await gather_answers(*work), strict=True):
        for at, place in enumerate(group):
            outcome = found if isinstance(found, RSMQError) else found[at]
            results[place] = True if outcome is None else outcome
    return results


def _holding(vt_ms: int, how: str) -> Settling:
    if not how:
        return lambda receipts: ("Extend", pb.ExtendRequest(receipts=receipts, vt_ms=vt_ms))
    unseen = how == "u"
    return lambda receipts: (
        "Release",
        pb.ReleaseRequest(receipts=receipts, delay_ms=vt_ms, unseen=unseen),
    )


async def _change(attempt: Attempt, request: VisibilityRequest, place: int) -> list[bool]:
    message = pb.ChangeVisibilityRequest(
        queue=request.keys.queue, id=request.id, vt_ms=request.vt_ms
    )
    message.request.CopyFrom(attempt.request_id(f"-{place}"))
    return [(await attempt.ask("ChangeVisibility", message)).changed]


async def _reject(attempt: Attempt, request: RejectRequest) -> RSMQError | None:
    # The queue's own dead-letter queue needs no permission of its own.
    own = request.target.queue == dead_letter_queue(request.keys.queue)
    dead, reason = "" if own else request.target.queue, request.reason

    def settling(receipts: list[str]) -> tuple[str, Any]:
        return "Reject", pb.RejectRequest(receipts=receipts, reason=reason, dead_letter=dead)

    return (await _settle(attempt, request.keys, [request.receipt], settling))[0]


async def _forward(attempt: Attempt, request: ForwardRequest) -> RSMQError | None:
    delay_ms = None if request.delay_ms < 0 else request.delay_ms

    def settling(receipts: list[str]) -> tuple[str, Any]:
        return "Forward", pb.ForwardRequest(
            receipts=receipts, target=request.target.queue, delay_ms=delay_ms
        )

    return (await _settle(attempt, request.keys, [request.receipt], settling))[0]


async def _settle(
    attempt: Attempt, keys: QueueKeys, receipts: Sequence[Receipt], settling: Settling
) -> list[RSMQError | None]:
    """Settle by as few calls as possible; return the error of each receipt, or None."""
    results: list[RSMQError | None] = []
    for at in range(0, len(receipts), attempt.max_batch):
        page = receipts[at : at + attempt.max_batch]
        method, request = settling([receipt.proof for receipt in page])
        response = await attempt.ask(method, request)
        if list(response.outcomes) == [pb.OUTCOME_DONE] * len(page):
            results += [None] * len(page)
            continue
        errors = {error.index: error for error in response.errors}
        for place, (receipt, how) in enumerate(zip(page, response.outcomes, strict=True)):
            results.append(_outcome(attempt, keys.queue, receipt, how, errors.get(place)))
    return results


def _outcome(
    attempt: Attempt, queue: str, receipt: Receipt, how: Any, error: Any
) -> RSMQError | None:
    gone = how == pb.OUTCOME_GONE
    if how == pb.OUTCOME_DONE or (gone and attempt.call.in_doubt and attempt.call.kind.repeatable):
        return None
    if gone or how == pb.OUTCOME_RECEIVED_SINCE:
        return LeaseLost(queue, receipt.id, gone=gone)
    if how == pb.OUTCOME_BAD_RECEIPT and not receipt.proof:
        return InvalidValue(
            f"the receipt of message {receipt.id} of queue {queue!r} has no proof; through a "
            "broker a message is settled by the whole receipt of its delivery"
        )
    if how == pb.OUTCOME_BAD_RECEIPT:
        return ReceiptRefused(queue, receipt.id)
    code, text = (error.code, error.message) if error else ("internal", "the broker gave no reason")
    if code in (Unavailable.code, ClientClosed.code, "internal"):
        # It may have run; all of these may be repeated.
        raise ReplyLost(f"the broker says: {text}")
    return rebuild(code, text, {"queue": queue})


HANDLERS: dict[Any, Handler] = {
    ACK: _ack,
    ACK_MANY: _ack_many,
    DELETE: _delete,
    DELETE_LEASED: _delete_leased,
    VISIBILITY: _visibility,
    REJECT: _reject,
    FORWARD: _forward,
}
