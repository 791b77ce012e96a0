"""Operations of the doctor, which find and repair damage: keys, ids, fields, messages, server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...models import FindingKind
from ..keys import Namespace, QueueKeys
from ..operation import Kind, Operation, QueueRequest
from .queues import NamespaceRequest

#: Messages that one call looks at or repairs; the server is busy with it for about a millisecond.
MESSAGES_PAGE = 50
#: Keys that one call looks at in search of queues.
KEYS_PAGE = 1000
#: Fields that are read at first, where the server cannot leave the bodies out.
FEWEST_FIELDS = 10


class ServerReply(NamedTuple):
    """The server's clock and its ``INFO``, or why the server refuses that."""

    now_ms: float
    info: dict[str, str]
    refused: str


class KeysPage(NamedTuple):
    """Keys of a namespace, and the cursor of the next page. ``refused``: why there are none."""

    keys: list[bytes]
    #: Call records, reasons and dedup markers among them that have another type.
    not_strings: list[bytes]
    cursor: bytes
    refused: str


class Fault(NamedTuple):
    """Something that is wrong with the keys of a queue, and whether it was repaired."""

    kind: FindingKind
    repaired: bool
    what: str


class QueueState(NamedTuple):
    """State of the keys of a queue."""

    #: True if its messages can be examined.
    readable: bool
    ids: int
    fields: int
    vt: bytes
    delay: bytes
    faults: list[Fault]


class Tally(NamedTuple):
    """A number, and a few samples of what was counted."""

    number: int
    samples: list[str]


class IdsPage(NamedTuple):
    """Findings of one page of ids."""

    cursor: bytes
    looked_at: int
    suspects: list[bytes]
    long_hidden: Tally
    sent_in_future: Tally


class FieldsCursor(NamedTuple):
    """Position of a walk through the fields of a hash."""

    cursor: bytes = b"0"
    #: True if the server can leave the bodies out (``HSCAN NOVALUES``).
    names_only: bool = True
    #: Number of fields to read at once if the bodies come with them.
    few: int = FEWEST_FIELDS


class FieldsPage(NamedTuple):
    """Findings of one page of fields."""

    next: FieldsCursor
    looked_at: int
    suspects: list[bytes]
    unknown: Tally


class ServerRequest(NamespaceRequest, frozen=True):
    """Ask the node that holds the namespace for its clock and its ``INFO``."""


class KeysRequest(NamespaceRequest, frozen=True):
    """Find keys that begin with the namespace, one page from *cursor* on."""

    cursor: bytes


class ExamineRequest(QueueRequest, frozen=True):
    """Examine the keys of a queue, and repair them if *repair* is set."""

    repair: bool


class IdsRequest(QueueRequest, frozen=True):
    """Examine one page of ids; changes nothing."""

    cursor: bytes
    max_hidden_ms: int


class FieldsRequest(QueueRequest, frozen=True):
    """Examine one page of the fields of the hash; changes nothing."""

    at: FieldsCursor


class ExamineMessagesRequest(QueueRequest, frozen=True):
    """Examine single messages, and repair them if *repair* is set.

    The result has the kind of finding for each id, or ``None``.
    """

    suspects: Sequence[bytes]
    repair: bool
    max_hidden_ms: int
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
    """Ask the node that holds the namespace for its clock and its ``INFO``."""
    return Operation(SERVER, ServerRequest(namespace))


def keys(namespace: Namespace, cursor: bytes) -> Operation[KeysPage]:
    """Find keys that begin with the namespace, one page from *cursor* on."""
    return Operation(KEYS, KeysRequest(namespace, cursor))


def queue(keys: QueueKeys, *, repair: bool) -> Operation[QueueState]:
    """Examine the keys of a queue, and repair them if *repair* is set."""
    return Operation(REPAIR if repair else EXAMINE, ExamineRequest(keys, repair))


def ids(keys: QueueKeys, cursor: bytes, max_hidden_ms: int) -> Operation[IdsPage]:
    """Examine one page of ids; changes nothing."""
    return Operation(IDS, IdsRequest(keys, cursor, max_hidden_ms))


def fields(keys: QueueKeys, at: FieldsCursor) -> Operation[FieldsPage]:
    """Examine one page of the fields of the hash; changes nothing."""
    return Operation(FIELDS, FieldsRequest(keys, at))


def messages(
    keys: QueueKeys, suspects: Sequence[bytes], *, repair: bool, max_hidden_ms: int, channel: str
) -> Operation[list[FindingKind | None]]:
    """Examine single messages, and repair them if *repair* is set; the result is as requested."""
    request = ExamineMessagesRequest(keys, suspects, repair, max_hidden_ms, channel)
    return Operation(REPAIR_MESSAGES if repair else EXAMINE_MESSAGES, request)
