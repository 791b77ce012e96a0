"""An operation: one atomic step, as a value. A static *kind* and a typed, frozen *request*.

What every layer needs to know about a sort of operation is in its kind, once. What the caller
wants is in the request, in the words of queues and messages: names, bodies, milliseconds,
receipts. Neither knows how a server is spoken to. The drivers do: those for Redis encode a call
as a script call and decode its reply (``_protocol/redis``), the one for a broker turns requests
into protobuf messages and its responses into results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from ..errors import Unavailable

if TYPE_CHECKING:
    from .keys import QueueKeys

R = TypeVar("R")

#: What a script may be given: Redis stores bytes, numbers are written in decimal.
Argument = bytes | str | int
#: What a reply is made of, decoding switched off.
Reply = Any


class Kind(Struct, Generic[R], frozen=True, eq=False, kw_only=True):
    """A sort of operation: what holds for all operations of it, whatever they are about.

    There is one value per sort, so kinds are compared by identity.

    A reply can get lost. The call is then repeated if that is safe: because running it twice does
    no harm (``repeatable``), or because the server keeps a record of the call and answers a
    repetition as it answered the first attempt (``numbered``).
    """

    #: The word for it in traces and in tests.
    name: str
    #: Whether operations of this kind whose requests have the same ``lane`` may share a call.
    merge: bool = False
    #: Whether running it twice does no harm.
    repeatable: bool = False
    #: Whether calls carry a number, by which the server recognises a repetition.
    numbered: bool = False
    #: Whether it changes when a message becomes visible, so that it must not overtake another one
    #: that does.
    changes_visibility: bool = False
    #: What to raise when the outcome stays unknown.
    unknown: type[Unavailable] = Unavailable
    #: Build what undoes it, for a caller that was cancelled while it ran.
    undo: Callable[[R], Sequence[Operation[Any]]] | None = None
    #: Return what must be reported even if the caller is gone.
    news: Callable[[R], Sequence[Any]] | None = None
    #: Put the moment at which the call began into the result, for times that count from then on.
    with_start_time: Callable[[R, float], R] | None = None
    #: Put the durability that was reached into the result. Only kinds that have this wait for the
    #: durability that the client demands.
    with_durability: Callable[[R, str], R] | None = None

    def __repr__(self) -> str:
        return f"<Kind {self.name}>"


class Request(Struct, frozen=True):
    """What a caller wants. One class for each sort of operation, and nothing but its meaning."""

    @property
    def keys(self) -> QueueKeys:
        """The queue it is about: errors name it, and records of calls are kept beside it."""
        raise NotImplementedError

    @property
    def lane(self) -> tuple[Any, ...]:
        """What operations of one kind must have in common in order to share a call."""
        return ()

    @property
    def weight(self) -> int:
        """How many messages it is about; bounds what one call may carry."""
        return 1

    @property
    def size(self) -> int:
        """How many bytes of bodies it carries; bounds what one call may carry."""
        return 0


class QueueRequest(Request, frozen=True):
    """A request about one queue."""

    keys: QueueKeys  # pyright: ignore[reportIncompatibleMethodOverride]  # frozen, so as a property


class Operation(Struct, Generic[R], frozen=True):
    """One atomic step: what sort it is, and what is wanted."""

    kind: Kind[R]
    request: Any
