"""Codecs of what ends or changes a lease: acks, deletions, changes of visibility, moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import LeaseLost
from ..keys import QueueKeys
from ..operation import Argument, Reply
from ..operations import messages, recovery
from ..operations.message_values import Receipt
from ..operations.messages import (
    AckManyRequest,
    AckRequest,
    DeleteRequest,
    ForwardRequest,
    RedriveRequest,
    RejectRequest,
    VisibilityRequest,
)
from ..operations.recovery import DeleteLeasedRequest
from .codec import Codec
from .send import check_size

#: How long the reason of a rejection is kept: 14 days.
REASON_TTL_S = 14 * 86400

#: Outcome of a fenced step: done; the message is gone; it was received again since.
DONE, GONE, RECEIVED_SINCE = 1, 0, -1


def _check(keys: QueueKeys, receipt: Receipt, outcome: int) -> None:
    if outcome != DONE:
        raise LeaseLost(keys.queue, receipt.id, gone=outcome == GONE)


def _check_repeated(keys: QueueKeys, receipt: Receipt, outcome: int) -> None:
    # A message that no longer exists was settled by the first attempt.
    if outcome != GONE:
        _check(keys, receipt, outcome)


def _decode_ack(request: AckRequest, reply: Reply) -> None:
    if reply[0] != DONE:
        _check(request.keys, request.receipt, reply[0])


def _unfenced(request: DeleteRequest) -> Sequence[Argument]:
    args: list[Argument] = [len(request.ids)]
    for id in request.ids:
        args += (id, "", "")
    return args


def _receipts(request: AckManyRequest) -> Sequence[Argument]:
    args: list[Argument] = [len(request.receipts)]
    for receipt in request.receipts:
        args += receipt[:3]
    return args


def _losses(request: AckManyRequest, reply: Reply, least: int) -> list[LeaseLost | None]:
    """Return for each receipt why it is not settled; ``None`` for an outcome of *least* or more."""
    queue = request.keys.queue
    return [
        None if outcome >= least else LeaseLost(queue, receipt.id, gone=outcome == GONE)
        for receipt, outcome in zip(request.receipts, reply, strict=True)
    ]


def _decode_visibility(request: VisibilityRequest, reply: Reply) -> bool:
    if request.receipt is not None:
        _check(request.keys, request.receipt, reply)
    return bool(reply == DONE)


def _visibility_args(request: VisibilityRequest) -> Sequence[Argument]:
    return (*(request.receipt or (request.id, "", ""))[:3], request.vt_ms, request.how)


def _move_keys(request: ForwardRequest | RejectRequest) -> Sequence[str]:
    target = request.target
    return (
        *request.keys.with_deliveries,
        target.zset,
        target.hash,
        target.namespace.index,
        target.reason(request.receipt.id),
        target.deliveries,
    )


def _reject_args(request: RejectRequest) -> Sequence[Argument]:
    reason = request.reason.encode(errors="replace")
    target = request.target.queue
    return (*request.receipt[:3], target, request.channel, 0, "1", reason, REASON_TTL_S)


def _forward_args(request: ForwardRequest) -> Sequence[Argument]:
    target = request.target.queue
    return (*request.receipt[:3], target, request.channel, request.delay_ms, "0", "", REASON_TTL_S)


def _decode_move(request: ForwardRequest | RejectRequest, reply: Reply) -> None:
    if isinstance(reply, int):
        _check(request.keys, request.receipt, reply)
    else:
        check_size(request.target, reply)


def _decode_move_repeated(request: ForwardRequest | RejectRequest, reply: Reply) -> None:
    if isinstance(reply, int):
        _check_repeated(request.keys, request.receipt, reply)
    else:
        check_size(request.target, reply)


DELETE: Codec[DeleteRequest, list[str]] = Codec(
    kind=messages.DELETE,
    script="delete",
    keys=lambda r: r.keys.with_deliveries,
    args=_unfenced,
    decode=lambda r, reply: [id for id, done in zip(r.ids, reply, strict=True) if done == DONE],
    # A message that no longer exists was deleted by the first attempt, or by another client.
    decode_repeated=lambda r, _: list(r.ids),
)
ACK: Codec[AckRequest, None] = Codec(
    kind=messages.ACK,
    script="delete",
    keys=lambda r: r.keys.with_deliveries,
    args=lambda r: (1, *r.receipt[:3]),
    decode=_decode_ack,
    decode_repeated=lambda r, reply: _check_repeated(r.keys, r.receipt, reply[0]),
)
ACK_MANY: Codec[AckManyRequest, list[LeaseLost | None]] = Codec(
    kind=messages.ACK_MANY,
    script="delete",
    keys=lambda r: r.keys.with_deliveries,
    args=_receipts,
    decode=lambda r, reply: _losses(r, reply, DONE),
    # A message that no longer exists was settled by the first attempt.
    decode_repeated=lambda r, reply: _losses(r, reply, GONE),
)
DELETE_LEASED: Codec[DeleteLeasedRequest, list[str]] = Codec(
    kind=recovery.DELETE_LEASED,
    script="delete_leased",
    keys=lambda r: r.keys.with_deliveries,
    args=lambda r: r.ids,
    decode=lambda r, reply: [id for id, done in zip(r.ids, reply, strict=True) if done == DONE],
    # A message that no longer exists was deleted by the first attempt, or by another client.
    decode_repeated=lambda r, reply: [
        id for id, outcome in zip(r.ids, reply, strict=True) if outcome >= GONE
    ],
)
VISIBILITY: Codec[VisibilityRequest, bool] = Codec(
    kind=messages.VISIBILITY,
    script="visibility",
    keys=lambda r: r.keys.with_deliveries,
    head=lambda r: (r.channel,),
    args=_visibility_args,
    decode=_decode_visibility,
)
FORWARD: Codec[ForwardRequest, None] = Codec(
    kind=messages.FORWARD,
    script="move",
    keys=_move_keys,
    args=_forward_args,
    decode=_decode_move,
    decode_repeated=_decode_move_repeated,
    fail=lambda r, code: r.target.failure(code),
)
REJECT: Codec[RejectRequest, None] = Codec(
    kind=messages.REJECT,
    script="move",
    keys=_move_keys,
    args=_reject_args,
    decode=_decode_move,
    decode_repeated=_decode_move_repeated,
    fail=lambda r, code: r.target.failure(code),
)
REDRIVE: Codec[RedriveRequest, int] = Codec(
    kind=messages.REDRIVE,
    script="redrive",
    keys=lambda r: (*r.keys.with_deliveries, r.target.zset, r.target.hash),
    args=lambda r: (r.channel, r.count, *r.ids),
    decode=lambda _, reply: len(reply),
    fail=lambda r, code: r.target.failure(code),
)

CODECS: tuple[Codec[Any, Any], ...] = (
    DELETE, ACK, ACK_MANY, DELETE_LEASED, VISIBILITY, FORWARD, REJECT, REDRIVE
)  # fmt: skip
