"""``delete``, ``visibility`` and ``move``: what becomes of messages in hand, or of any message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._protocol.operation import Argument, Reply
from .._transport.driver import ReplyLost
from ..errors import ClientClosed, LeaseLost, RSMQError, Unavailable
from ..rpc import v1_pb2 as pb
from .errors import Answered, rebuild
from .receipts import Key, key_of
from .script_call import ScriptCall, together

_OUTCOMES = {pb.OUTCOME_DONE: 1, pb.OUTCOME_GONE: 0, pb.OUTCOME_RECEIVED_SINCE: -1}


class ReceiptRefused(LeaseLost):
    """Raised when the broker does not take its own receipt back; the operation changed nothing.

    A broker that is started without a receipt key knows only receipts of its own life.
    """

    def __init__(self, queue: str, id: str) -> None:
        super().__init__(queue, id, gone=False)
        text = (
            f"lease on message {id} of queue {queue!r} is lost: the broker does not know its "
            "receipt; it was started anew without a receipt key, or the token is another one"
        )
        self.args = (text,)


class Wanted(NamedTuple):
    """One message of a script's arguments: by its receipt, or (``key`` is none) by its id."""

    id: str
    key: Key | None


async def delete(call: ScriptCall) -> Reply:
    """Delete messages: acknowledged ones by receipt, others by id."""
    queue, parts = call.queue(), _deletes(call.queue(), call.args)
    wanted = [one for part in parts for one in part]
    (found,) = await together(
        _each(call, wanted, lambda receipts: ("Ack", pb.AckRequest(receipts=receipts)), ends=True)
    )
    outcomes: list[Reply] = [found] * len(wanted) if isinstance(found, RSMQError) else found
    if ids := list(dict.fromkeys(one.id for one in wanted if one.key is None)):
        await _delete_by_id(call, queue, ids, wanted, outcomes)
    rest = iter(outcomes)
    return [_whole([next(rest) for _ in part]) for part in parts]


async def _delete_by_id(
    call: ScriptCall, queue: str, ids: list[str], wanted: list[Wanted], outcomes: list[Reply]
) -> None:
    request = pb.DeleteMessagesRequest(queue=queue, ids=ids)
    (found,) = await together(call.ask("DeleteMessages", request))
    deleted = set() if isinstance(found, RSMQError) else set(found.ids)
    for place, one in enumerate(wanted):
        if one.key is None:
            outcomes[place] = found if isinstance(found, RSMQError) else int(one.id in deleted)
            deleted.discard(one.id)


async def delete_leased(call: ScriptCall) -> Reply:
    """Delete messages by id that are under lease."""
    ids = [str(id) for id in call.args]
    request = pb.DeleteMessagesRequest(queue=call.queue(), ids=ids, only_leased=True)
    return await call.answer(
        "DeleteMessages", request, lambda found: [int(id in set(found.ids)) for id in ids]
    )


async def visibility(call: ScriptCall) -> Reply:
    """Change when messages become visible: leases grow, or end."""
    call.numbered()
    queue, args = call.queue(), call.args[1:]
    parts = [args[at : at + 5] for at in range(0, len(args), 5)]
    replies: list[Reply] = [None] * len(parts)
    groups: dict[tuple[bool, int, str], list[int]] = {}
    for place, (_, rc, _, vt_ms, how) in enumerate(parts):
        groups.setdefault((rc != "", int(vt_ms), str(how)), []).append(place)
    work = []
    for (fenced, vt_ms, how), places in groups.items():
        if fenced:
            own = [Wanted(str(p[0]), key_of(queue, *p[:3])) for p in (parts[x] for x in places)]
            work.append(_hold(call, own, vt_ms, how))
        else:
            ids = [(place, str(parts[place][0])) for place in places]
            work.append(_change(call, queue, ids, vt_ms))
    for places, found in zip(groups.values(), await together(*work), strict=True):
        shares = [found] * len(places) if isinstance(found, RSMQError) else found
        for place, share in zip(places, shares, strict=True):
            replies[place] = share
    return replies


async def _hold(call: ScriptCall, wanted: list[Wanted], vt_ms: int, how: str) -> list[Reply]:
    def request(receipts: list[str]) -> tuple[str, Any]:
        if not how:
            return "Extend", pb.ExtendRequest(receipts=receipts, vt_ms=vt_ms)
        unseen = how == "u"
        return "Release", pb.ReleaseRequest(receipts=receipts, delay_ms=vt_ms, unseen=unseen)

    return await _each(call, wanted, request, ends=False)


async def _change(
    call: ScriptCall, queue: str, ids: list[tuple[int, str]], vt_ms: int
) -> list[Reply]:
    found = await together(
        *(
            call.ask(
                "ChangeVisibility",
                pb.ChangeVisibilityRequest(
                    queue=queue, id=id, vt_ms=vt_ms, request=call.request_id(f"-{place}")
                ),
            )
            for place, id in ids
        )
    )
    return [x if isinstance(x, RSMQError) else int(x.changed) for x in found]


async def move(call: ScriptCall) -> Reply:
    """Move a message to its dead-letter queue, or to another queue."""
    queue = call.queue()
    id, rc, fr, target, _, delay_ms, keep, reason, _ = call.args
    wanted = [Wanted(str(id), key_of(queue, id, rc, fr))]

    def request(receipts: list[str]) -> tuple[str, Any]:
        if keep == "1":
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            # The queue's own needs no permission of its own.
            dead = "" if target == f"{queue}-dead" else str(target)
            return "Reject", pb.RejectRequest(receipts=receipts, reason=text, dead_letter=dead)
        delay = None if int(delay_ms) < 0 else int(delay_ms)
        return "Forward", pb.ForwardRequest(receipts=receipts, target=str(target), delay_ms=delay)

    try:
        return (await _each(call, wanted, request, ends=True))[0]
    except Answered as answered:
        return answered.error


async def _each(
    call: ScriptCall, wanted: Sequence[Wanted], request: Any, *, ends: bool
) -> list[Reply]:
    """Settle by as few calls as possible what is named by a receipt; return an outcome for each.

    Those without a receipt are left for the caller to fill in.
    """
    fenced = [(place, one, one.key) for place, one in enumerate(wanted) if one.key is not None]
    outcomes: list[Reply] = [None] * len(wanted)
    if not fenced:
        return outcomes
    receipts = []
    for place, _, key in fenced:
        try:
            receipts.append(call.receipts.find(key))
        except RSMQError as error:
            outcomes[place] = error
    known = [row for row in fenced if outcomes[row[0]] is None]
    if not known:
        return outcomes
    most = call.link.most
    for at in range(0, len(known), most):
        page = known[at : at + most]
        method, message = request(receipts[at : at + most])
        response = await call.ask(method, message)
        errors = {error.index: error for error in response.errors}
        for place, how in enumerate(response.outcomes):
            number, one, key = page[place]
            outcomes[number] = _outcome(one, key, how, errors.get(place))
            if ends and how in _OUTCOMES:
                call.receipts.settle(key)
    return outcomes


def _outcome(one: Wanted, key: Key, how: Any, error: Any) -> Reply:
    if how in _OUTCOMES:
        return _OUTCOMES[how]
    if how == pb.OUTCOME_BAD_RECEIPT:
        return ReceiptRefused(key[0], one.id)
    code, text = (error.code, error.message) if error else ("internal", "the broker gave no reason")
    if code in (Unavailable.code, ClientClosed.code, "internal"):
        # Nobody can tell whether it ran; all of these may be repeated.
        raise ReplyLost(f"the broker says: {text}")
    return rebuild(code, text, {"queue": key[0]})


def _deletes(queue: str, args: Sequence[Argument]) -> list[list[Wanted]]:
    parts, at = [], 0
    while at < len(args):
        count = int(args[at])
        rows = [args[x : x + 3] for x in range(at + 1, at + 1 + 3 * count, 3)]
        parts.append(
            [
                Wanted(str(id), None if rc == "" else key_of(queue, id, rc, fr))
                for id, rc, fr in rows
            ]
        )
        at += 1 + 3 * count
    return parts


def _whole(outcomes: list[Reply]) -> Reply:
    """Return the reply for one caller: its outcomes, or the first error among them."""
    return next((x for x in outcomes if isinstance(x, RSMQError)), outcomes)
