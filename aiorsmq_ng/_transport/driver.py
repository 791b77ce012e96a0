"""The seam between the transport and a driver, so that either can be replaced.

A driver gets calls made of typed operations, and returns results. The wire format is its own
affair: drivers for Redis encode a call as a script call and decode the reply, the driver for a
broker maps requests to protobuf messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .._common.durability import Durability
from .._protocol.operation import Reply
from ..options import Options

if TYPE_CHECKING:
    from .call import Call
    from .first_attempts import FirstAttempt


class NotExecuted(Exception):
    """Raised when the call certainly did not run; it may be retried."""

    #: What could not be reached, if that is not the peer of the connection.
    who = ""


class ReplyLost(Exception):
    """Raised when the call was written and its reply never came; it may have run or not."""


class Heard(NamedTuple):
    """A publication on a channel; without a text, the confirmation of the subscription to it."""

    channel: str
    text: bytes | None


class Listener(Protocol):
    """One connection that receives publications."""

    async def subscribe(self, *channels: str) -> None:
        """Add channels."""

    async def unsubscribe(self, *channels: str) -> None:
        """Drop channels."""

    async def next_heard(self) -> Heard | None:
        """Wait for a publication, or a confirmed subscription; ``None`` for anything else."""

    async def aclose(self) -> None:
        """Give the connection back."""


class ListWaiter(Protocol):
    """One connection that waits for lists."""

    async def wait(self, key: str, seconds: int) -> None:
        """Return when the list has an element, which stays there, or after *seconds*.

        ``NotExecuted`` if that cannot be learnt. A cancellation changes nothing.
        """

    async def aclose(self) -> None:
        """Close the connection."""


class ImmediateDriver(Protocol):
    """Makes attempts without waiting for anything but the reply."""

    def begin(self, call: Call, attempt: FirstAttempt) -> bool:
        """Get *attempt* of *call* ready to be written; it is given the reply.

        Return False, and change nothing, if something has to be waited for before.
        """
        ...

    def write_begun(self) -> None:
        """Write all attempts that were begun since the last time."""

    def end(self, used: Any, now: float) -> bool:
        """Give back the connection of an attempt that was answered *now*, by the loop's clock.

        Return False, and change nothing, if that needs waiting.
        """
        ...

    def decode(self, call: Call, reply: Reply) -> list[Any]:
        """Return the results in *reply*, as ``Driver.run`` does."""
        ...


class Driver(Protocol):
    """Makes one attempt of a call at a time, and reports its precise outcome.

    Every method raises ``NotExecuted`` or ``ReplyLost``, or an ``RSMQError`` that is final: the
    call did not run, and a retry would fail in the same way.
    """

    @property
    def calls_per_connection(self) -> int:
        """Number of concurrent calls for each connection; more would not be faster."""
        ...

    @property
    def immediate(self) -> ImmediateDriver | None:
        """The driver itself, if it can make attempts without waiting."""
        ...

    async def run(self, call: Call) -> list[Any]:
        """Make one attempt of *call*: the result of each of its operations, in their order.

        In place of a result there may be the ``RSMQError`` that is the outcome of an operation, or
        of an earlier attempt of it; or any other exception, if the reply could not be decoded.

        The driver sets ``call.written`` as soon as anything may have left the process, and
        ``call.reached`` (one level per operation) if ``call.durability`` is more than memory.
        """
        ...

    async def ping(self) -> None:
        """Return if the server replies; raise otherwise."""

    async def check(self, options: Options) -> Durability:
        """Refuse a server that would break promises; return what sends wait for on this one.

        Called once, before the first call.
        """
        ...

    async def setting(self, name: str) -> str | None:
        """Return a setting of the server; ``None`` if it cannot be read."""

    async def forget(self, records: Sequence[str]) -> None:
        """Remove records of calls that will not be repeated; they would expire otherwise."""

    def listener(self) -> Listener:
        """Return a listener that is not connected yet."""
        ...

    def list_waiter(self) -> ListWaiter:
        """Return a waiter for lists that is not connected yet; drivers for Redis have it."""
        ...

    async def aclose(self) -> None:
        """Close what this driver opened."""
