"""One script call, made of the operations that share it, and all its attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Any

from .._common.durability import Durability
from .._protocol.operation import Argument, Operation, Reply
from ..errors import DurabilityUnmet, RSMQError, SendToken
from .call_numbers import Ticket
from .lanes import Waiting


class Call:
    """The call that a batch of operations shares. Repeating it never makes a second effect."""

    def __init__(self, operations: Sequence[Operation[Any]], ticket: Ticket | None) -> None:
        first = operations[0]
        self.operations = operations
        #: Who waits for them, in the same order; nobody where calls are made one at a time.
        self.callers: list[Waiting] = []
        self.ticket = ticket
        #: The key under which the server remembers this call.
        self.memory = first.memory(ticket.series) if ticket and first.memory else None
        #: Whether an attempt may have run without our learning of it, and which one is next.
        self.in_doubt = False
        self.attempt = 1
        #: When the last attempt began, on the event loop's clock.
        self.began_at = 0.0
        #: The reply to a call that was taken up again by a token.
        self.outcome: asyncio.Future[Reply] | None = None
        self._asked: Durability | None = None
        self._confirmation: Reply = None

    @property
    def first(self) -> Operation[Any]:
        """The operation that stands for all: they have script, keys and head in common."""
        return self.operations[0]

    @property
    def may_repeat(self) -> bool:
        """Whether a lost reply may be asked for again."""
        return self.ticket is not None or self.first.repeatable

    def doubt(self) -> None:
        """Take note that the attempt may have run; another one follows."""
        self.in_doubt = True
        self.attempt += 1

    def words(self, *, recall: bool = False, asks: bool = False) -> list[Argument]:
        """Return what follows the script in the command: number of keys, keys, arguments.

        With *asks* the attempt is followed by a question about its connection's last write. A
        repetition finds all done and would write nothing, and the answer would say nothing.
        """
        first = self.first
        keys = list(first.keys)
        args: list[Argument] = []
        if self.ticket is not None:
            attempt = -self.attempt if asks and self.attempt > 1 else self.attempt
            args += (self.ticket.number, 0 if recall else attempt)
        args += first.head
        for operation in self.operations:
            keys += operation.own_keys
            args += operation.args
        if self.memory is not None:
            keys.append(self.memory)
        return [len(keys), *keys, *args]

    def confirmed(self, asked: Durability, confirmation: Reply) -> None:
        """Take note of what the server says about replicas or its disk."""
        self._asked, self._confirmation = asked, confirmation

    def result_of(self, operation: Operation[Any], reply: Reply) -> Any:
        """Read one operation's reply; raises what it says, or is."""
        if isinstance(reply, RSMQError):
            raise copy(reply)
        if self.in_doubt and operation.parse_again is not None:
            result = operation.parse_again(reply)
        else:
            result = operation.parse(reply)
        if operation.dated is not None:
            return operation.dated(result, self.began_at)
        if operation.graded is not None and self._asked is not None:
            reached = self._asked.reached(self._confirmation)
            result = operation.graded(result, reached)
            if not self._asked.met(self._confirmation):
                raise DurabilityUnmet(str(self._asked), reached, result)
        return result


class CallToken(SendToken):
    """One send of a call whose outcome is not known."""

    __slots__ = ("call", "expires_at", "issuer", "place")

    def __init__(self, issuer: object, call: Call, place: int, expires_at: float) -> None:
        self.issuer = issuer
        self.call = call
        self.place = place
        #: When the server may have forgotten the call, on the event loop's clock.
        self.expires_at = expires_at
