"""One handler at work on one message, or on one batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._runtime.prefetch import still_leased
from ..delivery import Delivery, Outcome
from ..errors import InvalidValue, LeaseLost, RSMQError
from ..models import DeadLetter
from .routes import DeadLetterHook, FailureHook, Middleware, Route

logger = logging.getLogger("aiorsmq_ng.worker")

#: How long a handler that ran out of time may take to end before it counts as stuck.
_CANCEL_S = 1.0


@dataclass(slots=True)
class Tally:
    """What became of messages."""

    done: int = 0
    failed: int = 0
    rejected: int = 0
    last_error: str | None = None

    def count(self, outcome: Outcome | None) -> None:
        """Count a message that its handler settled by itself."""
        if outcome in ("acked", "forwarded"):
            self.done += 1
        elif outcome == "released":
            self.failed += 1
        elif outcome == "rejected":
            self.rejected += 1

    def note(self, error: BaseException) -> None:
        """Remember what went wrong last."""
        self.last_error = in_one_line(error)


def in_one_line(error: BaseException) -> str:
    """Return an error as text for a health check."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:500]


async def tell(letter: DeadLetter, hooks: Sequence[DeadLetterHook]) -> None:
    """Call the hooks for a dead letter."""
    for hook in hooks:
        try:
            await hook(letter.message, letter.reason)
        except Exception:
            logger.exception("a dead-letter hook failed itself")


class Job:
    """Runs a handler, in a task of its own, and settles its messages by the outcome.

    The handler runs in another task again: one that swallows its cancellation can then be left
    behind without holding up anything but its slot.
    """

    def __init__(
        self,
        route: Route,
        batch: list[Delivery],
        middleware: Sequence[Middleware],
        on_failure: Sequence[FailureHook],
        tally: Tally,
    ) -> None:
        self.route = route
        self.stuck = False
        self._batch = batch
        self._middleware = middleware
        self._on_failure = on_failure
        self._tally = tally
        self._handling: asyncio.Task[Any] | None = None
        self._reason: str | None = None
        self._noticed: asyncio.Future[None] | None = None
        self._cancelled = False
        self._begun = False

    def start(self, on_end: Callable[[Job], None]) -> None:
        """Begin; *on_end* is called when the handler has ended."""
        for delivery in self._batch:
            delivery.hold(self._lost)
        self.task = asyncio.create_task(self._run(), name=f"aiorsmq-ng {self.route.name}")
        self.task.add_done_callback(lambda task: self._ended(task, on_end))

    def cancel(self) -> None:
        """Cancel the handler; its messages are given back."""
        self._cancelled = True
        if self._handling is not None and not self._handling.done():
            self._handling.cancel()
        elif self._handling is None:
            self.task.cancel()

    def leave_behind(self) -> None:
        """Stop waiting for a handler that does not end; its leases run out."""
        self._drop()
        self.task.cancel()

    def _ended(self, task: asyncio.Task[None], on_end: Callable[[Job], None]) -> None:
        # However it ended: nobody works on these messages any more.
        self._drop()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("messages of handler %s not settled", self.route.name, exc_info=error)
        on_end(self)

    def _lost(self) -> None:
        self._reason = "the lease was lost"
        self._notice()

    def _notice(self, _: object = None) -> None:
        """Have the job look: its handler has ended, or must."""
        if self._noticed is not None and not self._noticed.done():
            self._noticed.set_result(None)

    async def _run(self) -> None:
        try:
            arguments = self._arguments()
        except InvalidValue as misfit:
            # It will not decode the next time either.
            reason = str(misfit)[:500]
            settled = await self._settle_all(lambda delivery: delivery.reject(reason))
            self._tally.rejected += len(settled)
            await self._note(misfit)
            return
        except Exception as error:
            # The user's own type or codec raised; that is a failure like any other.
            await self._failed(error)
            return
        self._handling = asyncio.create_task(self._handle(arguments))
        raised = await self._outcome(self._handling)
        if not self._begun and self._reason:
            self._batch[:] = still_leased(self._batch)
        if not self._batch:
            return  # given back: it was too late to begin
        if raised is None:
            settled = await self._settle_all(lambda delivery: delivery.ack())
            self._tally.done += len(settled)
        else:
            await self._failed(raised)

    def _arguments(self) -> list[Any]:
        if self.route.size:
            return [self._batch]
        return self.route.arguments(self._batch[0])

    async def _handle(self, arguments: list[Any]) -> None:
        async def call(depth: int) -> Any:
            if depth < len(self._middleware):
                return await self._middleware[depth](self._batch[0], lambda: call(depth + 1))
            return await self.route.handler(*arguments)

        # The last moment: other handlers may have blocked the event loop since this one was chosen.
        self._batch[:] = still_leased(self._batch)
        if self._batch:
            self._begun = True
            await call(0)

    async def _outcome(self, handling: asyncio.Task[Any]) -> BaseException | None:
        """Wait for the handler, cancel it when its time is over, and return what it raised."""
        # A future and a timer: asyncio.wait, with a task that waits for the lease, takes as long as
        # all the rest of a job.
        loop = asyncio.get_running_loop()
        self._noticed = loop.create_future()
        handling.add_done_callback(self._notice)
        limit = None
        if self.route.timeout is not None:
            limit = loop.call_later(self.route.timeout, self._notice)
        if self._reason is not None:
            self._notice()
        try:
            await self._noticed
        finally:
            if limit is not None:
                limit.cancel()
        if not handling.done():
            self._reason = self._reason or f"it took longer than {self.route.timeout:g} s"
            handling.cancel()
            await asyncio.wait([handling], timeout=_CANCEL_S)
            if not handling.done():
                self.stuck = True
                self._drop()
                logger.error("handler %s ignores its cancellation", self.route.name)
                await asyncio.wait([handling])
                self.stuck = False
        elif not handling.cancelled():
            # It ended by itself. Whether the lease held long enough is for the fence to say.
            return handling.exception()
        if handling.cancelled():
            if self._reason is not None:
                return TimeoutError(self._reason)
            if self._cancelled:
                return asyncio.CancelledError()
            return RuntimeError("the handler was cancelled from inside")
        error = handling.exception()
        return TimeoutError(self._reason) if error is None and self._reason else error

    async def _failed(self, error: BaseException) -> None:
        retry = self.route.retry
        settled = await self._settle_all(lambda delivery: delivery.settle(error))
        if isinstance(error, Exception):
            gone = sum(retry.gives_up(delivery.attempt) for delivery in settled)
            self._tally.rejected += gone
            self._tally.failed += len(settled) - gone
            await self._note(error)

    async def _settle_all(self, settle: Callable[[Delivery], Any]) -> list[Delivery]:
        """Settle what the handler did not settle itself, and return those where it worked.

        All at once, so that they share calls.
        """
        for delivery in self._batch:
            self._tally.count(delivery.outcome)
        open_ = [delivery for delivery in self._batch if not delivery.settled]
        if len(open_) == 1:
            outcomes = [await _outcome_of(settle(open_[0]))]
        else:
            outcomes = await asyncio.gather(*(settle(d) for d in open_), return_exceptions=True)
        self._drop()
        for delivery, outcome in zip(open_, outcomes, strict=True):
            if isinstance(outcome, LeaseLost):
                logger.warning("%s", outcome)
            elif isinstance(outcome, RSMQError):
                logger.error("message %s could not be settled: %s", delivery.id, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        return [d for d, outcome in zip(open_, outcomes, strict=True) if outcome is None]

    def _drop(self) -> None:
        for delivery in self._batch:
            delivery.let_go()

    async def _note(self, error: Exception) -> None:
        first = self._batch[0]
        self._tally.note(error)
        logger.warning(
            "handler %s failed on message %s of queue %r (delivery %d): %s",
            self.route.name, first.id, first.queue, first.rc, type(error).__name__,
            exc_info=None if isinstance(error, InvalidValue) else error,
        )  # fmt: skip
        for hook in self._on_failure:
            for delivery in self._batch:
                try:
                    await hook(delivery, error)
                except Exception:
                    logger.exception("a failure hook failed itself")


async def _outcome_of(settling: Awaitable[None]) -> BaseException | None:
    try:
        await settling
    except Exception as error:
        return error
    return None
