"""Codecs of claims in a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import RSMQError
from ..operation import Argument, Reply
from ..operations.spark import claims
from ..operations.spark.claims import (
    AcknowledgeRequest,
    Backlog,
    BacklogRequest,
    Claimed,
    ClaimPage,
    ClaimRequest,
    DeadLetterRequest,
    ForgetRequest,
    GetGroupRequest,
    Ledger,
    LedgerRequest,
    ReadRequest,
    Released,
    ReleaseRequest,
    Renewed,
    RenewRequest,
    Run,
    SetGroupRequest,
    TakeOverRequest,
)
from .codec import Codec


def _failure(request: LedgerRequest, code: str) -> RSMQError:
    return request.ledger.failure(code)


def _claim(
    request: ClaimRequest
    | ReadRequest
    | RenewRequest
    | AcknowledgeRequest
    | ReleaseRequest
    | DeadLetterRequest,
) -> tuple[str, str]:
    """Return the keys of a claim: its messages, and the bodies of those that were moved."""
    keys, id = request.keys, request.ledger.id
    return keys.claim(id, request.number), keys.moved_bodies(id, request.number)


def _claim_args(request: ClaimRequest) -> Sequence[Argument]:
    ledger, terms = request.ledger, request.terms
    return (
        ledger.fence,
        request.number,
        terms.limit,
        terms.chunk,
        terms.lease_ms,
        "" if terms.latest_ms is None else terms.latest_ms,
        terms.ttl_s,
        ledger.mode,
        int(request.create),
        terms.max_bytes,
        terms.call_bytes,
    )


def _unknown(request: TakeOverRequest) -> Ledger:
    """Return the ledger with what is known before it is taken over."""
    return Ledger(request.keys, request.ledger, "lease", group=request.group)


def _decode_ledger(request: TakeOverRequest, reply: Reply) -> Ledger:
    pairs = iter(reply)
    fields = {name.decode(): value for name, value in zip(pairs, pairs, strict=True)}
    return Ledger(
        request.keys,
        request.ledger,
        "move" if fields.get("mode") == b"move" else "lease",
        fence=int(fields["fence"]),
        acked=int(fields.get("acked", 0)),
        open=int(fields.get("open", 0)),
        sealed={
            int(name.removeprefix("sealed:")): int(value)
            for name, value in fields.items()
            if name.startswith("sealed:")
        },
        group=request.group,
    )


def _renew_args(request: RenewRequest) -> Sequence[Argument]:
    ledger = request.ledger
    lease = (request.lease_ms, request.ttl_s, ledger.mode)
    return (ledger.fence, request.start, request.count, *lease)


def _dead_letter_args(request: DeadLetterRequest) -> Sequence[Argument]:
    letters = (value for letter in request.letters for value in letter)
    return (request.ledger.fence, request.dead.queue, request.dead.wake, *letters)


def _decode_page(_: ReadRequest, reply: Reply) -> ClaimPage:
    return ClaimPage(reply[0], reply[1], list(map(Run.of, reply[2])), *reply[3:])


CLAIM: Codec[ClaimRequest, Claimed] = Codec(
    kind=claims.CLAIM,
    script="claim",
    keys=lambda r: (*r.keys.with_deliveries, r.ledger.key, *_claim(r), r.ledger.group_key),
    args=_claim_args,
    decode=lambda _, reply: Claimed(reply[0], reply[1] == 1, reply[2] == 1),
    fail=_failure,
)
TAKE_OVER: Codec[TakeOverRequest, Ledger] = Codec(
    kind=claims.TAKE_OVER,
    script="claim_open",
    keys=lambda r: (_unknown(r).key, _unknown(r).group_key),
    args=lambda r: (r.ledger, int(bool(r.group))),
    decode=_decode_ledger,
    fail=lambda r, code: _unknown(r).failure(code),
)
SET_GROUP: Codec[SetGroupRequest, str | None] = Codec(
    kind=claims.SET_GROUP,
    script="claim_group",
    keys=lambda r: (r.ledger.group_key, r.ledger.key),
    args=lambda r: (r.expected, r.ledger.id, r.ledger.mode, r.ttl_s),
    decode=lambda _, reply: None if reply[0] == 1 else reply[1].decode(),
    fail=_failure,
)
GET_GROUP: Codec[GetGroupRequest, str] = Codec(
    kind=claims.GET_GROUP,
    script="claim_group",
    keys=lambda r: (r.keys.group(r.group), r.keys.ledger("")),
    args=lambda _: ("?", "", "lease", 0),
    decode=lambda _, reply: "" if reply[0] == 1 else reply[1].decode(),
)
READ: Codec[ReadRequest, ClaimPage] = Codec(
    kind=claims.READ,
    script="claim_read",
    keys=lambda r: (r.keys.zset, r.keys.hash, *_claim(r)),
    args=lambda r: (r.start, r.stop, int(r.bodies), r.ledger.mode, r.max_bytes, int(r.headers)),
    decode=_decode_page,
    fail=_failure,
)
RENEW: Codec[RenewRequest, Renewed] = Codec(
    kind=claims.RENEW,
    script="claim_renew",
    keys=lambda r: (r.keys.zset, r.keys.hash, r.ledger.key, _claim(r)[0], r.ledger.group_key),
    args=_renew_args,
    decode=lambda _, reply: Renewed(*reply),
    fail=_failure,
)
ACKNOWLEDGE: Codec[AcknowledgeRequest, int] = Codec(
    kind=claims.ACKNOWLEDGE,
    script="claim_ack",
    keys=lambda r: (*r.keys.with_deliveries, r.ledger.key, *_claim(r)),
    args=lambda r: (r.ledger.fence, r.number, r.count),
    decode=lambda _, reply: int(reply),
    fail=_failure,
)
RELEASE: Codec[ReleaseRequest, Released] = Codec(
    kind=claims.RELEASE,
    script="claim_release",
    keys=lambda r: (*r.keys.with_deliveries, r.ledger.key, *_claim(r)),
    args=lambda r: (r.keys.wake, r.ledger.fence, r.number, r.count, r.max_bytes),
    decode=lambda _, reply: Released(*reply),
    fail=_failure,
)
DEAD_LETTER: Codec[DeadLetterRequest, int] = Codec(
    kind=claims.DEAD_LETTER,
    script="claim_dead_letter",
    keys=lambda r: (
        *(*r.keys.with_deliveries, r.ledger.key, _claim(r)[0]),
        *(*r.dead.with_deliveries, r.dead.namespace.index),
    ),
    args=_dead_letter_args,
    decode=lambda _, reply: int(reply),
    fail=_failure,
)
FORGET: Codec[ForgetRequest, int] = Codec(
    kind=claims.FORGET,
    script="discard",
    keys=lambda r: (r.ledger.key,),
    decode=lambda _, reply: int(reply),
    fail=_failure,
)
BACKLOG: Codec[BacklogRequest, Backlog] = Codec(
    kind=claims.BACKLOG,
    script="backlog",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    decode=lambda _, reply: Backlog(*reply),
)

CODECS: tuple[Codec[Any, Any], ...] = (
    *(CLAIM, TAKE_OVER, SET_GROUP, GET_GROUP, READ, RENEW),
    *(ACKNOWLEDGE, RELEASE, DEAD_LETTER, FORGET, BACKLOG),
)
