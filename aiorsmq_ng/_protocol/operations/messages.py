"""Operations on messages: send, receive, pop, settle, move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from ...errors import LeaseLost, SendUnknown
from ...models import Message, Sent
from ..keys import QueueKeys
from ..operation import Kind, Operation, QueueRequest, Request
from .message_values import DeadLettered, Dedup, Receipt, Received

#: Characters of a rejection's reason that are stored: some lines for an operator to read.
REASON_LENGTH = 1000


class SendRequest(QueueRequest, frozen=True):
    """Store *bodies* in order, all or none. The result is the ids, in the same order.

    A message with a dedup key is the only one in its request. Its id is a ``Sent``; if
    ``duplicate`` is true, it is the id of the earlier message with that key.
    """

    bodies: Sequence[bytes]
    #: -1 for the queue's stored delay.
    delay_ms: int
    #: Channel on which the arrival is announced.
    channel: str
    dedup: Dedup | None = None
    #: Headers as they are stored: none, one text for all bodies, or one each (empty for none).
    headers: Sequence[bytes] = ()

    @property
    def lane(self) -> tuple[Any, ...]:
        """Sends to one queue share a call."""
        return (self.keys.zset, self.channel)

    @property
    def weight(self) -> int:
        """One per body."""
        return len(self.bodies)

    @property
    def size(self) -> int:
        """The bytes of all bodies."""
        bodies = self.bodies
        size = len(bodies[0]) if len(bodies) == 1 else sum(map(len, bodies))
        return size + sum(map(len, self.headers)) if self.headers else size


def _with_level(ids: list[str], level: str) -> list[str]:
    return [Sent.at(id, level) for id in ids]


SEND: Kind[list[str]] = Kind(
    name="send", merge=True, numbered=True, unknown=SendUnknown, with_durability=_with_level
)


def send(
    keys: QueueKeys,
    bodies: Sequence[bytes],
    *,
    delay_ms: int,
    channel: str,
    dedup: Dedup | None = None,
    headers: Sequence[bytes] = (),
) -> Operation[list[str]]:
    """Store *bodies* in order, all or none."""
    return Operation(SEND, SendRequest(keys, bodies, delay_ms, channel, dedup, headers))


class BodySize:
    """How long bodies of a queue are, by the last one that was received.

    It is a note, and all notes are equal: handles of one queue share what is kept by a spec.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BodySize)

    def __hash__(self) -> int:
        return hash(BodySize)


class ReceiveSpec(NamedTuple):
    """A queue to receive from, and the dead-letter queue for messages received too often."""

    keys: QueueKeys
    #: Deliveries after which a message goes to the dead-letter queue; 0 for no limit.
    max_receives: int = 0
    dead: QueueKeys | None = None
    #: Channel on which arrivals in the dead-letter queue are announced.
    channel: str = ""
    #: Lease in milliseconds for calls that name none; -1 for the queue's stored one.
    vt_ms: int = -1
    #: Return the name of the receiving client; it is stored as the last holder of the message.
    holder: Callable[[], str] = str
    #: Every receive updates it; the calls that receives share are sized by it.
    body_size: BodySize | None = None

    @property
    def limit(self) -> tuple[int, str, str]:
        """Deliveries, dead-letter queue and channel; zero and empty where there is no limit."""
        if not self.max_receives or self.dead is None:
            return (0, "", "")
        return (self.max_receives, self.dead.queue, self.channel)


class Waiter(NamedTuple):
    """The receiver that gets a wake-up when a message arrives after an empty receive."""

    name: str = ""
    #: The longest time between two receives without a wake-up.
    cap_ms: int = 0
    #: Time until its next receive, unless another waiter receives by then; 0 if it does not wait.
    pause_ms: int = 0


_NO_WAITER = Waiter()


class ReceiveRequest(Request, frozen=True):
    """Lease up to *count* ready messages of one queue."""

    spec: ReceiveSpec
    count: int
    #: -1 for the queue's stored lease.
    vt_ms: int
    waiter: Waiter
    holder: str

    @property
    def specs(self) -> tuple[ReceiveSpec, ...]:
        """The one, as in a receive from several queues."""
        return (self.spec,)

    @property
    def keys(self) -> QueueKeys:
        """The queue."""
        return self.spec.keys

    @property
    def lane(self) -> tuple[Any, ...]:
        """Receives of one client from one queue share a call, if their waiter is the same."""
        spec, waiter = self.spec, self.waiter
        return (spec.keys.zset, self.holder, spec.limit, waiter.name, waiter.cap_ms)

    @property
    def weight(self) -> int:
        """The most messages it may take."""
        return self.count

    @property
    def size(self) -> int:
        """The bytes of all bodies, if they are as long as the last one."""
        body_size = self.spec.body_size
        return 0 if body_size is None else self.count * body_size.bytes


class ReceiveFirstRequest(Request, frozen=True):
    """Lease up to *count* messages of several queues of one namespace, in order of priority."""

    specs: tuple[ReceiveSpec, ...]
    count: int
    #: -1 for each queue's own lease: that of its spec, else its stored one.
    vt_ms: int
    waiter: Waiter
    holder: str

    @property
    def keys(self) -> QueueKeys:
        """The first queue."""
        return self.specs[0].keys

    @property
    def weight(self) -> int:
        """The most messages it may take."""
        return self.count


def give_back(received: Received) -> list[Operation[bool]]:
    """Build the operations that make the messages visible again, for a cancelled caller."""
    return [
        visibility(m.keys, m.id, vt_ms=0, receipt=m.receipt, channel=m.keys.wake, how="u")
        for m in received.messages
    ]


_dead_lettered: Callable[[Received], Sequence[DeadLettered]] = attrgetter("dead_lettered")


RECEIVE: Kind[Received] = Kind(
    name="receive",
    merge=True,
    numbered=True,
    undo=give_back,
    events=_dead_lettered,
    with_start_time=Received.at,
)
RECEIVE_FIRST: Kind[Received] = Kind(
    name="receive_first",
    numbered=True,
    undo=give_back,
    events=_dead_lettered,
    with_start_time=Received.at,
)


def receive(
    spec: ReceiveSpec, count: int, *, vt_ms: int, waiter: Waiter = _NO_WAITER
) -> Operation[Received]:
    """Lease up to *count* ready messages. Undone by making them visible again.

    If there is none, the reply says when the *waiter* should receive again. If a message arrives
    before that, the waiter gets a wake-up.
    """
    lease_ms = spec.vt_ms if vt_ms < 0 else vt_ms
    return Operation(RECEIVE, ReceiveRequest(spec, count, lease_ms, waiter, spec.holder()))


def receive_first(
    specs: Sequence[ReceiveSpec], count: int, *, vt_ms: int, waiter: Waiter = _NO_WAITER
) -> Operation[Received]:
    """Lease up to *count* messages: all that the first queue has, then the second, and so on."""
    request = ReceiveFirstRequest(tuple(specs), count, vt_ms, waiter, specs[0].holder())
    return Operation(RECEIVE_FIRST, request)


class ReceiveSource(NamedTuple):
    """Where a receiver takes messages from: one queue, or several in order of priority."""

    #: Build the operation that leases up to *count* messages for *vt_ms*, for a caller that
    #: receives again after *pause_ms* if there is none (0: it does not wait).
    receive: Callable[[int, int, int], Operation[Received]]
    #: Channels on which RSMQ's own clients announce arrivals to every subscriber.
    realtime: tuple[str, ...]
    #: Channels of the waiter's wake-ups, each with the operation that passes a wake-up on to
    #: another waiter.
    calls: dict[str, Operation[int]]
    #: Operations that remove the waiter, even if it has a receive planned.
    leave: tuple[Operation[int], ...]
    #: True if the operations of several waiters share one call.
    shared: bool


def source(specs: Sequence[ReceiveSpec], name: str, cap_ms: int) -> ReceiveSource:
    """Return the source for one queue or several; *name* is the name of its waiter."""
    shared = len(specs) == 1

    def make(count: int, vt_ms: int, pause_ms: int) -> Operation[Received]:
        waiter = Waiter(name, cap_ms, pause_ms)
        if shared:
            return receive(specs[0], count, vt_ms=vt_ms, waiter=waiter)
        return receive_first(specs, count, vt_ms=vt_ms, waiter=waiter)

    # A receiver that does not wait makes the same request again and again.
    known = lru_cache(maxsize=16)(make)

    def ask(count: int, vt_ms: int, pause_ms: int) -> Operation[Received]:
        return make(count, vt_ms, pause_ms) if pause_ms else known(count, vt_ms, 0)

    return ReceiveSource(
        ask,
        tuple(spec.keys.realtime for spec in specs),
        {spec.keys.call(name): unwait(spec.keys, name) for spec in specs},
        tuple(unwait(spec.keys, name, for_good=True) for spec in specs),
        shared,
    )


class UnwaitRequest(QueueRequest, frozen=True):
    """Remove a waiter, and wake other waiters in its place. The result is always 1."""

    waiter: str
    for_good: bool


UNWAIT: Kind[int] = Kind(name="unwait", repeatable=True)


def unwait(keys: QueueKeys, name: str, *, for_good: bool = False) -> Operation[int]:
    """Remove the waiter *name*, and wake another one for the message that it was woken for.

    A waiter whose next receive is not due yet stays registered, unless *for_good*.
    """
    return Operation(UNWAIT, UnwaitRequest(keys, name, for_good))


class Popped(NamedTuple):
    """What a pop took.

    ``again`` is true if it took nothing but read only ids without a body; a message may follow.
    """

    messages: list[Message]
    again: bool


class PopRequest(QueueRequest, frozen=True):
    """Take and delete up to *count* ready messages."""

    count: int

    @property
    def lane(self) -> tuple[Any, ...]:
        """Pops from one queue share a call."""
        return (self.keys.zset,)

    @property
    def weight(self) -> int:
        """The most messages it may take."""
        return self.count


POP: Kind[Popped] = Kind(name="pop", merge=True)


def pop(keys: QueueKeys, count: int) -> Operation[Popped]:
    """Take and delete up to *count* ready messages: at most once, nothing brings them back."""
    return Operation(POP, PopRequest(keys, count))


class DeleteRequest(QueueRequest, frozen=True):
    """Delete messages by id, whether they are leased or not. The result is those that existed.

    After an attempt whose reply was lost, the result is all ids: a message that no longer exists
    was deleted by that attempt, or by another client.
    """

    ids: Sequence[str]

    @property
    def lane(self) -> tuple[Any, ...]:
        """Deletions from one queue share a call."""
        return (self.keys.zset,)

    @property
    def weight(self) -> int:
        """One per id."""
        return len(self.ids)


class AckRequest(QueueRequest, frozen=True):
    """Delete one message if *receipt* is its newest; ``LeaseLost`` otherwise.

    After an attempt whose reply was lost, a message that is gone counts as deleted by it.
    """

    receipt: Receipt

    @property
    def lane(self) -> tuple[Any, ...]:
        """Acknowledgements of one queue share a call."""
        return (self.keys.zset,)


class AckManyRequest(QueueRequest, frozen=True):
    """Delete messages whose receipts are the newest. The result has ``None`` for each deleted one.

    For each other it has the ``LeaseLost`` that says why. After an attempt whose reply was lost, a
    message that is gone counts as deleted by it.
    """

    receipts: Sequence[Receipt]

    @property
    def lane(self) -> tuple[Any, ...]:
        """Acknowledgements of one queue share a call."""
        return (self.keys.zset,)

    @property
    def weight(self) -> int:
        """One per receipt."""
        return len(self.receipts)


DELETE: Kind[list[str]] = Kind(name="delete", merge=True, repeatable=True)
ACK: Kind[None] = Kind(name="ack", merge=True, repeatable=True)
ACK_MANY: Kind[list[LeaseLost | None]] = Kind(name="ack_many", merge=True, repeatable=True)


def delete(keys: QueueKeys, ids: Sequence[str]) -> Operation[list[str]]:
    """Delete messages by id, whether they are leased or not; the result is those that existed."""
    return Operation(DELETE, DeleteRequest(keys, ids))


def ack(keys: QueueKeys, receipt: Receipt) -> Operation[None]:
    """Delete one message if *receipt* is the newest; ``LeaseLost`` otherwise."""
    return Operation(ACK, AckRequest(keys, receipt))


def ack_many(keys: QueueKeys, receipts: Sequence[Receipt]) -> Operation[list[LeaseLost | None]]:
    """Delete messages whose receipts are the newest; the result has why others were not deleted."""
    return Operation(ACK_MANY, AckManyRequest(keys, receipts))


#: What a change of visibility means for the delivery. ``""``: it goes on. ``"r"``: its holder
#: releases the message. ``"u"``: it does so before the work began, so the delivery does not count.
How = Literal["", "r", "u"]


class VisibilityRequest(QueueRequest, frozen=True):
    """Make a message visible in *vt_ms* from now.

    Fenced if there is a receipt: ``LeaseLost`` if it is not the newest. Without a receipt the
    result is True if the message existed.
    """

    id: str
    vt_ms: int
    channel: str
    receipt: Receipt | None
    how: How

    @property
    def lane(self) -> tuple[Any, ...]:
        """Changes in one queue share a call."""
        return (self.keys.zset, self.channel)


# Numbered although it is idempotent: a late repetition must not undo the change that follows it.
VISIBILITY: Kind[bool] = Kind(name="visibility", merge=True, numbered=True, changes_visibility=True)


def visibility(
    keys: QueueKeys,
    id: str,
    *,
    vt_ms: int,
    channel: str,
    receipt: Receipt | None = None,
    how: How = "",
) -> Operation[bool]:
    """Make a message visible in *vt_ms* from now; fenced if a receipt is given.

    Without a receipt the result is True if the message existed. With one, ``LeaseLost`` is raised
    if it is not the newest.
    """
    return Operation(VISIBILITY, VisibilityRequest(keys, id, vt_ms, channel, receipt, how))


class ForwardRequest(QueueRequest, frozen=True):
    """Move a message to *target*, where it starts again with no receives.

    ``LeaseLost`` if *receipt* is not the newest; ``MessageTooLong`` if it exceeds *target*'s limit.
    After an attempt whose reply was lost, a message that is gone counts as moved by it.
    """

    receipt: Receipt
    target: QueueKeys
    #: -1 for the target's stored delay.
    delay_ms: int
    #: Channel on which the arrival is announced.
    channel: str


class RejectRequest(QueueRequest, frozen=True):
    """Move a message to the dead-letter queue *target*, with its ``rc`` and ``fr``.

    Errors are as for a forward. The queue is created if it does not exist.
    """

    receipt: Receipt
    target: QueueKeys
    reason: str
    #: Channel on which the arrival is announced.
    channel: str


class RedriveRequest(QueueRequest, frozen=True):
    """Move ready messages to *target*, where they start again with no receives.

    Moves those in *ids*, or the first *count*. The result is how many were moved.
    """

    target: QueueKeys
    count: int
    ids: Sequence[str]
    channel: str


FORWARD: Kind[None] = Kind(name="forward", repeatable=True)
REJECT: Kind[None] = Kind(name="reject", repeatable=True)
REDRIVE: Kind[int] = Kind(name="redrive", numbered=True)


def forward(
    keys: QueueKeys, receipt: Receipt, target: QueueKeys, *, delay_ms: int, channel: str
) -> Operation[None]:
    """Move one message to *target*, where it starts again with no receives."""
    return Operation(FORWARD, ForwardRequest(keys, receipt, target, delay_ms, channel))


def reject(
    keys: QueueKeys, receipt: Receipt, target: QueueKeys, *, reason: str, channel: str
) -> Operation[None]:
    """Move one message to the dead-letter queue *target*, with its ``rc`` and ``fr``."""
    kept = reason[:REASON_LENGTH]
    return Operation(REJECT, RejectRequest(keys, receipt, target, kept, channel))


def redrive(
    keys: QueueKeys, target: QueueKeys, count: int, *, ids: Sequence[str], channel: str
) -> Operation[int]:
    """Move up to *count* ready messages to *target*, where they start again with no receives.

    Moves those in *ids*, or the first ones. The result is how many were moved.
    """
    return Operation(REDRIVE, RedriveRequest(keys, target, count, ids, channel))
