"""Codecs of the doctor: keys, ids, fields, messages, the server."""

from __future__ import annotations

import re
from typing import Any

from ...models import FindingKind
from ..operation import Reply
from ..operations import doctor
from ..operations.doctor import (
    FEWEST_FIELDS,
    KEYS_PAGE,
    ExamineMessagesRequest,
    ExamineRequest,
    Fault,
    FieldsCursor,
    FieldsPage,
    FieldsRequest,
    IdsPage,
    IdsRequest,
    KeysPage,
    KeysRequest,
    QueueState,
    ServerReply,
    ServerRequest,
    Tally,
)
from .codec import Codec, read_id

#: What one call examines, in about a millisecond of the server's time.
_IDS_PAGE, _FIELDS_PAGE = 125, 250
#: Bytes of bodies that one call may read, if the server cannot leave them out.
_PAGE_BYTES = 131_072


def _decode_server(_: ServerRequest, reply: Reply) -> ServerReply:
    lines = reply[2].decode(errors="replace").splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line and line[0] != "#")
    refused = reply[3].decode(errors="replace")
    return ServerReply(reply[0] * 1000 + reply[1] / 1000, info, refused)


def _pattern(request: KeysRequest) -> str:
    return re.sub(r"([*?\[\]\\])", r"\\\1", request.namespace.name) + ":*"


def _decode_keys(_: KeysRequest, reply: Reply) -> KeysPage:
    if not reply[0]:
        return KeysPage([], [], b"0", reply[1].decode(errors="replace"))
    cursor, found, not_strings = reply
    return KeysPage(found, not_strings, cursor, "")


def _decode_queue(_: ExamineRequest, reply: Reply) -> QueueState:
    readable, ids, fields, vt, delay, *rest = reply
    rows = iter(rest)
    faults = [
        Fault(kind.decode(), bool(repaired), what.decode(errors="backslashreplace"))
        for kind, repaired, what in zip(rows, rows, rows, strict=True)
    ]
    return QueueState(bool(readable), ids, fields, vt, delay, faults)


def _decode_ids(_: IdsRequest, reply: Reply) -> IdsPage:
    cursor, looked_at, suspects, hidden, future = reply
    return IdsPage(cursor, looked_at, suspects, _tally(hidden), _tally(future))


def _decode_fields(request: FieldsRequest, reply: Reply) -> FieldsPage:
    cursor, looked_at, names_only, size, suspects, unknown = reply
    few = request.at.few
    if not names_only:
        average = size / looked_at if looked_at else 0
        affordable = int(_PAGE_BYTES / max(1, average))
        few = max(FEWEST_FIELDS, min(_FIELDS_PAGE, 2 * few, affordable))
    place = FieldsCursor(cursor, bool(names_only), few)
    return FieldsPage(place, looked_at, suspects, _tally(unknown))


def _decode_findings(_: ExamineMessagesRequest, reply: Reply) -> list[FindingKind | None]:
    return [kind.decode() or None for kind in reply]


def _tally(reply: Reply) -> Tally:
    return Tally(reply[0], [read_id(id) for id in reply[1:]])


SERVER: Codec[ServerRequest, ServerReply] = Codec(
    kind=doctor.SERVER,
    script="doctor_server",
    keys=lambda r: (r.namespace.index,),
    decode=_decode_server,
)
KEYS: Codec[KeysRequest, KeysPage] = Codec(
    kind=doctor.KEYS,
    script="doctor_keys",
    keys=lambda r: (r.namespace.index,),
    args=lambda r: (r.cursor, _pattern(r), KEYS_PAGE),
    decode=_decode_keys,
)
EXAMINE, REPAIR = (
    Codec(
        kind=kind,
        script="doctor_queue",
        keys=lambda r: (r.keys.namespace.index, r.keys.zset, r.keys.hash),
        args=lambda r: (r.keys.queue, int(r.repair)),
        decode=_decode_queue,
    )
    for kind in (doctor.EXAMINE, doctor.REPAIR)
)
IDS: Codec[IdsRequest, IdsPage] = Codec(
    kind=doctor.IDS,
    script="doctor_ids",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    args=lambda r: (r.cursor, _IDS_PAGE, r.max_hidden_ms),
    decode=_decode_ids,
)
FIELDS: Codec[FieldsRequest, FieldsPage] = Codec(
    kind=doctor.FIELDS,
    script="doctor_fields",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    args=lambda r: (r.at.cursor, _FIELDS_PAGE, int(r.at.names_only), r.at.few),
    decode=_decode_fields,
)
EXAMINE_MESSAGES, REPAIR_MESSAGES = (
    Codec(
        kind=kind,
        script="doctor_messages",
        keys=lambda r: r.keys.with_deliveries,
        args=lambda r: (r.channel, int(r.repair), r.max_hidden_ms, *r.suspects),
        decode=_decode_findings,
    )
    for kind in (doctor.EXAMINE_MESSAGES, doctor.REPAIR_MESSAGES)
)

CODECS: tuple[Codec[Any, Any], ...] = (
    *(SERVER, KEYS, EXAMINE, REPAIR, IDS, FIELDS),
    *(EXAMINE_MESSAGES, REPAIR_MESSAGES),
)
