"""The Operation: one atomic step on the server, as a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ..errors import RSMQError, Unavailable
from .scripts import Script

R = TypeVar("R")

#: What a script may be given: Redis stores bytes, numbers are written in decimal.
Argument = bytes | str | int
#: What a reply is made of, decoding switched off.
Reply = Any


class Operation(NamedTuple, Generic[R]):
    """A script call, or one part of a script call that several operations share.

    ``keys`` and ``head`` stand once in a call; ``args`` and ``own_keys`` are this operation's own.
    A ``merge``-able operation shares a call with others of the same script, keys and head: the
    script is then given all their ``own_keys`` and ``args`` in a row and answers with one reply
    for each.

    A reply can get lost, and then the call is repeated, if that is safe: because running it twice
    does no harm (``repeatable``), or because the server remembers the call (``memory``).
    """

    args: tuple[Argument, ...]
    script: Script
    keys: tuple[str, ...]
    #: Turn the reply into the result, or raise what it says.
    parse: Callable[[Reply], R]
    #: Raise what a code word in place of a reply says, for example ``queueNotFound``.
    fail: Callable[[str], RSMQError]
    own_keys: tuple[str, ...] = ()
    #: How many messages it is about; bounds what one call may carry.
    weight: int = 1
    #: How many bytes of bodies it carries; bounds what one call may carry.
    size: int = 0
    head: tuple[Argument, ...] = ()
    merge: bool = False
    #: Whether running it twice does no harm, so that a lost reply may be asked for again.
    repeatable: bool = False
    #: How to read the reply of a repetition, where the first attempt changes what the next finds.
    parse_again: Callable[[Reply], R] | None = None
    #: Name the key under which the server remembers the last call of a series. The script is told
    #: the number of the call and which attempt it is, and answers a repeated call as the first.
    memory: Callable[[str], str] | None = None
    #: What to raise when the outcome cannot be learnt.
    lost: type[Unavailable] = Unavailable
    #: Put the durability that was reached into the result; only for what waits for it.
    graded: Callable[[R, str], R] | None = None
    #: Put the moment at which the call began into the result, for times that count from then on.
    dated: Callable[[R, float], R] | None = None
    #: Build what undoes it, for a caller that was cancelled while it ran.
    undo: Callable[[R], list[Operation[Any]]] | None = None
    #: Return what a result tells besides, and must be heard also if the caller is gone.
    news: Callable[[R], Sequence[Any]] | None = None
    #: Tell whether a reply, all parts of it, holds messages; they count only if the server is the
    #: primary still.
    took: Callable[[Reply], bool] | None = None

    def maker(self) -> Maker[R]:
        """Return what makes operations like this one, in a third of the time of a new one.

        It takes what differs: ``args``, ``own_keys``, ``weight`` and ``size``.
        """
        middle, rest = self[1:5], self[8:]

        def make(
            args: tuple[Argument, ...], own_keys: tuple[str, ...], weight: int, size: int
        ) -> Operation[R]:
            return tuple.__new__(Operation, (args, *middle, own_keys, weight, size, *rest))

        return make


Maker = Callable[[tuple[Argument, ...], tuple[str, ...], int, int], Operation[R]]
