"""Calls: the call that operations share, its idempotency key, and how results reach callers.

The server keeps a record of the last call of a *series*, by which it recognises a repetition. So a
series must not begin a call before the outcome of the previous one is known. A call whose outcome
stays unknown keeps its series for good (it is parked), so that a later repetition finds its record.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from copy import copy
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from msgspec import Struct

from .._common.durability import Durability
from .._protocol.operation import Kind, Operation
from ..errors import (
    ClientClosed,
    DurabilityUnmet,
    InvalidValue,
    RSMQError,
    SendToken,
    SendUnknown,
    Unavailable,
)
from .call_retries import Retries
from .driver import NotExecuted, ReplyLost

if TYPE_CHECKING:
    from .batching import PendingOperation

logger = logging.getLogger("aiorsmq_ng.transport")

#: Calls with an unknown outcome that are recalled at the same time, each for another deadline.
MAX_RECALLS = 64
#: How long closing may take to remove call records.
FORGET_S = 2.0
#: Call records that are removed when the client is closed; more are left to expire.
MAX_RECORDS = 10_000
#: How long the token of a send can be used; the server keeps its record for an hour.
TOKEN_S = 3300.0


class CallNumber(Struct, frozen=True):
    """One call of a series."""

    series: str
    number: int


class CallNumbers:
    """Allocates call numbers: of an idle series if there is one, else of a new one.

    The series last used is used first, so a client that makes one call at a time has one series,
    and one call record for each queue.
    """

    def __init__(self) -> None:
        self._idle: list[CallNumber] = []
        self._restart()

    def take(self) -> CallNumber:
        """Return the number of the next call of a series without a call in flight."""
        if os.getpid() != self._pid:
            # A child process must not continue the series of its parent.
            self._restart()
        if not self._idle:
            return CallNumber(f"{self._name}-{next(self._numbers)}", 1)
        last = self._idle.pop()
        return CallNumber(last.series, last.number + 1)

    def settle(self, number: CallNumber) -> None:
        """Make the series idle again: the outcome of its last call is known."""
        if number.series.startswith(self._name):
            self._idle.append(number)

    def _restart(self) -> None:
        self._idle.clear()
        self._pid = os.getpid()
        self._name = os.urandom(8).hex()
        self._numbers = count()


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


class CallToken(SendToken):
    """Stands for one send of a call whose outcome is not known."""

    __slots__ = ("call", "expires_at", "issuer", "place")

    def __init__(self, issuer: object, call: Call, place: int, expires_at: float) -> None:
        self.issuer = issuer
        self.call = call
        self.place = place
        #: When the server may have forgotten the call, on the event loop's clock.
        self.expires_at = expires_at


class BackgroundTasks(Protocol):
    """Background work for the runner of calls."""

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Run a task that ends with the client; ``ClientClosed`` if that is closed."""

    def undo(self, operation: Operation[Any], result: Any) -> None:
        """Undo what *operation* did for a cancelled caller."""

    def report(self, events: Sequence[Any]) -> None:
        """Report events that results carry, such as dead letters."""


class CallRunner:
    """Makes calls, and gives each caller the result of its operation."""

    def __init__(self, retries: Retries, tasks: BackgroundTasks, *, deadline_s: float) -> None:
        self._retries = retries
        self._tasks = tasks
        self._deadline_s = deadline_s
        self._numbers = CallNumbers()
        self._recalls = 0
        # Records that are removed when the client is closed; not those that an attempt which may
        # still arrive must find.
        self._records: set[str] = set()
        self._doubtful: set[str] = set()
        #: Calls whose tasks were cancelled: those that may have taken messages, and those whose
        #: operations are still wanted.
        self._interrupted: set[Call] = set()

    async def run(self, batch: list[PendingOperation]) -> None:
        """Make the call that *batch* shares, and hand every caller its result or error."""
        number = self._numbers.take() if batch[0].operation.kind.numbered else None
        await self._complete(Call([waiting.operation for waiting in batch], number, batch))

    async def _complete(self, call: Call) -> None:
        batch, unknown = call.callers, call.kind.unknown
        try:
            results = await self._retries.make(call, min([w.deadline for w in batch]))
            self._release_number(call)
            self._hand_out(call, results)
        except RSMQError as error:
            cause = error
            self._release_number(call)
            _fail_all(batch, lambda: copy(cause))
        except NotExecuted as error:
            text = gave_up(error, self._deadline_s, self._retries.peer)
            self._release_number(call)
            _fail_all(batch, lambda: Unavailable(text, transient=True))
        except ReplyLost as error:
            self._leave_open(call, f"the reply was lost, so the outcome is not known: {error}")
        except Exception as error:
            # A bug here or in the driver must not end the whole client.
            logger.exception(
                "%r on queue %r failed in an unexpected way; please report it",
                call.kind.name,
                call.queue,
            )
            self._keep_record(call)
            text = f"the call failed in an unexpected way ({type(error).__name__})"
            _fail_all(batch, lambda: unknown(text, executed=None))
        except BaseException:
            self._interrupt(call)
            raise

    async def forget(self) -> None:
        """Remove records of calls that will not be repeated; the rest expires."""
        records = sorted(self._records - self._doubtful)
        self._records.clear()
        deadline = asyncio.get_running_loop().time() + FORGET_S
        if records:
            with suppress(RSMQError, NotExecuted, ReplyLost):
                await self._retries.ask(lambda driver: driver.forget(records), deadline)

    async def resume(self, token: SendToken) -> Any:
        """Repeat the call of *token*, and return the result of the send."""
        if not isinstance(token, CallToken) or token.issuer is not self:
            raise InvalidValue(
                "the token is not of a send by this client; pass it to the client that raised it"
            )
        if asyncio.get_running_loop().time() >= token.expires_at:
            raise InvalidValue(
                f"the token is older than {TOKEN_S / 60:g} minutes, so the server may have dropped "
                "its record of the send; check if the message is there before you send it again"
            )
        call = token.call
        if call.outcome is None:
            outcome: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._resume, call, outcome)
            call.outcome = outcome
        try:
            results = await asyncio.shield(call.outcome)
        except ReplyLost as error:
            raise self._unknown(call, token.place, str(error), token) from None
        return call.finish(token.place, results[token.place])

    def _release_number(self, call: Call) -> None:
        """Make the series idle again, and remember its record to be removed at the end."""
        if call.number is None:
            return
        self._numbers.settle(call.number)
        if call.in_doubt:
            self._keep_record(call)
        elif (record := call.record) is not None and len(self._records) < MAX_RECORDS:
            self._records.add(record)

    def _keep_record(self, call: Call) -> None:
        """Exclude the record from removal: an attempt that may still arrive must find it."""
        if (record := call.record) is not None:
            self._doubtful.add(record)

    def _leave_open(self, call: Call, text: str) -> None:
        """Fail the callers of a call whose outcome is not known; its series stays parked."""
        self._keep_record(call)
        for place, waiting in enumerate(call.callers):
            waiting.fail(self._unknown(call, place, text))
        if call.number and call.kind.undo and self._recalls < MAX_RECALLS:
            with suppress(ClientClosed):  # the client is being closed
                self._tasks.spawn(self._recall, call)
                self._recalls += 1

    def _unknown(
        self, call: Call, place: int, text: str, token: SendToken | None = None
    ) -> Unavailable:
        error = call.kind.unknown(text, executed=None, transient=True)
        if isinstance(error, SendUnknown) and call.number is not None:
            expires_at = asyncio.get_running_loop().time() + TOKEN_S
            error.token = token or CallToken(self, call, place, expires_at)
        return error

    async def finish_interrupted(self) -> None:
        """Finish calls whose tasks were cancelled: give back what they took, or repeat them."""
        async with anyio.create_task_group() as tasks:
            for call in tuple(self._interrupted):
                tasks.start_soon(self._finish, call)

    def abandon_interrupted(self) -> None:
        """Fail the callers of interrupted calls: the client has ended."""
        for call in self._interrupted:
            _fail_interrupted(call)
        self._interrupted.clear()

    def _interrupt(self, call: Call) -> None:
        """Keep a call whose task is cancelled, if it has to be finished by another one."""
        self._keep_record(call)
        if call.kind.undo:
            _fail_interrupted(call)
            self._interrupted.add(call)
        elif call.written and not call.may_repeat:
            _fail_interrupted(call)
        elif any(waiting.is_wanted for waiting in call.callers):
            # The command may be lost with its connection.
            if call.written:
                call.doubt()
            self._interrupted.add(call)

    async def _finish(self, call: Call) -> None:
        if call.kind.undo:
            self._recalls += 1
            await self._recall(call)
        else:
            await self._complete(call)
        self._interrupted.discard(call)

    async def _recall(self, call: Call) -> None:
        """Give back what a call took whose callers got an error: its outcome is unknown."""
        call.recall = True
        try:
            within = asyncio.get_running_loop().time() + self._deadline_s
            results = await self._retries.make(call, within)
            self._report(call, results)
        except (RSMQError, NotExecuted, ReplyLost) as error:
            logger.debug(
                "leases of a lost call on queue %r are not given back, they end by themselves: %s",
                call.queue, error,
            )  # fmt: skip
            return
        except Exception:
            # If it were raised, it would end all tasks of the client.
            logger.exception(
                "a recall on queue %r failed in an unexpected way; please report it", call.queue
            )
            return
        finally:
            self._recalls -= 1
        self._release_number(call)

    async def _resume(self, call: Call, outcome: asyncio.Future[list[Any]]) -> None:
        until = asyncio.get_running_loop().time() + self._deadline_s
        try:
            results = await self._retries.make(call, until)
        except (RSMQError, NotExecuted, ReplyLost) as error:
            call.outcome = None
            outcome.set_exception(ReplyLost(str(error)))
            outcome.exception()
        except Exception as error:
            # If it were raised, it would end all tasks of the client.
            logger.exception(
                "a resumed send to queue %r failed in an unexpected way; please report it",
                call.queue,
            )
            call.outcome = None
            text = f"the call failed in an unexpected way ({type(error).__name__})"
            outcome.set_exception(ReplyLost(text))
            outcome.exception()
        except BaseException:
            outcome.cancel()
            raise
        else:
            self._release_number(call)
            outcome.set_result(results)

    def _hand_out(self, call: Call, results: list[Any]) -> None:
        """Give each caller its result or error; undo what was done for cancelled callers."""
        finish, events = call.finish, call.kind.events
        for place, (waiting, found) in enumerate(zip(call.callers, results, strict=True)):
            try:
                result = finish(place, found)
            except RSMQError as error:
                waiting.fail(error)
            except Exception as error:
                logger.exception(
                    "the reply to %r on queue %r could not be decoded; please report it",
                    call.kind.name,
                    waiting.operation.request.keys.queue,
                    exc_info=error,
                )
                waiting.fail(call.kind.unknown("the reply could not be read", executed=None))
            else:
                if waiting.future.done():
                    self._tasks.undo(waiting.operation, result)
                else:
                    waiting.future.set_result(result)
                if events is not None and (found_events := events(result)):
                    self._tasks.report(found_events)

    def _report(self, call: Call, results: list[Any]) -> None:
        """Report the events in the results of a recall; its messages are given back already."""
        if call.kind.events is not None:
            for result in results:
                if not isinstance(result, Exception):
                    self._tasks.report(call.kind.events(result))


def _fail_interrupted(call: Call) -> None:
    text = "the client was closed while the call ran"
    _fail_all(call.callers, lambda: call.kind.unknown(text, executed=None))


def _fail_all(batch: Sequence[PendingOperation], error: Callable[[], Exception]) -> None:
    for waiting in batch:
        waiting.fail(error())


def gave_up(error: Exception, deadline_s: float, peer: str) -> str:
    """Say that *peer* could not be reached, and for how long it was tried."""
    who = getattr(error, "who", "") or peer
    return f"{who} cannot be reached: {error} (gave up after {deadline_s:g} s)"
