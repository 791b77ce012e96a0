"""Operations on payloads of rmq: publish, take, settle, return, drain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ....errors import SendUnknown
from ...operation import Kind, Operation, Request
from ...rmq_keys import RmqKeys

#: Payloads that one call moves at most when it empties a list, so that other clients can go on.
SLICE = 100


class RmqRequest(Request, frozen=True):
    """A request about one queue of rmq."""

    keys: RmqKeys  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleMethodOverride]


class PublishRequest(RmqRequest, frozen=True):
    """Append *payloads* in order, all or none."""

    payloads: Sequence[bytes]
    #: How many, and their bytes: stored, because batching asks for them once per publication.
    weight: int  # pyright: ignore[reportIncompatibleMethodOverride]
    size: int  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def lane(self) -> tuple[Any, ...]:
        """Publications to one queue share a call."""
        return (self.keys.ready,)


RMQ_PUBLISH: Kind[tuple[str, ...]] = Kind(
    name="rmq_publish",
    merge=True,
    numbered=True,
    unknown=SendUnknown,
    with_durability=lambda ids, _: ids,
)


def publish(keys: RmqKeys, payloads: Sequence[bytes]) -> Operation[tuple[str, ...]]:
    """Append *payloads* in order, all or none. Payloads have no ids."""
    size = sum(map(len, payloads))
    return Operation(RMQ_PUBLISH, PublishRequest(keys, payloads, len(payloads), size))


class TakeRequest(RmqRequest, frozen=True):
    """Take up to *count* payloads into the unacked list of *connection*.

    The result is ``None`` if the heartbeat of the connection is gone. That is known on a single
    server only: in a cluster it is on another node.
    """

    connection: str
    count: int


# A lost reply is not asked for again: the payloads are in the unacked list, which the holder reads.
RMQ_TAKE: Kind[list[bytes] | None] = Kind(name="rmq_take")


def take(keys: RmqKeys, connection: str, count: int) -> Operation[list[bytes] | None]:
    """Take up to *count* payloads, oldest first."""
    return Operation(RMQ_TAKE, TakeRequest(keys, connection, count))


#: Where a settled payload goes: nowhere, behind all that waits in a list, or to its front.
Where = Literal["", "last", "next"]


class SettleRequest(RmqRequest, frozen=True):
    """Remove *payloads* from the unacked list of *connection*, and move them to *target*.

    The result has True for each that was in the list. A payload is known by its bytes alone.
    """

    connection: str
    payloads: Sequence[bytes]
    target: str
    where: Where

    @property
    def lane(self) -> tuple[Any, ...]:
        """Settlements of the same sort share a call."""
        return (self.keys.unacked(self.connection), self.target, self.where)

    @property
    def weight(self) -> int:
        """One per payload."""
        return len(self.payloads)

    @property
    def size(self) -> int:
        """The bytes of all payloads."""
        return sum(map(len, self.payloads))


# Numbered: a repetition could remove an equal payload that another consumer works on.
RMQ_SETTLE: Kind[list[bool]] = Kind(name="rmq_settle", merge=True, numbered=True)


def ack(keys: RmqKeys, connection: str, payloads: Sequence[bytes]) -> Operation[list[bool]]:
    """Remove *payloads*: they are done."""
    return Operation(
        RMQ_SETTLE, SettleRequest(keys, connection, payloads, keys.unacked(connection), "")
    )


def move(
    keys: RmqKeys, connection: str, payloads: Sequence[bytes], target: str
) -> Operation[list[bool]]:
    """Move *payloads* to the list *target*, behind all that is there."""
    return Operation(RMQ_SETTLE, SettleRequest(keys, connection, payloads, target, "last"))


def give_back(keys: RmqKeys, connection: str, payloads: Sequence[bytes]) -> Operation[list[bool]]:
    """Move *payloads*, oldest first, back to the front of the queue."""
    return Operation(RMQ_SETTLE, SettleRequest(keys, connection, payloads, keys.ready, "next"))


class Unacked(NamedTuple):
    """What a connection holds of a queue."""

    length: int
    consumers: list[str]
    #: Oldest first; empty unless they were asked for.
    payloads: list[bytes]


class UnackedRequest(RmqRequest, frozen=True):
    """Read what *connection* holds."""

    connection: str
    payloads: bool


RMQ_UNACKED: Kind[Unacked] = Kind(name="rmq_unacked", repeatable=True)


def unacked(keys: RmqKeys, connection: str, *, payloads: bool = False) -> Operation[Unacked]:
    """Read what *connection* holds of the queue."""
    return Operation(RMQ_UNACKED, UnackedRequest(keys, connection, payloads))


class ReturnRequest(RmqRequest, frozen=True):
    """Move up to *count* payloads of the list *source* behind all that is ready."""

    source: str
    count: int


RMQ_RETURN: Kind[int] = Kind(name="rmq_return", numbered=True)


def return_oldest(keys: RmqKeys, source: str, count: int) -> Operation[int]:
    """Move up to *count* payloads of the list *source* behind all that is ready."""
    return Operation(RMQ_RETURN, ReturnRequest(keys, source, count))


class Retired(NamedTuple):
    """What one step of emptying an unacked list did; both are -1 if the connection is alive."""

    moved: int
    left: int

    @property
    def alive(self) -> bool:
        """True if the heartbeat of the connection is there, so nothing was moved."""
        return self.moved < 0


class RetireRequest(RmqRequest, frozen=True):
    """Move up to *count* payloads of the unacked list of *connection* back to ready.

    With *dead* they queue behind all that is ready, and nothing happens if the connection is alive.
    Without, they go to the front, in order.
    """

    connection: str
    count: int
    dead: bool


# Repeatable: it goes on until nothing is left.
RMQ_RETIRE: Kind[Retired] = Kind(name="rmq_retire", repeatable=True)


def retire(keys: RmqKeys, connection: str, *, dead: bool, count: int = SLICE) -> Operation[Retired]:
    """Empty a slice of the unacked list of *connection*; unregister it when nothing is left."""
    return Operation(RMQ_RETIRE, RetireRequest(keys, connection, count, dead))


class DrainRequest(RmqRequest, frozen=True):
    """Take and delete up to *count* ready payloads."""

    count: int


RMQ_DRAIN: Kind[list[bytes]] = Kind(name="rmq_drain")


def drain(keys: RmqKeys, count: int) -> Operation[list[bytes]]:
    """Take and delete up to *count* ready payloads: at most once, nothing brings them back."""
    return Operation(RMQ_DRAIN, DrainRequest(keys, count))


class PurgeRequest(RmqRequest, frozen=True):
    """Delete up to *count* payloads of the list *source*, oldest first."""

    source: str
    count: int


RMQ_PURGE: Kind[int] = Kind(name="rmq_purge", repeatable=True)


def purge(keys: RmqKeys, source: str, count: int) -> Operation[int]:
    """Delete up to *count* payloads of the list *source*; the result is how many."""
    return Operation(RMQ_PURGE, PurgeRequest(keys, source, count))


class Lengths(NamedTuple):
    """How many payloads a queue holds, besides those that connections have taken."""

    ready: int
    rejected: int


class LengthsRequest(RmqRequest, frozen=True):
    """Count what a queue holds."""


RMQ_LENGTHS: Kind[Lengths] = Kind(name="rmq_lengths", repeatable=True)


def lengths(keys: RmqKeys) -> Operation[Lengths]:
    """Count what a queue holds."""
    return Operation(RMQ_LENGTHS, LengthsRequest(keys))
