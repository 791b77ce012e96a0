"""Operations that only look: messages by state or all of them, reasons of rejections."""

from __future__ import annotations

from typing import NamedTuple

from ..models import Message, PendingMessage, ScannedMessage
from .keys import QueueKeys
from .messages import read_id, read_messages
from .operation import Argument, Operation, Reply
from .scripts import load


def reason(keys: QueueKeys, id: str) -> Operation[str | None]:
    """Read why a message was rejected into this queue."""
    return Operation(
        script=load("reason"),
        keys=(keys.reason(id), keys.hash, keys.deliveries),
        args=(id,),
        parse=lambda reply: reply[0].decode(errors="replace") if reply else None,
        fail=keys.failure,
        repeatable=True,
    )


def peek(keys: QueueKeys, start: int, count: int) -> Operation[list[Message]]:
    """Read ready messages without leasing them."""
    return Operation(
        script=load("peek"),
        keys=(keys.zset, keys.hash),
        args=(start, count),
        parse=read_messages,
        fail=keys.failure,
        repeatable=True,
    )


class PendingPage(NamedTuple):
    """One page of leased messages, and where the next page starts (``None``: it was the last)."""

    messages: list[PendingMessage]
    next_at: int | None
    skip: int


def pending(keys: QueueKeys, *, skip: int, count: int, at: int) -> Operation[PendingPage]:
    """Read leased messages, looking at up to 1000 hidden ones from rank *at* on.

    A negative *count* walks from the end towards the front.
    """

    def parse(reply: Reply) -> PendingPage:
        rows = iter(reply[2:])
        messages = [
            PendingMessage(read_id(id), *rest) for id, *rest in zip(*[rows] * 6, strict=True)
        ]
        return PendingPage(messages, None if reply[0] < 0 else reply[0], reply[1])

    return Operation(
        script=load("pending"),
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(skip, count, at),
        parse=parse,
        fail=keys.failure,
        repeatable=True,
    )


#: A place in the order of a queue: a rank, or the score and the id of the message before it.
Place = tuple[Argument] | tuple[Argument, Argument]


class ScanPage(NamedTuple):
    """One page of a walk over all messages, and where the next one starts (``None``: the end)."""

    messages: list[ScannedMessage]
    next: Place | None


def scan(keys: QueueKeys, count: int, *, at: Place) -> Operation[ScanPage]:
    """Read up to *count* messages of any state, in the order of their visible-at."""

    def parse(reply: Reply) -> ScanPage:
        now, score, id = reply[:3]
        rows = iter(reply[3:])
        messages = [
            ScannedMessage(read_id(row[0]), *row[1:4], visible_at=float(row[4]), now=now)
            for row in zip(*[rows] * 5, strict=True)
        ]
        return ScanPage(messages, (score, id) if score else None)

    return Operation(
        script=load("scan"),
        keys=(keys.zset, keys.hash),
        args=(count, *at),
        parse=parse,
        fail=keys.failure,
        repeatable=True,
    )
