"""Lost receives are recalled: what their calls took is given back. Interrupted calls are finished.

What such a call took is given back by another call with the same number (a *recall*), so that it
does not stay leased for callers that got an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._common.tasks import TaskGroup
from ..errors import ClientClosed, RSMQError
from .driver import NotExecuted, ReplyLost

if TYPE_CHECKING:
    from .call import Call
    from .call_numbers import CallNumbers
    from .call_retries import Retries
    from .call_runner import BackgroundTasks

logger = logging.getLogger("aiorsmq_ng.transport")

#: Makes a call and hands its callers their results.
Complete = Callable[["Call"], Awaitable[None]]

#: Calls with an unknown outcome that are recalled at the same time, each for another deadline.
MAX_RECALLS = 64


class LostCalls:
    """Recalls calls whose outcome is unknown, and finishes calls whose tasks were cancelled."""

    def __init__(
        self, retries: Retries, tasks: BackgroundTasks, numbers: CallNumbers, *, deadline_s: float
    ) -> None:
        self._retries = retries
        self._tasks = tasks
        self._numbers = numbers
        self._deadline_s = deadline_s
        self._recalls = 0
        #: Calls whose tasks were cancelled: those that may have taken messages, and those whose
        #: operations are still wanted.
        self._interrupted: set[Call] = set()

    def begin_recall(self, call: Call) -> None:
        """Give back in the background what *call* took, if it may have taken anything."""
        if call.number and call.kind.undo and self._recalls < MAX_RECALLS:
            with suppress(ClientClosed):  # the client is being closed
                self._tasks.spawn(self._recall, call)
                self._recalls += 1

    async def finish_interrupted(self, complete: Complete) -> None:
        """Finish calls whose tasks were cancelled: give back what they took, or repeat them."""
        async with TaskGroup() as tasks:
            for call in tuple(self._interrupted):
                tasks.start_soon(self._finish, call, complete)

    def abandon_interrupted(self) -> None:
        """Fail the callers of interrupted calls: the client has ended."""
        for call in self._interrupted:
            _fail_interrupted(call)
        self._interrupted.clear()

    def interrupt(self, call: Call) -> None:
        """Keep a call whose task is cancelled, if it has to be finished by another one."""
        self._numbers.keep_record(call)
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

    async def _finish(self, call: Call, complete: Complete) -> None:
        if call.kind.undo:
            self._recalls += 1
            await self._recall(call)
        else:
            await complete(call)
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
        self._numbers.release(call)

    def _report(self, call: Call, results: list[Any]) -> None:
        """Report the events in the results of a recall; its messages are given back already."""
        if call.kind.events is not None:
            for result in results:
                if not isinstance(result, Exception):
                    self._tasks.report(call.kind.events(result))


def _fail_interrupted(call: Call) -> None:
    text = "the client was closed while the call ran"
    for waiting in call.callers:
        waiting.fail(call.kind.unknown(text, executed=None))
