"""Operations on messages: send, receive, pop, settle, move, look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import LeaseLost, MessageTooLong, SendUnknown
from ..ids import SUFFIX_LENGTH, suffixes
from ..models import Message, PendingMessage
from .keys import QueueKeys
from .operation import Argument, Operation, Reply
from .queues import failures
from .scripts import load

#: How long the reason of a rejection is kept: 14 days.
REASON_TTL_S = 14 * 86400

_SEND = load("send")
_RECEIVE = load("receive")
_POP = load("pop")
_DELETE = load("delete")
_VISIBILITY = load("visibility")


class Receipt(NamedTuple):
    """Proof of one delivery. Every RSMQ client counts ``rc`` up, so an older receipt shows."""

    id: str
    rc: int
    fr: int


class Leased(NamedTuple):
    """One leased message as the script returned it."""

    id: str
    body: bytes
    rc: int
    fr: int

    @property
    def receipt(self) -> Receipt:
        """The proof of this delivery."""
        return Receipt(self.id, self.rc, self.fr)


class Received(NamedTuple):
    """What a receive found. ``messages`` may be fewer than asked for, or none."""

    messages: list[Leased]
    #: The queue they are from.
    keys: QueueKeys
    #: The lease granted, in milliseconds.
    vt_ms: int
    #: Ready messages that were left for others.
    left: int
    #: Nothing found: milliseconds until a message becomes visible, -1 if the queue is empty.
    next_visible_ms: int


def send(
    keys: QueueKeys, bodies: Sequence[bytes], *, delay_ms: int, entropy: bytes, channel: str
) -> Operation[list[str]]:
    """Store *bodies* in order, all or none; *entropy* holds 22 random bytes for each."""
    if len(entropy) != SUFFIX_LENGTH * len(bodies):
        raise ValueError("22 bytes of entropy are needed per body")
    args: list[Argument] = [delay_ms, len(bodies)]
    for suffix, body in zip(suffixes(entropy), bodies, strict=True):
        args += (suffix, body)

    def parse(reply: Reply) -> list[str]:
        _check_size(keys, reply)
        return [id.decode() for id in reply]

    return Operation(
        script=_SEND,
        keys=(keys.zset, keys.hash),
        head=(channel,),
        args=tuple(args),
        parse=parse,
        fail=failures(keys),
        merge=True,
        weight=len(bodies),
        size=sum(map(len, bodies)),
        lost=SendUnknown,
    )


def receive(keys: QueueKeys, count: int, *, vt_ms: int) -> Operation[Received]:
    """Lease up to *count* ready messages. Undone by making them visible again."""
    return Operation(
        script=_RECEIVE,
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(count, vt_ms),
        parse=lambda reply: _received(keys, reply),
        fail=failures(keys),
        merge=True,
        weight=count,
        undo=give_back,
    )


def receive_first(queues: Sequence[QueueKeys], *, vt_ms: int) -> Operation[Received]:
    """Lease one message from the first of *queues* that has a ready one."""

    def parse(reply: Reply) -> Received:
        number, found = reply
        keys = queues[max(number - 1, 0)]
        if isinstance(found, bytes):
            raise failures(keys)(found.decode())
        return _received(keys, found)

    return Operation(
        script=load("receive_first"),
        keys=tuple(key for k in queues for key in (k.zset, k.hash, k.deliveries)),
        args=(vt_ms,),
        parse=parse,
        fail=failures(queues[0]),
        undo=give_back,
    )


def give_back(received: Received) -> list[Operation[bool]]:
    """Make messages visible again that were taken for a caller who is not there any more."""
    keys = received.keys
    return [
        visibility(keys, m.id, vt_ms=0, receipt=m.receipt, channel=keys.wake)
        for m in received.messages
    ]


class Source(NamedTuple):
    """Where a receiver takes messages from: one queue, or several in order of priority."""

    #: Build the operation that leases up to so many messages for so many milliseconds.
    receive: Callable[[int, int], Operation[Received]]
    #: Channels on which arrivals are announced.
    channels: tuple[str, ...]


def source(queues: Sequence[QueueKeys]) -> Source:
    """Return the source for one queue or several."""
    channels = tuple(channel for keys in queues for channel in (keys.realtime, keys.wake))
    if len(queues) == 1:
        return Source(lambda count, vt_ms: receive(queues[0], count, vt_ms=vt_ms), channels)
    return Source(lambda _count, vt_ms: receive_first(queues, vt_ms=vt_ms), channels)


def pop(keys: QueueKeys, count: int) -> Operation[list[Message]]:
    """Take and delete up to *count* ready messages: at most once, nothing brings them back."""
    return Operation(
        script=_POP,
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(count,),
        parse=_messages,
        fail=failures(keys),
        merge=True,
        weight=count,
    )


def delete(keys: QueueKeys, ids: Sequence[str]) -> Operation[list[str]]:
    """Delete messages by id, whoever holds them; the result is those that were there."""
    args: list[Argument] = [len(ids)]
    for id in ids:
        args += (id, "", "")
    return Operation(
        script=_DELETE,
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=tuple(args),
        parse=lambda reply: [id for id, done in zip(ids, reply, strict=True) if done == 1],
        fail=failures(keys),
        merge=True,
        weight=len(ids),
    )


def ack(keys: QueueKeys, receipt: Receipt) -> Operation[None]:
    """Delete one message if *receipt* is the newest; ``LeaseLost`` otherwise."""
    return Operation(
        script=_DELETE,
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(1, *receipt),
        parse=lambda reply: _settled(keys, receipt, reply[0]),
        fail=failures(keys),
        merge=True,
    )


def visibility(
    keys: QueueKeys, id: str, *, vt_ms: int, channel: str, receipt: Receipt | None = None
) -> Operation[bool]:
    """Make a message visible in *vt_ms* from now; fenced if a receipt is given.

    Without a receipt the result tells whether the message was there; with one, ``LeaseLost``.
    """

    def parse(reply: Reply) -> bool:
        if receipt is not None:
            _settled(keys, receipt, reply)
        return bool(reply == 1)

    return Operation(
        script=_VISIBILITY,
        keys=(keys.zset, keys.hash),
        head=(channel,),
        args=(*(receipt or (id, "", "")), vt_ms),
        parse=parse,
        fail=failures(keys),
        merge=True,
        repeatable=True,
    )


def forward(
    keys: QueueKeys, receipt: Receipt, target: QueueKeys, *, delay_ms: int, channel: str
) -> Operation[None]:
    """Move one message to *target*, where it starts anew with no receives."""
    return _move(keys, receipt, target, channel, (delay_ms, "0", "", REASON_TTL_S))


def reject(
    keys: QueueKeys, receipt: Receipt, target: QueueKeys, *, reason: str, channel: str
) -> Operation[None]:
    """Move one message to the dead-letter queue *target*, with its ``rc`` and ``fr``."""
    return _move(keys, receipt, target, channel, (0, "1", reason, REASON_TTL_S))


def reason(keys: QueueKeys, id: str) -> Operation[str | None]:
    """Read why a message was rejected into this queue."""
    return Operation(
        script=load("reason"),
        keys=(keys.reason(id),),
        args=(),
        parse=lambda reply: None if reply[0] is None else reply[0].decode(errors="replace"),
        fail=failures(keys),
        repeatable=True,
    )


def peek(keys: QueueKeys, start: int, count: int) -> Operation[list[Message]]:
    """Read ready messages without leasing them."""
    return Operation(
        script=load("peek"),
        keys=(keys.zset, keys.hash),
        args=(start, count),
        parse=_messages,
        fail=failures(keys),
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
        messages = [PendingMessage(_id(id), *rest) for id, *rest in zip(*[rows] * 6, strict=True)]
        return PendingPage(messages, None if reply[0] < 0 else reply[0], reply[1])

    return Operation(
        script=load("pending"),
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(skip, count, at),
        parse=parse,
        fail=failures(keys),
        repeatable=True,
    )


def _move(
    keys: QueueKeys,
    receipt: Receipt,
    target: QueueKeys,
    channel: str,
    how: tuple[Argument, ...],
) -> Operation[None]:
    def parse(reply: Reply) -> None:
        if isinstance(reply, int):
            _settled(keys, receipt, reply)
        else:
            _check_size(target, reply)

    return Operation(
        script=load("move"),
        keys=(
            keys.zset,
            keys.hash,
            keys.deliveries,
            target.zset,
            target.hash,
            target.namespace.index,
            target.reason(receipt.id),
        ),
        args=(*receipt, target.queue, channel, *how),
        parse=parse,
        fail=failures(target),
    )


def _settled(keys: QueueKeys, receipt: Receipt, outcome: int) -> None:
    if outcome != 1:
        raise LeaseLost(keys.queue, receipt.id, gone=outcome == 0)


def _check_size(keys: QueueKeys, reply: Reply) -> None:
    if reply[0] == b"messageTooLong":
        raise MessageTooLong(keys.queue, reply[1], reply[2])


def _messages(reply: Reply) -> list[Message]:
    rows = iter(reply)
    return [
        Message(_id(id), body, rc, fr)
        for id, body, rc, fr in zip(rows, rows, rows, rows, strict=True)
    ]


def _received(keys: QueueKeys, reply: Reply) -> Received:
    if len(reply) == 2:
        return Received([], keys, reply[0], 0, reply[1])
    rows = iter(reply[2:])
    messages = [
        Leased(_id(id), body, rc, fr)
        for id, body, rc, fr in zip(rows, rows, rows, rows, strict=True)
    ]
    return Received(messages, keys, reply[0], reply[1], 0)


def _id(raw: bytes) -> str:
    # Ids are ASCII; one that a foreign program wrote otherwise is shown, not tripped over.
    return raw.decode(errors="backslashreplace")
