"""The seam between the transport and a driver, so that either can be replaced.

A driver is given calls made of operations that still know what they mean, and returns results.
How a server is spoken to is its own affair: drivers for Redis encode a call as a script call and
decode the reply, the driver for a broker turns requests into protobuf messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .._common.durability import Durability
from ..options import Options

if TYPE_CHECKING:
    from .calls import Call


class NotExecuted(Exception):
    """The call certainly did not run; it may be tried again."""

    #: What could not be reached, if that is not the peer of the connection.
    who = ""


class ReplyLost(Exception):
    """The call was written and its reply never came; it is not known whether it ran."""


class Heard(NamedTuple):
    """What was published on a channel; without a text, that the subscription to it stands."""

    channel: str
    text: bytes | None


class Listener(Protocol):
    """One connection that receives publications."""

    async def subscribe(self, *channels: str) -> None:
        """Add channels."""

    async def unsubscribe(self, *channels: str) -> None:
        """Drop channels."""

    async def next_heard(self) -> Heard | None:
        """Wait for a publication, or for a subscription to stand; ``None`` for anything else."""

    async def aclose(self) -> None:
        """Give the connection back."""


class Driver(Protocol):
    """Makes one attempt of a call at a time, and says precisely what became of it.

    Every method raises ``NotExecuted`` or ``ReplyLost``, or an ``RSMQError`` that is final: what
    was asked for did not run, and would not if it were asked for again.
    """

    @property
    def calls_per_connection(self) -> int:
        """How many calls it pays to make at a time, for each connection."""
        ...

    async def run(self, call: Call) -> list[Any]:
        """Make one attempt of *call*: the result of each of its operations, in their order.

        In place of a result stands the ``RSMQError`` that is the outcome of one operation, also if
        an earlier attempt came to it; or any other exception, if the reply could not be read.

        The driver sets ``call.written`` as soon as anything may have left the process, and
        ``call.reached`` (one level per operation) if ``call.durability`` asks for more than memory.
        """
        ...

    async def ping(self) -> None:
        """Return if the server answers."""

    async def check(self, options: Options) -> Durability:
        """Refuse a server that would break promises; return what sends wait for on this one.

        Called once, before the first call.
        """
        ...

    async def setting(self, name: str) -> str | None:
        """Return a setting of the server; ``None`` if the server does not tell."""

    async def forget(self, records: Sequence[str]) -> None:
        """Remove records of calls that will not be repeated; they would expire otherwise."""

    def listener(self) -> Listener:
        """Return a listener that is not connected yet."""
        ...

    async def aclose(self) -> None:
        """Close what this driver opened."""
