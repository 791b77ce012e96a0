"""The seam between the transport and a driver, so that either can be replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .._protocol.operation import Argument, Reply


class NotExecuted(Exception):
    """The command certainly did not run; it may be tried again."""

    #: Who could not be reached.
    who = "redis"


class ReplyLost(Exception):
    """The command was written and its reply never came; nobody can tell whether it ran."""


class ScriptMissing(Exception):
    """The server does not have the script in its cache; nothing ran."""


class WrongLayout(Exception):
    """The script met keys that do not have RSMQ's layout. ``code`` says what is wrong."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Command:
    """One command for the server. ``written`` is set as soon as it may have left the process."""

    words: Sequence[Argument]
    written: bool = False
    #: A second command for the same connection, made when the first has been answered, and its
    #: reply (an error in place of one is told as text).
    then: Sequence[Argument] | None = None
    confirmation: Reply = None
    #: How many replicas shall know of what the command did. If they do not, and the driver can ask
    #: which server is the primary and learns that it is another, the reply counts as lost. Which
    #: replies it matters for, where there is no second command.
    witnesses: int = 0
    matters: Callable[[Reply], bool] | None = None


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
    """Executes commands, each once, and says precisely what became of it.

    Raises ``NotExecuted``, ``ReplyLost``, ``ScriptMissing``, ``WrongLayout``, or an ``RSMQError``
    that is final: the command did not run. An ``RSMQError`` in place of a reply, or of the part of
    a reply that is for one operation, is what became of it, also if it was asked for again.
    """

    @property
    def calls_per_connection(self) -> int:
        """How many calls it pays to make at a time, for each connection."""
        ...

    async def execute(self, command: Command) -> Reply:
        """Run *command* and return the undecoded reply."""

    def listener(self) -> Listener:
        """Return a listener that is not connected yet."""
        ...

    async def aclose(self) -> None:
        """Close what this driver opened."""
