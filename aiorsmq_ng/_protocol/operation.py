"""An operation: one atomic step, as a value. A static *kind* and a typed, frozen *request*.

The kind holds, once, what every layer needs to know about operations of that kind. The request
holds what the caller wants, in terms of queues and messages: names, bodies, milliseconds,
receipts. Neither depends on the wire format. That is the drivers' business: those for Redis encode
a call as a script call and decode its reply (``_protocol/redis_codecs``); the one for a broker maps
requests to protobuf messages and responses to results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from ..errors import Unavailable

if TYPE_CHECKING:
    from .keys import QueueKeys

R = TypeVar("R")

#: An argument of a script: Redis stores bytes, numbers are written in decimal.
Argument = bytes | str | int
#: A RESP reply whose strings are not decoded.
Reply = Any


class Kind(Struct, Generic[R], frozen=True, eq=False, kw_only=True):
    """What all operations of one kind have in common.

    There is one value per kind, so kinds are compared by identity.

    A reply can get lost. The call is then repeated if that is safe: because the operation is
    idempotent (``repeatable``), or because the server keeps an idempotency record of the call and
    answers a repetition as it answered the first attempt (``numbered``).
    """

    #: Its name in traces and in tests.
    name: str
    #: True if operations of this kind whose requests have the same ``lane`` may share a call.
    merge: bool = False
    #: True if it is idempotent.
    repeatable: bool = False
    #: True if calls carry a number, by which the server recognises a repetition.
    numbered: bool = False
    #: True if it changes when a message becomes visible. Two such operations on one message must
    #: keep their order.
    changes_visibility: bool = False
    #: What to raise when the outcome stays unknown.
    unknown: type[Unavailable] = Unavailable
    #: Build the operations that undo it, for a caller that was cancelled while it ran.
    undo: Callable[[R], Sequence[Operation[Any]]] | None = None
    #: Return the events in a result that are reported even if the caller was cancelled.
    events: Callable[[R], Sequence[Any]] | None = None
    #: Return the result with the time at which the call began, from which leases are counted.
    with_start_time: Callable[[R, float], R] | None = None
    #: Return the result with the durability that was reached. Only calls of kinds that have this
    #: wait for the durability that the client demands.
    with_durability: Callable[[R, str], R] | None = None

    def __repr__(self) -> str:
        return f"<Kind {self.name}>"


class Request(Struct, frozen=True):
    """What a caller wants, without any encoding. There is one class for each kind of operation."""

    @property
    def keys(self) -> QueueKeys:
        """The queue it is about: errors name it, and call records are stored beside it."""
        raise NotImplementedError

    @property
    def lane(self) -> tuple[Any, ...]:
        """What operations of one kind must have in common in order to share a call."""
        return ()

    @property
    def weight(self) -> int:
        """Number of messages; a call carries operations up to a total weight."""
        return 1

    @property
    def size(self) -> int:
        """Bytes of bodies, there or back; a call carries operations up to a total size."""
        return 0


class QueueRequest(Request, frozen=True):
    """A request about one queue."""

    keys: QueueKeys  # pyright: ignore[reportIncompatibleMethodOverride]  # read-only, as it is frozen


class Operation(Struct, Generic[R], frozen=True):
    """One atomic step: its kind, and its request."""

    kind: Kind[R]
    request: Any
