"""Encoding for Redis: operations that share a call become one script call, replies become results.

``encode`` runs once per call, so that every attempt sends the same bytes except for the number of
the attempt; above all the same random ids. ``decode`` turns the reply into one result per
operation. Only this package and the scripts know the order of keys and arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...errors import RSMQError
from ..operation import Argument, Kind, Operation, Reply
from ..scripts import Script, load
from . import (
    doctor,
    inspection,
    queues,
    receive,
    rmq,
    rmq_bridge,
    send,
    settle,
    spark_bulk_send,
    spark_claims,
    spark_reasons,
    spark_snapshots,
    topics,
)
from .codec import Codec, Entropy

_MODULES = (
    send, receive, settle, queues, inspection, topics, doctor, spark_claims, spark_bulk_send,
    spark_snapshots, spark_reasons, rmq, rmq_bridge,
)  # fmt: skip
CODECS: dict[Kind[Any], Codec[Any, Any]] = {
    codec.kind: codec for module in _MODULES for codec in module.CODECS
}


class ScriptCall(Struct, frozen=True):
    """An encoded call: the script, and the keys and arguments of every attempt."""

    codec: Codec[Any, Any]
    script: Script
    #: All keys; the last is that of the call record, if there is one.
    keys: list[str]
    #: The arguments, without the numbers of the call and of the attempt.
    args: list[Argument]


def encode(
    operations: Sequence[Operation[Any]], record: str | None, entropy: Entropy
) -> ScriptCall:
    """Encode the call that *operations* share; *record* is the key of its call record, if any."""
    codec = CODECS[operations[0].kind]
    keys, args = codec.encode(operations, entropy)
    if record is not None:
        keys.append(record)
    return ScriptCall(codec, load(codec.script), keys, args)


def decode(operations: Sequence[Operation[Any]], reply: Reply, *, repeated: bool) -> list[Any]:
    """Return the result of each operation, or the error in its place.

    *repeated* means that an earlier attempt may have run. An error that is not an ``RSMQError``
    means that the reply could not be decoded.
    """
    kind = operations[0].kind
    codec = CODECS[kind]
    if isinstance(reply, bytes):
        return failures(operations, reply.decode())
    parts = reply if kind.merge else (reply,)
    if len(parts) != len(operations):
        raise ValueError(f"{len(parts)} replies for {len(operations)} operations")
    read = (codec.decode_repeated if repeated else None) or codec.decode
    results: list[Any] = []
    for operation, part in zip(operations, parts, strict=True):
        try:
            results.append(read(operation.request, part))
        except Exception as error:
            results.append(error)
    return results


def failures(operations: Sequence[Operation[Any]], code: str) -> list[RSMQError]:
    """Return the error of each operation for an error code in place of a reply."""
    fail = CODECS[operations[0].kind].fail
    return [fail(operation.request, code) for operation in operations]
