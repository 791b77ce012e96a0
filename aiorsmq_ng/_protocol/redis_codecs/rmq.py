"""Codecs of the operations on queues of rmq."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..operation import Argument, Operation, Reply
from ..operations.rmq import messages, registry
from ..operations.rmq.messages import (
    DrainRequest,
    Lengths,
    LengthsRequest,
    PublishRequest,
    PurgeRequest,
    Retired,
    RetireRequest,
    ReturnRequest,
    SettleRequest,
    TakeRequest,
    Unacked,
    UnackedRequest,
)
from ..operations.rmq.registry import (
    HEARTBEAT_TTL_S,
    AliveRequest,
    BeatRequest,
    MemberRequest,
    MembersRequest,
)
from .codec import Codec, Entropy, Words


def _take_keys(request: TakeRequest) -> Sequence[str]:
    keys = request.keys
    lists = (keys.ready, keys.unacked(request.connection))
    return lists if keys.layout.cluster else (*lists, keys.layout.heartbeat(request.connection))


def _retire_keys(request: RetireRequest) -> Sequence[str]:
    keys, layout, name = request.keys, request.keys.layout, request.connection
    own = (keys.unacked(name), keys.ready, keys.consumers(name))
    return own if layout.cluster else (*own, layout.heartbeat(name), layout.consumed(name).key)


def _publications(operations: Sequence[Operation[Any]], _: Entropy) -> Words:
    args: list[Argument] = [len(operations)]
    for operation in operations:
        args += operation.request.payloads
    return [operations[0].request.keys.ready], args


def _payloads(request: SettleRequest) -> Sequence[Argument]:
    return (len(request.payloads), *request.payloads)


def _names(reply: Reply) -> list[str]:
    # Another program may have written names that are no text. As names of files in Python, they are
    # read with surrogate escapes, so that they lead to the same keys again.
    return sorted(name.decode("utf-8", "surrogateescape") for name in reply)


PUBLISH: Codec[PublishRequest, tuple[str, ...]] = Codec(
    kind=messages.RMQ_PUBLISH,
    script="rmq_publish",
    keys=lambda r: (r.keys.ready,),
    decode=lambda _, reply: (),
    encode_all=_publications,
)
TAKE: Codec[TakeRequest, list[bytes] | None] = Codec(
    kind=messages.RMQ_TAKE,
    script="rmq_take",
    keys=_take_keys,
    args=lambda r: (r.count,),
    decode=lambda _, reply: reply,
    took_messages=bool,
)
SETTLE: Codec[SettleRequest, list[bool]] = Codec(
    kind=messages.RMQ_SETTLE,
    script="rmq_settle",
    keys=lambda r: (r.keys.unacked(r.connection), r.target),
    head=lambda r: (r.where,),
    args=_payloads,
    decode=lambda _, reply: [done == 1 for done in reply],
)
UNACKED: Codec[UnackedRequest, Unacked] = Codec(
    kind=messages.RMQ_UNACKED,
    script="rmq_unacked",
    keys=lambda r: (r.keys.unacked(r.connection), r.keys.consumers(r.connection)),
    args=lambda r: (int(r.payloads),),
    decode=lambda _, reply: Unacked(reply[0], _names(reply[1]), reply[2]),
)
RETURN: Codec[ReturnRequest, int] = Codec(
    kind=messages.RMQ_RETURN,
    script="rmq_return",
    keys=lambda r: (r.source, r.keys.ready),
    args=lambda r: (r.count,),
    decode=lambda _, reply: int(reply),
)
RETIRE: Codec[RetireRequest, Retired] = Codec(
    kind=messages.RMQ_RETIRE,
    script="rmq_retire",
    keys=_retire_keys,
    args=lambda r: (r.count, r.keys.queue, "last" if r.dead else "next"),
    decode=lambda _, reply: Retired(*reply),
)
DRAIN: Codec[DrainRequest, list[bytes]] = Codec(
    kind=messages.RMQ_DRAIN,
    script="rmq_drain",
    keys=lambda r: (r.keys.ready,),
    args=lambda r: (r.count,),
    decode=lambda _, reply: list(reply),
    took_messages=bool,
)
PURGE: Codec[PurgeRequest, int] = Codec(
    kind=messages.RMQ_PURGE,
    script="rmq_purge",
    keys=lambda r: (r.source,),
    args=lambda r: (r.count,),
    decode=lambda _, reply: int(reply),
)
LENGTHS: Codec[LengthsRequest, Lengths] = Codec(
    kind=messages.RMQ_LENGTHS,
    script="rmq_lengths",
    keys=lambda r: (r.keys.ready, r.keys.rejected),
    decode=lambda _, reply: Lengths(*reply),
)
MEMBER: Codec[MemberRequest, int] = Codec(
    kind=registry.RMQ_MEMBER,
    script="rmq_member",
    keys=lambda r: (r.keys.key, r.heartbeat) if r.heartbeat else (r.keys.key,),
    args=lambda r: ("add" if r.add else "remove", r.name),
    decode=lambda _, reply: int(reply),
    # A name that is there, or gone, was added or removed by the first attempt.
    decode_repeated=lambda _, reply: int(reply) or 1,
)
MEMBERS: Codec[MembersRequest, list[str]] = Codec(
    kind=registry.RMQ_MEMBERS,
    script="rmq_members",
    keys=lambda r: (r.keys.key,),
    decode=lambda _, reply: _names(reply),
)
BEAT: Codec[BeatRequest, bool] = Codec(
    kind=registry.RMQ_BEAT,
    script="rmq_beat",
    keys=lambda r: (r.keys.key,),
    args=lambda r: (HEARTBEAT_TTL_S, int(r.first)),
    decode=lambda _, reply: bool(reply),
)
ALIVE: Codec[AliveRequest, bool] = Codec(
    kind=registry.RMQ_ALIVE,
    script="rmq_alive",
    keys=lambda r: (r.keys.key,),
    decode=lambda _, reply: bool(reply),
)

CODECS: tuple[Codec[Any, Any], ...] = (
    *(PUBLISH, TAKE, SETTLE, UNACKED, RETURN, RETIRE, DRAIN, PURGE, LENGTHS),
    *(MEMBER, MEMBERS, BEAT, ALIVE),
)
