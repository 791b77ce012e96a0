"""Operations that only read: messages by state or all of them, reasons of rejections."""

from __future__ import annotations

from typing import NamedTuple

from ...models import Message, PendingMessage, ScannedMessage
from ..keys import QueueKeys
from ..operation import Kind, Operation, QueueRequest


class ReasonRequest(QueueRequest, frozen=True):
    """Read why a message was rejected into this queue; ``None`` if no reason is known."""

    id: str


class PeekRequest(QueueRequest, frozen=True):
    """Read *count* ready messages from rank *start* on; a negative one counts from the end."""

    start: int
    count: int


class PendingRequest(QueueRequest, frozen=True):
    """Read leased messages, looking at up to 1000 hidden ones from rank *at* on."""

    #: Number of leased messages to skip first.
    skip: int
    #: Negative to walk from the end towards the front.
    count: int
    at: int


class PendingPage(NamedTuple):
    """One page of leased messages, and where the next page starts (``None``: it was the last)."""

    messages: list[PendingMessage]
    next_at: int | None
    skip: int


#: A place in the order of a queue: a rank, or the score and the id of the message before it.
Place = tuple[int] | tuple[str | bytes, str | bytes]


class ScanRequest(QueueRequest, frozen=True):
    """Read up to *count* messages of any state, in the order of their visible-at."""

    count: int
    at: Place


class ScanPage(NamedTuple):
    """One page of a walk over all messages, and where the next one starts (``None``: the end)."""

    messages: list[ScannedMessage]
    next: Place | None
    #: The server's clock; ``None`` if a broker has answered, which does not say.
    now_ms: float | None = None


class FindRequest(QueueRequest, frozen=True):
    """Read one message of any state; the page has one message, or none."""

    id: str


REASON: Kind[str | None] = Kind(name="reason", repeatable=True)
PEEK: Kind[list[Message]] = Kind(name="peek", repeatable=True)
PENDING: Kind[PendingPage] = Kind(name="pending", repeatable=True)
SCAN: Kind[ScanPage] = Kind(name="scan", repeatable=True)
FIND: Kind[ScanPage] = Kind(name="find", repeatable=True)


def reason(keys: QueueKeys, id: str) -> Operation[str | None]:
    """Read why a message was rejected into this queue."""
    return Operation(REASON, ReasonRequest(keys, id))


def peek(keys: QueueKeys, start: int, count: int) -> Operation[list[Message]]:
    """Read ready messages without leasing them."""
    return Operation(PEEK, PeekRequest(keys, start, count))


def pending(keys: QueueKeys, *, skip: int, count: int, at: int) -> Operation[PendingPage]:
    """Read leased messages, looking at up to 1000 hidden ones from rank *at* on.

    A negative *count* walks from the end towards the front.
    """
    return Operation(PENDING, PendingRequest(keys, skip, count, at))


def scan(keys: QueueKeys, count: int, *, at: Place) -> Operation[ScanPage]:
    """Read up to *count* messages of any state, in the order of their visible-at."""
    return Operation(SCAN, ScanRequest(keys, count, at))


def find(keys: QueueKeys, id: str) -> Operation[ScanPage]:
    """Read one message of any state by its id."""
    return Operation(FIND, FindRequest(keys, id))
