"""Operations as Redis knows them: one script call for all operations that share it.

``encode`` is used once per call and driver, so that every attempt sends the same bytes but for the
number of the attempt; above all the same random ids. ``decode`` turns the reply into one result
for each operation. Nothing outside this package and the scripts knows the order of keys and
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...errors import RSMQError
from ..operation import Argument, Kind, Operation, Reply
from ..scripts import Script, load
from . import bulk, claims, doctor, inspect, queues, receive, send, settle, topics
from .codec import Codec, Entropy

CODECS: dict[Kind[Any], Codec[Any, Any]] = {
    codec.kind: codec
    for module in (send, receive, settle, queues, inspect, topics, doctor, claims, bulk)
    for codec in module.CODECS
}


class ScriptCall(Struct, frozen=True):
    """A call encoded: the script, and what all attempts give it."""

    codec: Codec[Any, Any]
    script: Script
    #: All keys, the call record's last.
    keys: list[str]
    #: What follows the number of the call and of the attempt, where calls are numbered.
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

    *repeated*: an earlier attempt may have run. An error other than an ``RSMQError`` says that the
    reply could not be read.
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
    """Return what a code word in place of a reply means for each operation."""
    fail = CODECS[operations[0].kind].fail
    return [fail(operation.request, code) for operation in operations]
