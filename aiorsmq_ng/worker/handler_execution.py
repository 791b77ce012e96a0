"""Executions of handlers: one run (decode, call, timeout, settle), and the set of those running."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from .._runtime.background_acks import BackgroundAcks, LeasedMessage
from .._runtime.prefetch import give_back, still_leased
from .._runtime.recorder import Recorder
from ..delivery import Delivery
from ..errors import ClientClosed, InvalidValue, LeaseLost, RSMQError, WrongContext
from ..models import DeadLetter
from ..telemetry.hooks import HandledOutcome
from .counters import Counters
from .handlers import DeadLetterHook, FailureHook, Middleware, QueueHandler, RmqHandler
from .shutdown import wait_until_done

logger = logging.getLogger("aiorsmq_ng.worker")

#: How long a handler may take to end after its timeout before it counts as stuck.
_CANCEL_S = 1.0
#: How long a handler that is cancelled at the end of the worker may take to end.
_ABANDON_S = 2.0
#: How long the end of the worker waits for replies to acks.
_ACKS_S = 2.0


async def call_dead_letter_hooks(letter: DeadLetter, hooks: Sequence[DeadLetterHook]) -> None:
    """Call the hooks for a dead letter."""
    for hook in hooks:
        try:
            await hook(letter)
        except Exception:
            logger.exception("a dead-letter hook failed on a message of queue %r", letter.queue)


class Execution:
    """Runs a handler on one message, or on one batch, and settles them by the outcome.

    One task does both. Its leases are registered already: they came with the messages, and each is
    removed when its message is settled. Rules for cancellation:

    1. The task is cancelled only while the handler runs: at its timeout, when a lease is lost, or
       when the worker ends. The messages are settled afterwards, by the same task.
    2. A handler that ignores its cancellation is *stuck*: its leases are not renewed any more, and
       it keeps its slot until it ends.
    3. A task that other code cancels, such as ``asyncio.run`` at its end, ends as cancelled. The
       messages are released, and no failure is counted.
    4. The worker may leave it behind at its end: nothing awaits the task any more, and it settles
       nothing. Its messages count as lost, also if rule 3 releases them later.
    """

    def __init__(
        self,
        handler: QueueHandler | RmqHandler,
        batch: list[Delivery],
        middleware: Sequence[Middleware],
        on_failure: Sequence[FailureHook],
        counters: Counters,
        acks: BackgroundAcks[LeasedMessage] | None = None,
    ) -> None:
        self.handler = handler
        #: When it began to ignore its cancellation, on the monotonic clock; None if it does not.
        self.stuck_since: float | None = None
        self._batch = batch
        self._middleware = middleware
        self._on_failure = on_failure
        self._counters = counters
        self._acks = acks
        #: True from the first step of the task; while the handler runs.
        self._begun = self._handling = False
        #: Why the handler is cancelled; True once the timeout, a lost lease or the worker did so.
        self._reason: str | None = None
        self._interrupted = self._cancelled = False
        #: When the handler began, on the performance counter, and how long it took.
        self._began_at = self._duration = 0.0
        self._left_behind = False
        #: The timeout of the handler, and how long it may take to end after a cancellation.
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def stuck(self) -> bool:
        """True while the handler ignores its cancellation."""
        return self.stuck_since is not None

    def start(self, on_end: Callable[[Execution], None]) -> None:
        """Begin; *on_end* is called when the handler has ended, or is left behind."""
        self._on_end = on_end
        for delivery in self._batch:
            delivery.lease.on_lost = self._lost
        self.task = asyncio.create_task(self._run(), name=f"aiorsmq-ng {self.handler.name}")
        self.task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancel the handler; its messages are given back."""
        self._cancelled = True
        if self._handling or not self._begun:
            self.task.cancel()

    def leave_behind(self) -> None:
        """Stop waiting for a handler that does not end; its leases run out."""
        self._left_behind = True
        self._count("lost", sum(not delivery.settled for delivery in self._batch))
        self._stop_renewal()
        if not self._handling:
            self.task.cancel()
        self._on_end(self)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._left_behind:
            return
        if self._begun:
            self._stop_renewal()
        else:
            self._counters.released += len(give_back(self._batch))
        if error is not None:
            logger.error(
                "messages of handler %s not settled", self.handler.name, exc_info=error,
                extra=self.fields(),
            )  # fmt: skip
        self._on_end(self)

    async def _run(self) -> None:
        self._begun = True
        try:
            arguments = [] if self.handler.size else self.handler.arguments(self._batch[0])
        except InvalidValue as misfit:
            # A retry would not decode it either.
            reason = str(misfit)[:500]
            settled = await self._settle_all(lambda delivery: delivery.reject(reason))
            self._count("rejected", len(settled))
            await self._report_failure(misfit, called=False)
            return
        except Exception as error:
            # The user's own type or codec raised; that is a failure like any other.
            await self._failed(error, called=False)
            return
        # Checked late: other handlers may have blocked the event loop since this one was chosen.
        taken = len(self._batch)
        self._batch[:] = still_leased(self._batch)
        self._counters.released += taken - len(self._batch)
        if not self._batch:
            return  # given back: it was too late to begin
        if self.handler.size:
            # A copy: the handler may change its list, and all messages are settled.
            arguments = [list(self._batch)]
        raised = await self._handle(arguments)
        if self._left_behind:
            return
        if raised is not None:
            await self._failed(raised)
        elif self._acks is not None and _may_ack_later(self._batch[0]):
            self._log_success()
            await self._hand_over(self._acks)
        else:
            settled = await self._settle_all(lambda delivery: delivery.ack())
            self._count("acked", len(settled))
            self._log_success()

    def _log_success(self) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            first = self._batch[0]
            logger.debug(
                "handler %s has handled message %s of queue %r in %.3f s",
                self.handler.name, first.id, first.queue, self._duration,
                extra=self.fields(outcome=first.outcome or "acked"),
            )  # fmt: skip

    def fields(self, delivery: Delivery | None = None, **more: Any) -> dict[str, Any]:
        """Return what a log record says about *delivery*, or about the first message."""
        about = delivery or self._batch[0]
        if self._handling:
            self._duration = time.perf_counter() - self._began_at
        return {
            "queue": about.queue,
            "message_id": about.id,
            "rc": about.rc,
            "handler": self.handler.name,
            "count": len(self._batch),
            "duration": self._duration,
            **more,
        }

    async def _hand_over(self, acks: BackgroundAcks[LeasedMessage]) -> None:
        """Have the messages acked in the background that the handler did not settle."""
        self._count_settled()
        for delivery in self._batch:
            if not delivery.settled:
                await acks.ack(delivery)

    def _count(self, outcome: HandledOutcome, count: int) -> None:
        self._counters.handled(self.handler.ns, self.handler.queue.name, outcome, count)

    def _count_settled(self) -> None:
        """Count the messages that the handler settled by itself."""
        ns, queue = self.handler.ns, self.handler.queue.name
        for delivery in self._batch:
            self._counters.settled_by_handler(ns, queue, delivery.outcome)

    async def _handle(self, arguments: list[Any]) -> BaseException | None:
        """Call the handler, and return what it raised, or why it was cancelled."""
        if self.handler.timeout is not None:
            limit = asyncio.get_running_loop().call_later(self.handler.timeout, self._time_over)
            self._timers.append(limit)
        error: BaseException | None = None
        self._handling, self._began_at = True, time.perf_counter()
        try:
            call, recorder = self._call(0, arguments), self._counters.recorder
            await (call if recorder is None else self._observed(call, recorder))
        except Exception as raised:
            error = raised
        except asyncio.CancelledError as raised:
            if self._cancelled_from_outside():
                self._release_nowait()
                raise
            error = raised
        except BaseException:
            # It ends the process: nothing can be awaited any more.
            self._release_nowait()
            raise
        finally:
            self._handling, self.stuck_since = False, None
            self._duration = time.perf_counter() - self._began_at
            for timer in self._timers:
                timer.cancel()
        if self._interrupted or self._cancelled or error is not None:
            return self._cause(error)
        return None

    def _cause(self, error: BaseException | None) -> BaseException | None:
        """Return the error of a handler that raised *error*, or was interrupted."""
        # The rest of this task is not cancelled.
        while self.task.cancelling():
            self.task.uncancel()
        if error is None or isinstance(error, asyncio.CancelledError):
            if self._reason is not None:
                return TimeoutError(self._reason)
            if not self._cancelled:
                return RuntimeError("the handler was cancelled from inside")
        return error

    def _cancelled_from_outside(self) -> bool:
        """Return True if code outside this class has cancelled the task.

        ``asyncio.run`` does so at its end. A handler that awaits a cancelled task raises
        ``CancelledError``, too, but nothing has cancelled the handler's own task then.
        """
        return self.task.cancelling() > self._interrupted + self._cancelled

    def _release_nowait(self) -> None:
        """Start to release unsettled messages, without waiting; a closed client cannot."""
        for delivery in self._batch:
            if not delivery.settled:
                if not self._left_behind:  # counted as lost then
                    self._count("released", 1)
                with suppress(ClientClosed, WrongContext):
                    delivery.release_nowait()

    async def _observed(self, call: Awaitable[Any], recorder: Recorder) -> None:
        """Await the call of the handler in the contexts of telemetry."""
        handler, batch = self.handler, list(self._batch)
        with recorder.processing(handler.ns, handler.queue.name, batch, handler.name):
            await call

    async def _call(self, depth: int, arguments: list[Any]) -> Any:
        if depth == len(self._middleware):
            return await self.handler.function(*arguments)
        call_next = partial(self._call, depth + 1, arguments)
        return await self._middleware[depth](self._batch[0], call_next)

    def _lost(self) -> None:
        self._interrupt("the lease was lost")

    def _time_over(self) -> None:
        self._interrupt(f"it took longer than {self.handler.timeout:g} s")

    def _interrupt(self, reason: str) -> None:
        # In the next tick: a handler whose last step is scheduled already ends by itself. The fence
        # decides if its lease held long enough.
        asyncio.get_running_loop().call_soon(self._cancel_handler, reason)

    def _cancel_handler(self, reason: str) -> None:
        if self._handling and not self._interrupted:
            self._interrupted, self._reason = True, reason
            self.task.cancel()
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(_CANCEL_S, self._mark_stuck))

    def _mark_stuck(self) -> None:
        self.stuck_since = time.monotonic()
        self._stop_renewal()
        logger.error("handler %s ignores its cancellation", self.handler.name, extra=self.fields())

    async def _failed(self, error: BaseException, *, called: bool = True) -> None:
        settled = await self._settle_all(lambda delivery: delivery.settle(error))
        if isinstance(error, Exception):
            gone = sum(delivery.outcome == "rejected" for delivery in settled)
            self._count("rejected", gone)
            self._count("failed", len(settled) - gone)
            await self._report_failure(error, called=called)
        else:
            self._count("released", len(settled))
            self._counters.released += len(settled)

    async def _settle_all(self, settle: Callable[[Delivery], Any]) -> list[Delivery]:
        """Settle the messages that the handler did not settle, and return those that were settled.

        All are submitted together, so that they share calls.
        """
        self._count_settled()
        open_ = [delivery for delivery in self._batch if not delivery.settled]
        if len(open_) == 1:
            outcomes = [await _outcome_of(settle(open_[0]))]
        else:
            outcomes = await asyncio.gather(*(settle(d) for d in open_), return_exceptions=True)
        self._stop_renewal()
        for delivery, outcome in zip(open_, outcomes, strict=True):
            if isinstance(outcome, LeaseLost):
                logger.warning("%s", outcome, extra=self.fields(delivery))
            elif isinstance(outcome, RSMQError):
                logger.error(
                    "message %s could not be settled: %s", delivery.id, outcome,
                    extra=self.fields(delivery),
                )  # fmt: skip
            elif isinstance(outcome, BaseException):
                raise outcome
        settled = [d for d, outcome in zip(open_, outcomes, strict=True) if outcome is None]
        self._count("lost", len(open_) - len(settled))
        return settled

    def _stop_renewal(self) -> None:
        """Stop renewing the leases of unsettled messages: the handler no longer works on them."""
        for delivery in self._batch:
            if not delivery.settled:
                delivery.let_go()

    async def _report_failure(self, error: Exception, *, called: bool) -> None:
        first = self._batch[0]
        self._counters.note(error)
        # The text of a misfit names fields and rules, and no values.
        misfit = isinstance(error, InvalidValue) and not called
        logger.warning(
            "handler %s %s message %s of queue %r (delivery %d): %s",
            self.handler.name, "failed on" if called else "was not called for",
            first.id, first.queue, first.rc, str(error)[:500] if misfit else type(error).__name__,
            exc_info=None if misfit else error,
            extra=self.fields(outcome=first.outcome, error=type(error).__name__),
        )  # fmt: skip
        for hook in self._on_failure:
            for delivery in self._batch:
                try:
                    await hook(delivery, error)
                except Exception:
                    logger.exception("a failure hook failed")


class Executions:
    """The running handlers, at most *concurrency*."""

    def __init__(
        self,
        concurrency: int,
        middleware: Sequence[Middleware],
        on_failure: Sequence[FailureHook],
        counters: Counters,
    ) -> None:
        self.concurrency = concurrency
        # First in, first out.
        self.slots = asyncio.Semaphore(concurrency)
        self.running: set[Execution] = set()
        #: Handlers that did not end when the worker did, by queue.
        self.left_behind: Counter[str] = Counter()
        self.counters = counters
        #: Acks what handlers have done; without it, each waits for its own acks.
        self.acks: BackgroundAcks[LeasedMessage] | None = None
        self._middleware = middleware
        self._on_failure = on_failure

    def start(self, handler: QueueHandler | RmqHandler, batch: list[Delivery]) -> Execution:
        """Run *handler* on *batch*, in a slot that the caller has acquired."""
        execution = Execution(
            handler, batch, self._middleware, self._on_failure, self.counters, self.acks
        )
        self.running.add(execution)
        execution.start(on_end=self._ended)
        return execution

    async def drain(self, within_s: float, grace_over: asyncio.Event) -> None:
        """Wait until all have ended, or *grace_over* is set; at most *within_s* seconds."""
        if self.running:
            logger.info(
                "stopping: %d handlers have %g s to end", len(self.running), within_s,
                extra={"running": len(self.running), "seconds": within_s},
            )  # fmt: skip
            await wait_until_done([e.task for e in self.running], within_s, grace_over)

    @property
    def stuck_for(self) -> float:
        """Seconds for which a handler has ignored its cancellation; the longest."""
        since = [e.stuck_since for e in self.running if e.stuck_since is not None]
        return time.monotonic() - min(since) if since else 0.0

    async def finish_acks(self) -> None:
        """Wait for the replies to acks in the background, for some seconds at most.

        The calls go on afterwards.
        """
        if self.acks is not None:
            with anyio.move_on_after(_ACKS_S):
                await self.acks.drain()

    async def abandon(self) -> None:
        """Cancel all handlers and give their messages back; leave behind those that do not end."""
        running = list(self.running)
        for execution in running:
            execution.cancel()
        if running:
            await asyncio.wait([e.task for e in running], timeout=_ABANDON_S)
        for execution in list(self.running):
            logger.error(
                "handler %s does not end and is left behind", execution.handler.name,
                extra=execution.fields(),
            )  # fmt: skip
            execution.leave_behind()
            self.left_behind[execution.handler.queue.name] += 1

    def _ended(self, execution: Execution) -> None:
        self.running.discard(execution)
        self.slots.release()


def _may_ack_later(delivery: Delivery) -> bool:
    """Return True if its ack need not be answered before the next handler begins.

    A suspect is handled alone. Deliveries of rmq are settled one by one.
    """
    return isinstance(delivery, Delivery) and not delivery.suspect


async def _outcome_of(settling: Awaitable[None]) -> BaseException | None:
    try:
        await settling
    except Exception as error:
        return error
    return None
