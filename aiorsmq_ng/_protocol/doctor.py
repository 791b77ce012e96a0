"""Operations that look for damage and repair it: keys, ids, fields, messages, the server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .keys import Namespace, QueueKeys
from .messages import read_id
from .operation import Operation, Reply
from .scripts import load

#: What one call looks at or repairs; the server is busy with it for about a millisecond.
_IDS_PAGE, _FIELDS_PAGE, MESSAGES_PAGE = 125, 250, 50
#: Keys that one call looks at in search of queues.
KEYS_PAGE = 1000
#: Bytes of bodies that one call may read, where the server cannot leave them out.
_PAGE_BYTES = 131_072
_FEWEST = 10


class ServerReply(NamedTuple):
    """The server's clock, and what it says of itself (empty if it does not)."""

    now_ms: float
    info: dict[str, str]


class KeysPage(NamedTuple):
    """Keys of a namespace, and where to go on. ``refused``: why there are none."""

    keys: list[bytes]
    cursor: bytes
    refused: str


class Fault(NamedTuple):
    """Something that is wrong with the keys of a queue, and whether it was repaired."""

    kind: str
    repaired: bool
    what: str


class QueueState(NamedTuple):
    """The keys of a queue as such."""

    #: Whether its messages can be looked at.
    readable: bool
    ids: int
    fields: int
    vt: bytes
    delay: bytes
    faults: list[Fault]


class Tally(NamedTuple):
    """How many there were, and a few of them."""

    number: int
    samples: list[str]


class IdsPage(NamedTuple):
    """What was noticed about one page of ids."""

    cursor: bytes
    looked_at: int
    suspects: list[bytes]
    long_hidden: Tally
    sent_in_future: Tally


class FieldsCursor(NamedTuple):
    """Where a walk through the fields of a hash stands."""

    cursor: bytes = b"0"
    #: Whether the server may be asked to leave the bodies out.
    names_only: bool = True
    #: How many fields to ask for if bodies are read along with them.
    few: int = _FEWEST


class FieldsPage(NamedTuple):
    """What was noticed about one page of fields."""

    next: FieldsCursor
    looked_at: int
    suspects: list[bytes]
    unknown: Tally


def server(namespace: Namespace) -> Operation[ServerReply]:
    """Ask the node that holds the namespace for its clock and its own account of itself."""

    def parse(reply: Reply) -> ServerReply:
        lines = reply[2].decode(errors="replace").splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line and line[0] != "#")
        return ServerReply(reply[0] * 1000 + reply[1] / 1000, info)

    return Operation(
        script=load("doctor_server"),
        keys=(namespace.index,),
        args=(),
        parse=parse,
        fail=namespace.queue("QUEUES").failure,
        repeatable=True,
    )


def keys(namespace: Namespace, cursor: bytes) -> Operation[KeysPage]:
    """Look for keys that begin with the namespace, one page from *cursor* on."""

    def parse(reply: Reply) -> KeysPage:
        cursor, *found = reply
        if not cursor:
            return KeysPage([], b"0", found[0].decode(errors="replace"))
        return KeysPage(found, cursor, "")

    pattern = re.sub(r"([*?\[\]\\])", r"\\\1", namespace.name) + ":*"
    return Operation(
        script=load("doctor_keys"),
        keys=(namespace.index,),
        args=(cursor, pattern, KEYS_PAGE),
        parse=parse,
        fail=namespace.queue("QUEUES").failure,
        repeatable=True,
    )


def queue(keys: QueueKeys, *, repair: bool) -> Operation[QueueState]:
    """Look at the keys of a queue as such, and repair them if asked to."""

    def parse(reply: Reply) -> QueueState:
        readable, ids, fields, vt, delay, *rest = reply
        rows = iter(rest)
        faults = [
            Fault(kind.decode(), bool(repaired), what.decode(errors="backslashreplace"))
            for kind, repaired, what in zip(rows, rows, rows, strict=True)
        ]
        return QueueState(bool(readable), ids, fields, vt, delay, faults)

    return Operation(
        script=load("doctor_queue"),
        keys=(keys.namespace.index, keys.zset, keys.hash),
        args=(keys.queue, int(repair)),
        parse=parse,
        fail=keys.failure,
        repeatable=not repair,
    )


def ids(keys: QueueKeys, cursor: bytes, horizon_ms: int) -> Operation[IdsPage]:
    """Look at one page of ids; changes nothing."""

    def parse(reply: Reply) -> IdsPage:
        cursor, looked_at, suspects, hidden, future = reply
        return IdsPage(cursor, looked_at, suspects, _tally(hidden), _tally(future))

    return Operation(
        script=load("doctor_ids"),
        keys=(keys.zset, keys.hash),
        args=(cursor, _IDS_PAGE, horizon_ms),
        parse=parse,
        fail=keys.failure,
        repeatable=True,
    )


def fields(keys: QueueKeys, at: FieldsCursor) -> Operation[FieldsPage]:
    """Look at one page of the fields of the hash; changes nothing."""

    def parse(reply: Reply) -> FieldsPage:
        cursor, looked_at, names_only, size, suspects, unknown = reply
        few = at.few
        if not names_only:
            average = size / looked_at if looked_at else 0
            few = max(_FEWEST, min(_FIELDS_PAGE, 2 * at.few, int(_PAGE_BYTES / max(1, average))))
        place = FieldsCursor(cursor, bool(names_only), few)
        return FieldsPage(place, looked_at, suspects, _tally(unknown))

    return Operation(
        script=load("doctor_fields"),
        keys=(keys.zset, keys.hash),
        args=(at.cursor, _FIELDS_PAGE, int(at.names_only), at.few),
        parse=parse,
        fail=keys.failure,
        repeatable=True,
    )


def messages(
    keys: QueueKeys, suspects: Sequence[bytes], *, repair: bool, horizon_ms: int, channel: str
) -> Operation[list[str]]:
    """Look at messages closer and repair them if asked to; per id what was wrong, or nothing."""
    return Operation(
        script=load("doctor_messages"),
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(channel, int(repair), horizon_ms, *suspects),
        parse=lambda reply: [kind.decode() for kind in reply],
        fail=keys.failure,
        repeatable=not repair,
    )


def _tally(reply: Reply) -> Tally:
    return Tally(reply[0], [read_id(id) for id in reply[1:]])
