"""Operations on messages: send, receive, pop, settle, move, look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from .._common.ids import SUFFIX_LENGTH, suffix
from ..errors import LeaseLost, MessageTooLong, SendUnknown
from ..models import Message, Sent
from .keys import QueueKeys
from .operation import Argument, Maker, Operation, Reply
from .scripts import load
from .values import Buried, Dedup, Leased, Receipt, Received

#: What a script says after the id of a message that has a dedup key.
OUTCOMES = STORED, DUPLICATE = b"stored", b"duplicate"
#: How long the reason of a rejection is kept: 14 days.
REASON_TTL_S = 14 * 86400
#: Characters of it that are kept: some lines, for people.
REASON_LENGTH = 1000

_SEND = load("send")
_RECEIVE = load("receive")
_POP = load("pop")
_DELETE = load("delete")
_VISIBILITY = load("visibility")


def send(
    keys: QueueKeys,
    bodies: Sequence[bytes],
    *,
    delay_ms: int,
    entropy: bytes,
    channel: str,
    dedup: Dedup | None = None,
) -> Operation[list[str]]:
    """Store *bodies* in order, all or none; *entropy* holds 22 random bytes for each."""
    count = len(bodies)
    if len(entropy) != SUFFIX_LENGTH * count:
        raise ValueError("22 bytes of entropy are needed per body")
    make: Maker[list[str]] = keys.makers.get(channel) or _send_maker(keys, channel)
    header = f"{delay_ms} {dedup.window_ms if dedup else 0} {count}"
    size = len(bodies[0]) if count == 1 else sum(map(len, bodies))
    own_keys = (keys.marker(dedup.digest),) if dedup else ()
    return make((header, suffix(entropy), *bodies), own_keys, count, size)


def _send_maker(keys: QueueKeys, channel: str) -> Maker[list[str]]:
    def parse(reply: Reply) -> list[str]:
        if len(reply) == 1:
            return [reply[0].decode()]
        if reply[1] in OUTCOMES:
            return [read_outcome(reply)]
        _check_size(keys, reply)
        return [id.decode() for id in reply]

    model: Operation[list[str]] = Operation(
        script=_SEND,
        keys=(keys.zset, keys.hash),
        head=(channel,),
        args=(),
        parse=parse,
        fail=keys.failure,
        merge=True,
        memory=keys.memory,
        lost=SendUnknown,
        graded=lambda ids, level: [Sent.at(id, level) for id in ids],
    )
    make = keys.makers[channel] = model.maker()
    return make


class Intake(NamedTuple):
    """A queue to receive from, and where its messages go that were received too often."""

    keys: QueueKeys
    #: Deliveries after which a message goes to the dead-letter queue; 0 for no limit.
    max_receives: int = 0
    dead: QueueKeys | None = None
    #: Channel on which arrivals in the dead-letter queue are announced.
    channel: str = ""
    #: Lease in milliseconds for calls that name none; -1 for the queue's stored one.
    vt_ms: int = -1
    #: Tells the name of the client that receives, for people who look for the last holder.
    holder: Callable[[], str] = str

    @property
    def limit(self) -> tuple[Argument, ...]:
        """What the scripts are told about the limit."""
        if not self.max_receives or self.dead is None:
            return (0, "", "")
        return (self.max_receives, self.dead.queue, self.channel)

    @property
    def dead_keys(self) -> tuple[str, str, str]:
        """The dead-letter queue's keys; the queue's own stand in where none are needed."""
        dead = self.dead or self.keys
        return (dead.zset, dead.hash, dead.deliveries)


class Waiter(NamedTuple):
    """Who is called when a message comes after an empty receive."""

    name: str = ""
    #: The longest time between two looks of its own accord.
    cap_ms: int = 0
    #: After how long it looks again, unless another waiter does by then; 0 if it does not wait.
    pause_ms: int = 0


_NOBODY = Waiter()


def receive(
    intake: Intake, count: int, *, vt_ms: int, waiter: Waiter = _NOBODY
) -> Operation[Received]:
    """Lease up to *count* ready messages. Undone by making them visible again.

    A *waiter* for which there is nothing learns when to look again, and is called if a message
    comes first.
    """
    keys = intake.keys
    names: tuple[str, ...] = (keys.zset, keys.hash, keys.deliveries)
    if intake.max_receives:
        names += (*intake.dead_keys, keys.namespace.index)
    return Operation(
        script=_RECEIVE,
        keys=names,
        head=(intake.holder(), *intake.limit, waiter.name, waiter.cap_ms),
        args=(count, intake.vt_ms if vt_ms < 0 else vt_ms, waiter.pause_ms),
        parse=lambda reply: read_received(intake, reply),
        fail=keys.failure,
        merge=True,
        weight=count,
        memory=keys.memory,
        dated=Received.at,
        undo=give_back,
        news=_buried,
        took=lambda reply: any(len(part) > 2 for part in reply),
    )


def receive_first(
    intakes: Sequence[Intake], count: int, *, vt_ms: int, waiter: Waiter = _NOBODY
) -> Operation[Received]:
    """Lease up to *count* messages: all that the first queue has, then the second, and so on."""
    keys = [intakes[0].keys.namespace.index]
    args: list[Argument] = [intakes[0].holder(), count, *waiter]
    for intake in intakes:
        own = intake.keys
        keys += (own.zset, own.hash, own.deliveries, *intake.dead_keys)
        args += (intake.vt_ms if vt_ms < 0 else vt_ms, *intake.limit)

    def parse(reply: Reply) -> Received:
        if len(reply) == 2:
            raise intakes[reply[0] - 1].keys.failure(reply[1].decode())
        pairs = iter(reply[1:])
        messages: list[Leased] = []
        buried: tuple[Buried, ...] = ()
        for number, part in zip(pairs, pairs, strict=True):
            received = read_received(intakes[number - 1], part)
            messages += received.messages
            buried += received.buried
        return Received(messages, reply[0], buried=buried)

    return Operation(
        script=load("receive_first"),
        keys=tuple(keys),
        args=tuple(args),
        parse=parse,
        fail=intakes[0].keys.failure,
        weight=count,
        memory=intakes[0].keys.memory,
        dated=Received.at,
        undo=give_back,
        news=_buried,
        took=lambda reply: len(reply) > 2,
    )


def give_back(received: Received) -> list[Operation[bool]]:
    """Make messages visible again that were taken for a caller who is not there any more."""
    return [
        visibility(m.keys, m.id, vt_ms=0, receipt=m.receipt, channel=m.keys.wake, how="u")
        for m in received.messages
    ]


class Source(NamedTuple):
    """Where a receiver takes messages from: one queue, or several in order of priority."""

    #: Build the operation that leases up to so many messages for so many milliseconds, for a
    #: caller that looks again after so many milliseconds if there is none (0: does not wait).
    receive: Callable[[int, int, int], Operation[Received]]
    #: Channels on which RSMQ's own clients tell everybody of arrivals.
    realtime: tuple[str, ...]
    #: Channels on which the waiter is called, and what lets others be called in its place.
    calls: dict[str, Operation[int]]
    #: What takes the waiter off for good, whatever it has promised.
    leave: tuple[Operation[int], ...]
    #: Whether the operations of several waiters share one call.
    shared: bool


def source(intakes: Sequence[Intake], name: str, cap_ms: int) -> Source:
    """Return the source for one queue or several, whose waiter is called *name*."""
    shared = len(intakes) == 1

    def make(count: int, vt_ms: int, pause_ms: int) -> Operation[Received]:
        waiter = Waiter(name, cap_ms, pause_ms)
        if shared:
            return receive(intakes[0], count, vt_ms=vt_ms, waiter=waiter)
        return receive_first(intakes, count, vt_ms=vt_ms, waiter=waiter)

    # Most receivers that do not wait ask for the same again and again.
    known = lru_cache(maxsize=16)(make)

    def ask(count: int, vt_ms: int, pause_ms: int) -> Operation[Received]:
        return make(count, vt_ms, pause_ms) if pause_ms else known(count, vt_ms, 0)

    return Source(
        ask,
        tuple(intake.keys.realtime for intake in intakes),
        {intake.keys.call(name): unwait(intake.keys, name) for intake in intakes},
        tuple(unwait(intake.keys, name, for_good=True) for intake in intakes),
        shared,
    )


def unwait(keys: QueueKeys, name: str, *, for_good: bool = False) -> Operation[int]:
    """Take the waiter *name* off, and let another one come for what it was to come for.

    If it is to look later than in a moment, it stays, unless *for_good*.
    """
    return Operation(
        script=load("unwait"),
        keys=(keys.zset,),
        args=(name, int(for_good)),
        parse=int,
        fail=keys.failure,
        repeatable=True,
    )


class Popped(NamedTuple):
    """What a pop took; ``again`` if nothing, but a message may be there behind ids without body."""

    messages: list[Message]
    again: bool


def pop(keys: QueueKeys, count: int) -> Operation[Popped]:
    """Take and delete up to *count* ready messages: at most once, nothing brings them back."""
    return Operation(
        script=_POP,
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(count,),
        parse=lambda reply: Popped(read_messages(reply[1:]), reply[0] == 0),
        fail=keys.failure,
        merge=True,
        weight=count,
        took=lambda reply: any(len(part) > 1 for part in reply),
    )


def delete(keys: QueueKeys, ids: Sequence[str]) -> Operation[list[str]]:
    """Delete messages by id, whoever holds them; the result is those that were there."""
    args: list[Argument] = [len(ids)]
    for id in ids:
        args += (id, "", "")
    return Operation(
        script=_DELETE,
        keys=keys.settling,
        args=tuple(args),
        parse=lambda reply: [id for id, done in zip(ids, reply, strict=True) if done == 1],
        # Gone by now means that the first attempt, or somebody else, has deleted it.
        parse_again=lambda _: list(ids),
        fail=keys.failure,
        merge=True,
        weight=len(ids),
        repeatable=True,
    )


#: Of an operation: own keys, weight, size, head, merge, repeatable.
_ONE_TO_SETTLE = ((), 1, 0, (), True, True)


def ack(keys: QueueKeys, receipt: Receipt) -> Operation[None]:
    """Delete one message if *receipt* is the newest; ``LeaseLost`` otherwise."""
    # In the order of the fields, because naming them takes as long as the rest.
    return Operation(
        (1, *receipt),
        _DELETE,
        keys.settling,
        lambda reply: _settled(keys, receipt, reply[0]),
        keys.failure,
        *_ONE_TO_SETTLE,
        lambda reply: _settled_before(keys, receipt, reply[0]),
    )


def ack_many(keys: QueueKeys, receipts: Sequence[Receipt]) -> Operation[list[bool]]:
    """Delete messages whose receipts are the newest; the result tells for each whether it was."""
    args: list[Argument] = [len(receipts)]
    for receipt in receipts:
        args += receipt
    return Operation(
        script=_DELETE,
        keys=keys.settling,
        args=tuple(args),
        parse=lambda reply: [outcome == 1 for outcome in reply],
        # Gone by now means that the first attempt has settled it.
        parse_again=lambda reply: [outcome >= 0 for outcome in reply],
        fail=keys.failure,
        merge=True,
        weight=len(receipts),
        repeatable=True,
    )


#: What a change of visibility means for the delivery: it goes on; its holder returns the message;
#: it does so before anybody began to work on it, so that the delivery does not count.
How = Literal["", "r", "u"]


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

    Without a receipt the result tells whether the message was there; with one, ``LeaseLost``.
    """

    def parse(reply: Reply) -> bool:
        if receipt is not None:
            _settled(keys, receipt, reply)
        return bool(reply == 1)

    return Operation(
        script=_VISIBILITY,
        keys=keys.settling,
        head=(channel,),
        args=(*(receipt or (id, "", "")), vt_ms, how),
        parse=parse,
        fail=keys.failure,
        merge=True,
        # Running it twice does no harm; late, after the next change, it would.
        memory=keys.memory,
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
    text = reason[:REASON_LENGTH].encode(errors="replace")
    return _move(keys, receipt, target, channel, (0, "1", text, REASON_TTL_S))


def redrive(
    keys: QueueKeys, target: QueueKeys, count: int, *, ids: Sequence[str], channel: str
) -> Operation[list[str]]:
    """Move up to *count* ready messages to *target*, where they start anew.

    The ones in *ids*, or the first ones. The result is the ids moved.
    """
    return Operation(
        script=load("redrive"),
        keys=(keys.zset, keys.hash, keys.deliveries, target.zset, target.hash),
        args=(channel, count, *ids),
        parse=lambda reply: [read_id(id) for id in reply],
        fail=target.failure,
        memory=keys.memory,
    )


def _move(
    keys: QueueKeys,
    receipt: Receipt,
    target: QueueKeys,
    channel: str,
    how: tuple[Argument, ...],
) -> Operation[None]:
    def parse(reply: Reply, settled: Callable[..., None] = _settled) -> None:
        if isinstance(reply, int):
            settled(keys, receipt, reply)
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
            target.deliveries,
        ),
        args=(*receipt, target.queue, channel, *how),
        parse=parse,
        parse_again=lambda reply: parse(reply, _settled_before),
        fail=target.failure,
        repeatable=True,
    )


def _settled(keys: QueueKeys, receipt: Receipt, outcome: int) -> None:
    if outcome != 1:
        raise LeaseLost(keys.queue, receipt.id, gone=outcome == 0)


def _settled_before(keys: QueueKeys, receipt: Receipt, outcome: int) -> None:
    # Gone by now means that the first attempt has settled it.
    if outcome != 0:
        _settled(keys, receipt, outcome)


def _check_size(keys: QueueKeys, reply: Reply) -> None:
    if reply[0] == b"messageTooLong":
        raise MessageTooLong(keys.queue, reply[1], reply[2])


def read_messages(reply: Reply) -> list[Message]:
    """Read a flat list of id, body, rc, fr per message."""
    rows = iter(reply)
    return [
        Message(read_id(id), body, rc, fr)
        for id, body, rc, fr in zip(rows, rows, rows, rows, strict=True)
    ]


def read_received(intake: Intake, reply: Reply) -> Received:
    """Read a part of a receive's reply: vt (ms), a hint, id, body, rc, fr per message, remarks."""
    keys, vt_ms = intake.keys, reply[0]
    if len(reply) == 6:
        _, hint, id, body, rc, fr = reply
        # In half the time of naming the fields.
        leased = tuple.__new__(Leased, (read_id(id), body, rc, fr, keys, vt_ms, 0, 0))
        return Received([leased], hint)
    marks, rows = reply.pop() if len(reply) % 4 == 3 else ((), ())
    known = {id: past for id, *past in zip(*[iter(marks)] * 3, strict=True)}
    messages = [
        Leased(read_id(id), body, rc, fr, keys, vt_ms, *known.get(id, ()))
        for id, body, rc, fr in zip(*[iter(reply[2:])] * 4, strict=True)
    ]
    dead = intake.dead or keys
    buried = tuple(
        Buried(Message(read_id(id), body, rc, fr), keys, dead, why.decode(errors="replace"))
        for id, body, rc, fr, why in zip(*[iter(rows)] * 5, strict=True)
    )
    return Received(messages, reply[1], buried=buried)


def _buried(received: Received) -> Sequence[Buried]:
    return received.buried


def read_outcome(reply: Reply) -> Sent:
    """Read an id that is followed by one of ``OUTCOMES``."""
    sent = Sent(reply[0].decode())
    sent.duplicate = reply[1] == DUPLICATE
    return sent


def read_id(raw: bytes) -> str:
    """Read a message id."""
    # Ids are ASCII; one that a foreign program wrote otherwise is shown, not tripped over.
    return raw.decode("utf-8", "backslashreplace")
