"""A call: the operations that share it, what drivers note on it, and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from .._common.durability import Durability
from .._protocol.operation import Kind, Operation
from ..errors import DurabilityUnmet, RSMQError

if TYPE_CHECKING:
    from .batching import PendingOperation
    from .call_numbers import CallNumber
    from .first_attempts import FirstAttempt


class Call:
    """The call that a batch of operations shares. Repeating it never has a second effect.

    All operations are of one kind; if there are several, their requests have the same ``lane``.
    """

    #: Which attempt is made, from 1 on; whether an earlier one may have run.
    attempt = 1
    in_doubt = False
    #: Do nothing new: give back what earlier attempts took, and see that none that is still on
    #: its way does anything.
    recall = False
    #: When the last attempt began, on the event loop's clock.
    began_at = 0.0
    #: Whether anything of the last attempt may have left the process.
    written = False
    #: What must be reached before results count, if more than memory; for how long the driver
    #: may wait for it; and what each operation reached.
    durability: Durability | None = None
    confirm_ms = 0
    reached: Sequence[str] = ()
    #: How many replicas shall know of messages that were taken. If they do not, and another
    #: server is the primary by now, the reply counts as lost.
    min_replicas = 0
    #: What a driver keeps from one attempt to the next.
    encoded: Any = None
    #: The first attempt, if it was written at once and its reply is left to a runner.
    begun: FirstAttempt | None = None
    #: The results of a call that was taken up again by a token.
    outcome: asyncio.Future[list[Any]] | None = None

    def __init__(
        self,
        operations: Sequence[Operation[Any]],
        number: CallNumber | None = None,
        callers: Sequence[PendingOperation] = (),
    ) -> None:
        self.operations = operations
        first = operations[0]
        #: What sort of operations it is made of.
        self.kind: Kind[Any] = first.kind
        #: By which the server recognises a repetition; only of kinds that are ``numbered``.
        self.number = number
        #: Name of the record that the server keeps of this call, if it is numbered.
        self.record: str | None = None
        if number is not None:
            self.record = first.request.keys.call_record(number.series)
        #: Whether a lost reply may be asked for again.
        self.may_repeat = number is not None or first.kind.repeatable
        #: Those that wait for the operations, in the same order; none where calls are made singly.
        self.callers = callers

    @property
    def deadline(self) -> float:
        """The earliest deadline of its callers, on the event loop's clock."""
        callers = self.callers
        return callers[0].deadline if len(callers) == 1 else min([w.deadline for w in callers])

    @property
    def queue(self) -> str:
        """Name of the queue of its first operation, for the log."""
        name: str = self.operations[0].request.keys.queue
        return name

    def doubt(self) -> None:
        """Go on to another attempt: this one may have run."""
        self.in_doubt = True
        self.attempt += 1

    def finish(self, place: int, result: Any) -> Any:
        """Complete the result of the operation at *place*; raise it if it is an error."""
        if isinstance(result, Exception):
            # Several callers may be given the same one.
            raise copy(result) if isinstance(result, RSMQError) else result
        kind = self.kind
        if kind.with_start_time is not None:
            return kind.with_start_time(result, self.began_at)
        durability = self.durability
        if durability is not None and kind.with_durability is not None:
            reached = self.reached[place]
            result = kind.with_durability(result, reached)
            if not durability.met_by(reached):
                raise DurabilityUnmet(str(durability), reached, result)
        return result
