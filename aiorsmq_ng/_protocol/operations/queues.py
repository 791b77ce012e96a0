"""Operations on queues as such: create, delete, list, describe, change, purge."""

from __future__ import annotations

from typing import NamedTuple

from ..._common.durations import Seconds
from ...models import QueueAttributes, QueueStats
from .. import argument_checks
from ..keys import Namespace, QueueKeys
from ..operation import Kind, Operation, QueueRequest, Request


class CreateRequest(QueueRequest, frozen=True):
    """Create a queue, or complete a half-made one. The result is True if it did not exist."""

    #: Seconds, seconds, bytes.
    vt: int
    delay: int
    maxsize: int


class ExistsRequest(QueueRequest, frozen=True):
    """Ask if a queue exists. The result is True if it does."""


class DeleteQueueRequest(QueueRequest, frozen=True):
    """Delete a queue and all that belongs to it; ``QueueNotFound`` if it does not exist."""


class NamespaceRequest(Request, frozen=True):
    """A request about a namespace as a whole."""

    namespace: Namespace

    @property
    def keys(self) -> QueueKeys:
        """The keys of the list of queues, in place of a queue's."""
        return self.namespace.queue("QUEUES")


class ListRequest(NamespaceRequest, frozen=True):
    """List names, one page from *cursor* on: of queues or of topics, as the kind says."""

    cursor: bytes


class AttributesRequest(QueueRequest, frozen=True):
    """Describe a queue."""


class SetAttributesRequest(QueueRequest, frozen=True):
    """Change what is stored on a queue, then describe it; ``None`` leaves a value as it is."""

    vt: int | None
    delay: int | None
    maxsize: int | None


class StatsRequest(QueueRequest, frozen=True):
    """Describe a queue with its consumers, and count the messages in *dead*."""

    dead: QueueKeys


class PurgeRequest(QueueRequest, frozen=True):
    """Remove up to 1000 messages without a holder, from rank *at* on.

    The result is how many were removed, the next rank or -1, and how many there were before.
    """

    at: int


class PurgeAllRequest(QueueRequest, frozen=True):
    """Remove every message, leased ones too. The result is their number."""


#: The cursor of the first page, and of the one after the last.
FIRST_PAGE = b"0"


class NamesPage(NamedTuple):
    """Some of the names, and where the next page begins."""

    cursor: bytes
    names: list[str]


CREATE: Kind[bool] = Kind(name="create_queue", numbered=True)
EXISTS: Kind[bool] = Kind(name="exists", repeatable=True)
DELETE: Kind[None] = Kind(name="delete_queue", numbered=True)
LIST_QUEUES: Kind[NamesPage] = Kind(name="list_queues", repeatable=True)
ATTRIBUTES: Kind[QueueAttributes] = Kind(name="attributes", repeatable=True)
SET_ATTRIBUTES: Kind[QueueAttributes] = Kind(name="set_attributes", repeatable=True, numbered=True)
STATS: Kind[QueueStats] = Kind(name="stats", repeatable=True)
PURGE: Kind[tuple[int, int, int]] = Kind(name="purge", numbered=True)
PURGE_ALL: Kind[int] = Kind(name="purge_all", numbered=True)


def create(keys: QueueKeys, *, vt: Seconds, delay: Seconds, maxsize: int) -> Operation[bool]:
    """Create a queue, or complete a half-made one; the result is True if it did not exist."""
    request = CreateRequest(
        keys,
        argument_checks.whole_seconds("vt", vt),
        argument_checks.whole_seconds("delay", delay),
        argument_checks.check_maxsize(maxsize),
    )
    return Operation(CREATE, request)


def exists(keys: QueueKeys) -> Operation[bool]:
    """Ask if a queue exists; the result is True if it does."""
    return Operation(EXISTS, ExistsRequest(keys))


def delete(keys: QueueKeys) -> Operation[None]:
    """Delete a queue and all that belongs to it.

    Waiters stay registered until their next receive: if the queue is created again by then, they
    get a wake-up.
    """
    return Operation(DELETE, DeleteQueueRequest(keys))


def list_queues(namespace: Namespace, cursor: bytes) -> Operation[NamesPage]:
    """List the names of queues, from *cursor* on."""
    return Operation(LIST_QUEUES, ListRequest(namespace, cursor))


def attributes(keys: QueueKeys) -> Operation[QueueAttributes]:
    """Describe a queue."""
    return Operation(ATTRIBUTES, AttributesRequest(keys))


def set_attributes(
    keys: QueueKeys,
    *,
    vt: Seconds | None,
    delay: Seconds | None,
    maxsize: int | None,
) -> Operation[QueueAttributes]:
    """Change what is stored on a queue, then describe it."""
    request = SetAttributesRequest(
        keys,
        None if vt is None else argument_checks.whole_seconds("vt", vt),
        None if delay is None else argument_checks.whole_seconds("delay", delay),
        None if maxsize is None else argument_checks.check_maxsize(maxsize),
    )
    return Operation(SET_ATTRIBUTES, request)


def stats(keys: QueueKeys, dead: QueueKeys) -> Operation[QueueStats]:
    """Describe a queue with its dead letters and its consumers."""
    return Operation(STATS, StatsRequest(keys, dead))


def purge(keys: QueueKeys, at: int) -> Operation[tuple[int, int, int]]:
    """Remove up to 1000 messages without holder: (removed, next rank or -1, number before)."""
    return Operation(PURGE, PurgeRequest(keys, at))


def purge_all(keys: QueueKeys) -> Operation[int]:
    """Remove every message, leased ones too; the result is their number."""
    return Operation(PURGE_ALL, PurgeAllRequest(keys))
