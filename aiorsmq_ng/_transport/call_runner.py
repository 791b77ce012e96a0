"""Makes calls: gives each a number, has it made until it is answered, and hands out the results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from .._protocol.operation import Operation
from ..errors import ClientClosed, RSMQError, Unavailable
from .call import Call
from .call_numbers import CallNumbers
from .call_retries import Retries
from .driver import NotExecuted, ReplyLost
from .lost_receives import LostCalls
from .send_tokens import SendTokens

if TYPE_CHECKING:
    from .batching import PendingOperation

logger = logging.getLogger("aiorsmq_ng.transport")

#: How long closing may take to remove call records.
FORGET_S = 2.0


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
        #: Calls with an unknown outcome.
        self.lost = LostCalls(retries, tasks, self._numbers, deadline_s=deadline_s)
        #: Sends among them, which their callers may repeat.
        self.tokens = SendTokens(retries, tasks, self._numbers, deadline_s=deadline_s)

    def number(self, batch: list[PendingOperation]) -> Call:
        """Return the call that *batch* shares, with a number if its kind has one."""
        number = self._numbers.take() if batch[0].operation.kind.numbered else None
        return Call([waiting.operation for waiting in batch], number, batch)

    async def complete(self, call: Call) -> None:
        """Make *call*, and hand every caller its result or error."""
        try:
            self.settle(call, await self._retries.make(call, call.deadline))
        except Exception as error:
            self.fail(call, error)
        except BaseException:
            self.lost.interrupt(call)
            raise

    def settle(self, call: Call, results: list[Any]) -> None:
        """Hand every caller of *call* its result."""
        self._numbers.release(call)
        self._hand_out(call, results)

    def fail(self, call: Call, error: Exception) -> None:
        """Hand every caller of *call* an error of its own: *error* is how the call has ended."""
        batch, unknown = call.callers, call.kind.unknown
        if isinstance(error, RSMQError):
            self._numbers.release(call)
            _fail_all(batch, lambda: copy(error))
        elif isinstance(error, NotExecuted):
            text = gave_up(error, self._deadline_s, self._retries.peer)
            self._numbers.release(call)
            _fail_all(batch, lambda: Unavailable(text, transient=True))
        elif isinstance(error, ReplyLost):
            self._leave_open(call, f"the reply was lost, so the outcome is not known: {error}")
        else:
            # A bug here or in the driver must not end the whole client.
            logger.error(
                "%r on queue %r failed in an unexpected way; please report it",
                call.kind.name,
                call.queue,
                exc_info=error,
            )
            self._numbers.keep_record(call)
            text = f"the call failed in an unexpected way ({type(error).__name__})"
            _fail_all(batch, lambda: unknown(text, executed=None))

    def abandon(self, call: Call) -> None:
        """Give up *call*, which no runner makes any more: the client ends."""
        if call.written:
            self.lost.interrupt(call)
        else:
            _fail_all(call.callers, never_made)

    async def forget(self) -> None:
        """Remove records of calls that will not be repeated; the rest expires."""
        records = self._numbers.take_records()
        deadline = asyncio.get_running_loop().time() + FORGET_S
        if records:
            with suppress(RSMQError, NotExecuted, ReplyLost):
                await self._retries.ask(lambda driver: driver.forget(records), deadline)

    def _leave_open(self, call: Call, text: str) -> None:
        """Fail the callers of a call whose outcome is not known; its series stays parked."""
        self._numbers.keep_record(call)
        for place, waiting in enumerate(call.callers):
            waiting.fail(self.tokens.unknown(call, place, text))
        self.lost.begin_recall(call)

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


def never_made() -> ClientClosed:
    """Return the error of a caller whose call was not written when the client was closed."""
    return ClientClosed("the client was closed before the call was made")


def _fail_all(batch: Sequence[PendingOperation], error: Callable[[], Exception]) -> None:
    for waiting in batch:
        waiting.fail(error())


def gave_up(error: Exception, deadline_s: float, peer: str) -> str:
    """Say that *peer* could not be reached, and for how long it was tried."""
    who = getattr(error, "who", "") or peer
    return f"{who} cannot be reached: {error} (gave up after {deadline_s:g} s)"
