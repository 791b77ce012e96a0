"""Codecs of ``receive``, ``receive_first``, ``unwait``, ``pop`` and ``recover``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...models import Message
from ..operation import Argument, Reply
from ..operations import messages, recovery
from ..operations.message_values import DeadLettered, Leased, Received
from ..operations.messages import (
    Popped,
    PopRequest,
    ReceiveFirstRequest,
    ReceiveRequest,
    ReceiveSpec,
    UnwaitRequest,
)
from ..operations.recovery import Recovered, RecoverRequest
from .codec import Codec, pairs, read_id, read_messages


def read_received(spec: ReceiveSpec, reply: Reply) -> Received:
    """Decode one part of a receive's reply: vt (ms), hint, (id, body, rc, fr)..., remarks."""
    keys, vt_ms, body_size = spec.keys, reply[0], spec.body_size
    if body_size is not None and len(reply) >= 6:
        body_size.bytes = len(reply[3])
    if len(reply) == 6:
        _, hint, id, body, rc, fr = reply
        return Received([Leased(read_id(id), body, rc, fr, keys, vt_ms)], hint)
    if len(reply) % 4 != 3:
        return Received(
            [
                Leased(read_id(id), body, rc, fr, keys, vt_ms)
                for id, body, rc, fr in _rows(reply[2:], 4)
            ],
            reply[1],
        )
    marks, dead_rows, *texts = reply.pop()
    known = {id: (strikes, excused) for id, strikes, excused in _rows(marks, 3)}
    headers = pairs(*texts) if texts else {}
    leased = [
        Leased(
            *(read_id(id), body, rc, fr, keys, vt_ms),
            *known.get(id, (0, 0)),
            *("", headers.get(id, b"")),
        )
        for id, body, rc, fr in _rows(reply[2:], 4)
    ]
    dead = spec.dead or keys
    dead_lettered = tuple(
        DeadLettered(
            Message(read_id(id), body, rc, fr, headers.get(id, b"")),
            *(keys, dead, why.decode(errors="replace")),
        )
        for id, body, rc, fr, why in _rows(dead_rows, 5)
    )
    return Received(leased, reply[1], dead_lettered=dead_lettered)


def _rows(flat: Reply, width: int) -> Iterable[tuple[Any, ...]]:
    return zip(*[iter(flat)] * width, strict=True)


def _dead_keys(spec: ReceiveSpec) -> tuple[str, str, str]:
    """Return the dead-letter queue's keys; the queue's own ones if it has no limit."""
    return (spec.dead or spec.keys).with_deliveries


def _keys(request: ReceiveRequest | RecoverRequest) -> Sequence[str]:
    spec = request.spec
    if not spec.max_receives:
        return spec.keys.with_deliveries
    return (*spec.keys.with_deliveries, *_dead_keys(spec), spec.keys.namespace.index)


def _receive_head(request: ReceiveRequest) -> tuple[Argument, ...]:
    waiter = request.waiter
    return (request.holder, *request.spec.limit, waiter.name, waiter.cap_ms)


def _first_keys(request: ReceiveFirstRequest) -> Sequence[str]:
    keys = [request.keys.namespace.index]
    for spec in request.specs:
        keys += (*spec.keys.with_deliveries, *_dead_keys(spec))
    return keys


def _first_args(request: ReceiveFirstRequest) -> Sequence[Argument]:
    args: list[Argument] = [request.holder, request.count, *request.waiter]
    for spec in request.specs:
        args += (spec.vt_ms if request.vt_ms < 0 else request.vt_ms, *spec.limit)
    return args


def _decode_first(request: ReceiveFirstRequest, reply: Reply) -> Received:
    specs = request.specs
    if len(reply) == 2:
        raise specs[reply[0] - 1].keys.failure(reply[1].decode())
    pairs = iter(reply[1:])
    leased: list[Leased] = []
    dead_lettered: tuple[DeadLettered, ...] = ()
    for number, part in zip(pairs, pairs, strict=True):
        received = read_received(specs[number - 1], part)
        leased += received.messages
        dead_lettered += received.dead_lettered
    return Received(leased, reply[0], dead_lettered=dead_lettered)


def _recover_args(request: RecoverRequest) -> Sequence[Argument]:
    after = request.after
    place = (0, 0) if after is None else (after.next_at or 0, after.started_ms)
    wanted = (request.count, request.idle_ms, request.vt_ms)
    return (request.holder, *request.spec.limit, *wanted, *place)


def _decode_recovered(request: RecoverRequest, reply: Reply) -> Recovered:
    vt_ms, next_at, started_ms, *rest = reply
    received = read_received(request.spec, [vt_ms, 0, *rest])
    return Recovered(received, None if next_at < 0 else next_at, started_ms)


RECEIVE: Codec[ReceiveRequest, Received] = Codec(
    kind=messages.RECEIVE,
    script="receive",
    keys=_keys,
    head=_receive_head,
    args=lambda r: (r.count, r.vt_ms, r.waiter.pause_ms),
    decode=lambda r, reply: read_received(r.spec, reply),
    took_messages=lambda reply: any(len(part) > 2 for part in reply),
)
RECEIVE_FIRST: Codec[ReceiveFirstRequest, Received] = Codec(
    kind=messages.RECEIVE_FIRST,
    script="receive_first",
    keys=_first_keys,
    args=_first_args,
    decode=_decode_first,
    took_messages=lambda reply: len(reply) > 2,
)
UNWAIT: Codec[UnwaitRequest, int] = Codec(
    kind=messages.UNWAIT,
    script="unwait",
    keys=lambda r: (r.keys.zset,),
    args=lambda r: (r.waiter, int(r.for_good)),
    decode=lambda _, reply: int(reply),
)
POP: Codec[PopRequest, Popped] = Codec(
    kind=messages.POP,
    script="pop",
    keys=lambda r: r.keys.with_deliveries,
    args=lambda r: (r.count,),
    decode=lambda _, reply: Popped(read_messages(reply[1:]), reply[0] == 0),
    took_messages=lambda reply: any(len(part) > 1 for part in reply),
)
RECOVER: Codec[RecoverRequest, Recovered] = Codec(
    kind=recovery.RECOVER,
    script="recover",
    keys=_keys,
    args=_recover_args,
    decode=_decode_recovered,
    took_messages=lambda reply: len(reply) > 3,
)

CODECS: tuple[Codec[Any, Any], ...] = (RECEIVE, RECEIVE_FIRST, UNWAIT, POP, RECOVER)
