"""Operations that look for damage and repair it: keys, ids, fields, messages, the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..models import FindingKind
from .keys import Namespace, QueueKeys
from .operation import Kind, Operation, QueueRequest
from .queues import NamespaceRequest

#: Messages that one call looks at or repairs; the server is busy with it for about a millisecond.
MESSAGES_PAGE = 50
#: Keys that one call looks at in search of queues.
KEYS_PAGE = 1000
#: Fields that are read at first, where the server cannot leave the bodies out.
FEWEST_FIELDS = 10


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

    kind: FindingKind
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
    few: int = FEWEST_FIELDS


class FieldsPage(NamedTuple):
    """What was noticed about one page of fields."""

    next: FieldsCursor
    looked_at: int
    suspects: list[bytes]
    unknown: Tally


class ServerRequest(NamespaceRequest, frozen=True):
    """Ask the node that holds the namespace for its clock and its own account of itself."""


class KeysRequest(NamespaceRequest, frozen=True):
    """Look for keys that begin with the namespace, one page from *cursor* on."""

    cursor: bytes


class ExamineRequest(QueueRequest, frozen=True):
    """Look at the keys of a queue as such, and repair them if asked to."""

    repair: bool


class IdsRequest(QueueRequest, frozen=True):
    """Look at one page of ids; changes nothing."""

    cursor: bytes
    horizon_ms: int


class FieldsRequest(QueueRequest, frozen=True):
    """Look at one page of the fields of the hash; changes nothing."""

    at: FieldsCursor


class ExamineMessagesRequest(QueueRequest, frozen=True):
    """Look at messages closer, and repair them if asked to.

    The result says for each id what was wrong, or nothing.
    """

    suspects: Sequence[bytes]
    repair: bool
    horizon_ms: int
    channel: str


SERVER: Kind[ServerReply] = Kind(name="doctor_server", repeatable=True)
KEYS: Kind[KeysPage] = Kind(name="doctor_keys", repeatable=True)
EXAMINE: Kind[QueueState] = Kind(name="doctor_queue", repeatable=True)
REPAIR: Kind[QueueState] = Kind(name="doctor_repair_queue")
IDS: Kind[IdsPage] = Kind(name="doctor_ids", repeatable=True)
FIELDS: Kind[FieldsPage] = Kind(name="doctor_fields", repeatable=True)
EXAMINE_MESSAGES: Kind[list[FindingKind | None]] = Kind(name="doctor_messages", repeatable=True)
REPAIR_MESSAGES: Kind[list[FindingKind | None]] = Kind(name="doctor_repair_messages")


def server(namespace: Namespace) -> Operation[ServerReply]:
    """Ask the node that holds the namespace for its clock and its own account of itself."""
    return Operation(SERVER, ServerRequest(namespace))


def keys(namespace: Namespace, cursor: bytes) -> Operation[KeysPage]:
    """Look for keys that begin with the namespace, one page from *cursor* on."""
    return Operation(KEYS, KeysRequest(namespace, cursor))


def queue(keys: QueueKeys, *, repair: bool) -> Operation[QueueState]:
    """Look at the keys of a queue as such, and repair them if asked to."""
    return Operation(REPAIR if repair else EXAMINE, ExamineRequest(keys, repair))


def ids(keys: QueueKeys, cursor: bytes, horizon_ms: int) -> Operation[IdsPage]:
    """Look at one page of ids; changes nothing."""
    return Operation(IDS, IdsRequest(keys, cursor, horizon_ms))


def fields(keys: QueueKeys, at: FieldsCursor) -> Operation[FieldsPage]:
    """Look at one page of the fields of the hash; changes nothing."""
    return Operation(FIELDS, FieldsRequest(keys, at))


def messages(
    keys: QueueKeys, suspects: Sequence[bytes], *, repair: bool, horizon_ms: int, channel: str
) -> Operation[list[FindingKind | None]]:
    """Look at messages closer and repair them if asked to; per id what was wrong, or nothing."""
    request = ExamineMessagesRequest(keys, suspects, repair, horizon_ms, channel)
    return Operation(REPAIR_MESSAGES if repair else EXAMINE_MESSAGES, request)
