"""The worker: receives from several queues and runs their handlers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any, Literal, TypeVar

from .._common.durations import Duration, Seconds, at_least_0, in_seconds
from .._runtime.background_acks import BackgroundAcks, LeaseAcks, LeasedMessage, is_background
from .._runtime.dead_letter_listeners import log_move
from .._runtime.queue_context import context_of
from .._runtime.recorder import recorder_of
from ..client import RSMQ
from ..errors import ClientClosed, InvalidValue
from ..models import DeadLetter, ServerStatus
from ..queue import Queue
from ..retry import Retry
from ..rmq import Rmq, RmqQueue
from .counters import Counters, one_line
from .gauges import WorkerGauges
from .handler_execution import Executions, call_dead_letter_hooks
from .handler_registry import HandlerRegistry
from .handlers import (
    D,
    DeadLetterHook,
    F,
    FailureHook,
    H,
    Hook,
    K,
    M,
    Middleware,
    check_coroutine_function,
)
from .health import State, WorkerHealth
from .intake import Intake
from .shutdown import first_of, run_to_completion
from .signals import stopped_by_signals
from .startup import check_queues, find_queues, open_rmq_queues

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.worker")

#: How long the worker's end waits for its intake, and for hooks that still run.
_INTAKE_S, _HOOKS_S = 4.0, 2.0


class Worker:
    """Runs handlers for messages of one or more queues.

    A *suspect* is a message whose last delivery vanished with its holder. It is handled alone: the
    worker holds no other message meanwhile. It keeps other messages waiting for at most ``alone``
    seconds before it begins, and as long while it runs.

    For a queue that exists, the worker needs only the permissions of a consumer. An error that is
    not transient, such as a refused password, ends ``run`` at once.

    Args:
        rsmq: a client of yours, which stays open, or a URL; by default as for ``RSMQ``.
        concurrency: how many handlers run at a time.
        grace: seconds that handlers have to end after a stop.
        prefetch: how many messages are leased ahead; by default as many as ``concurrency``.
        order: serve queues in the order of their handlers, or in a random order by their weights.
        create: create missing queues; if not, ``run`` raises ``QueueNotFound``, also for a missing
            dead-letter queue.
        wait_for_server: seconds to wait for an unavailable server at the start; ``None`` for ever,
            0 for one attempt.
        settle: ``"background"``: a handler that has returned makes room for the next at once, and
            acks of several handlers share a call; an ack that fails is logged, and the message is
            delivered again. ``"await"``: each handler keeps its place until its ack is answered.
    """

    #: How long a suspect may keep other messages waiting before it begins, and while it runs; in
    #: seconds or as a timedelta, converted to seconds when the worker starts.
    alone = Duration(30.0, or_0=True)

    def __init__(  # noqa: PLR0913 - one per setting
        self,
        rsmq: RSMQ | str | None = None,
        *,
        concurrency: int = 10,
        grace: Seconds = 30.0,
        prefetch: int | None = None,
        order: Literal["strict", "weighted"] = "strict",
        create: bool = True,
        wait_for_server: Seconds | None = None,
        settle: Literal["await", "background"] = "background",
    ) -> None:
        if concurrency < 1:
            raise InvalidValue(f"concurrency must be at least 1, not {concurrency!r}")
        if order not in ("strict", "weighted"):
            raise InvalidValue(f"order must be strict or weighted, not {order!r}")
        self._acks_later = is_background(settle)
        self._own = not isinstance(rsmq, RSMQ)
        self.rsmq = rsmq if isinstance(rsmq, RSMQ) else RSMQ(rsmq)
        self._grace = at_least_0("grace", grace)
        self.wait_for_server = wait_for_server
        if prefetch is not None and prefetch < 1:
            raise InvalidValue(f"prefetch must be at least 1, not {prefetch!r}")
        self._prefetch = prefetch or concurrency
        self._order: Literal["strict", "weighted"] = order
        self._create = create
        self._registry = HandlerRegistry(self.rsmq)
        self._handlers, self._rmq_handlers = self._registry.handlers, self._registry.rmq_handlers
        #: Clients of rmq that the worker has opened, and closes.
        self._own_rmqs: set[Rmq] = set()
        self._middleware: list[Middleware] = []
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._on_failure: list[FailureHook] = []
        self._on_dead_letter: list[DeadLetterHook] = []
        self._hook_tasks: set[asyncio.Task[None]] = set()
        self._counters = Counters(recorder=recorder_of(self.rsmq))
        self._executions = Executions(
            concurrency, self._middleware, self._on_failure, self._counters
        )
        self._intake: Intake | None = None
        #: The task that a pause or a stop cancels: the start, then the intake.
        self._interruptible: asyncio.Task[Any] | None = None
        self._state: State = "new"
        self._stopped_early = False
        #: True once the server was reached and the start hooks were called.
        self._started = False
        #: True once the first start hook is called: the stop hooks end what it made.
        self._begun = False
        self._failure: str | None = None
        self._turn = asyncio.Event()
        self._grace_over = asyncio.Event()
        self._is_shut_down = asyncio.Event()
        #: True once the client was closed before a stop.
        self._orphaned = False

    def handler(
        self,
        queue: str | RmqQueue,
        *,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        timeout: Seconds | None = None,
        vt: Seconds | None = None,
        weight: int = 1,
    ) -> Callable[[H], H]:
        """Register a coroutine function (or an object with ``async __call__``) for *queue*.

        It takes the body (converted to its annotation: ``str``, ``bytes``, a dataclass, a pydantic
        model, anything msgspec decodes, also inside lists, dicts and unions), the ``Delivery``, or
        both. An annotation that no body can match is refused here. The message is acked when the
        handler returns.

        Args:
            queue: name of the queue, or a queue of rmq. *retry*, *dead_letter*, *vt* and *weight*
                have no meaning for that: what fails goes to its push queue, or is rejected.
            retry: when it is delivered again after an error; ``Retry()`` by default.
            dead_letter: queue for messages after the last delivery; by default ``<queue>-dead``.
            timeout: seconds after which the handler is cancelled; ``None`` for no limit.
            vt: lease in seconds, renewed while the handler runs; by default the queue's.
            weight: relative frequency with which the queue comes first in ``weighted`` order.
        """
        return self._registry.registrar(
            queue=queue,
            retry=retry,
            dead_letter=dead_letter,
            timeout=None if timeout is None else in_seconds("timeout", timeout),
            vt=vt,
            weight=weight,
        )

    def batch_handler(
        self,
        queue: str | RmqQueue,
        *,
        size: int,
        wait: Seconds,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        timeout: Seconds | None = None,
        vt: Seconds | None = None,
    ) -> Callable[[H], H]:
        """Register a coroutine function for lists of messages of *queue*.

        It is called with up to *size* deliveries: as soon as there are *size*, or *wait* seconds
        after the first. It may settle each of them (``ack``, ``reject``, ...). Those that it does
        not settle are acked when it returns; when it raises, *retry* decides. *dead_letter*,
        *timeout* and *vt* are those of ``handler``.
        """
        if size < 1:
            raise InvalidValue(f"size of a batch must be at least 1, not {size!r}")

        return self._registry.registrar(
            queue=queue,
            retry=retry,
            dead_letter=dead_letter,
            timeout=None if timeout is None else in_seconds("timeout", timeout),
            vt=vt,
            size=size,
            wait=at_least_0("wait", wait),
        )

    def middleware(self, function: M) -> M:
        """Register a coroutine function that wraps every handler: ``await call_next()`` inside.

        ``async def wrap(message: Delivery, call_next: Next) -> Any``. The first one registered is
        the outermost.
        """
        check_coroutine_function("middleware", function, arguments=2)
        self._middleware.append(function)
        return function

    def on_start(self, function: K) -> K:
        """Register a coroutine function that is called before the first message is received."""
        check_coroutine_function("start hook", function, arguments=0)
        self._on_start.append(function)
        return function

    def on_stop(self, function: K) -> K:
        """Register a coroutine function that is called when the last handler has ended.

        Also if a start hook has failed, but not if the worker ends before it calls the start hooks.
        """
        check_coroutine_function("stop hook", function, arguments=0)
        self._on_stop.append(function)
        return function

    def on_failure(self, function: F) -> F:
        """Register a coroutine function that is called with each failed message and its error.

        ``async def hook(message: Delivery, error: Exception) -> None``. The message is settled
        already. Also for a body that does not decode, which never reaches a handler or a
        middleware.
        """
        check_coroutine_function("failure hook", function, arguments=2)
        self._on_failure.append(function)
        return function

    def on_dead_letter(self, function: D) -> D:
        """Register a coroutine function that is called with each dead letter.

        ``async def hook(letter: DeadLetter) -> None``. The letter has the message, the queue that
        it was received from, the one that it was moved to, and the reason.

        For every cause: a handler that fails for the last time or rejects its message, a body that
        does not decode, or a receive that finds a message which was delivered too often and never
        settled. In the last case the body of the message is empty if the bodies are large together.
        """
        check_coroutine_function("dead-letter hook", function, arguments=1)
        self._on_dead_letter.append(function)
        return function

    @property
    def wait_for_server(self) -> float | None:
        """Seconds that ``run`` waits for an unavailable server; ``None`` for ever."""
        return self._wait_for_server

    @wait_for_server.setter
    def wait_for_server(self, limit: Seconds | None) -> None:
        self._wait_for_server = None if limit is None else at_least_0("wait_for_server", limit)

    @property
    def health(self) -> WorkerHealth:
        """What the worker is doing."""
        executions, counters, server = self._executions, self._counters, self.server_status
        stuck = sum(execution.stuck for execution in executions.running)
        state: State = self._state
        if state == "running" and not self._started:
            state = "starting"
        return WorkerHealth(
            state,
            len(executions.running) - stuck,
            stuck + executions.left_behind.total(),
            counters.done,
            counters.failed,
            counters.rejected,
            server.error if server.away else counters.last_error,
            server.last_reply,
            server.away,
            self._failure,
            executions.stuck_for,
        )

    @property
    def server_status(self) -> ServerStatus:
        """What is known of the server, without I/O."""
        rmq_only = self._rmq_handlers and not self._handlers
        return (self._rmq_handlers[0].queue.rmq if rmq_only else self.rsmq).server_status

    async def check_queues(self) -> None:
        """Ask the server for the queues of all handlers; ``QueueNotFound`` if one is missing."""
        rmqs = {handler.queue.rmq for handler in self._rmq_handlers}
        await check_queues([handler.queue for handler in self._handlers], rmqs)

    def pause(self) -> None:
        """Stop receiving, and give back messages that no handler works on; handlers go on."""
        if self._state == "running":
            self._state = "paused"
            if self._started:
                self._interrupt()

    def resume(self) -> None:
        """Receive again."""
        if self._state == "paused":
            self._state = "running"
            self._turn.set()

    def stop(self) -> None:
        """Stop receiving, let handlers end within the grace period, then return from ``run``.

        A second call ends the grace period. After a call before ``run``, that returns at once.
        """
        if self._state == "draining":
            self._grace_over.set()
        elif self._state == "new":
            self._state, self._stopped_early = "stopped", True
        elif self._state != "stopped":
            self._state = "draining"
            self._turn.set()
            self._interrupt()

    async def run(self, *, signals: bool = True) -> None:
        """Serve until stopped. With *signals*, SIGTERM and SIGINT call ``stop``.

        The error that it raises is also logged, and shown by ``health``, so it is visible even if
        the task is not awaited.
        """
        if self._stopped_early:
            self._stopped_early = False
            return
        if self._state != "new":
            raise InvalidValue(f"a worker runs once; this one is {self._state}")
        try:
            self._registry.check()
            with stopped_by_signals(self.stop, wanted=signals):
                await self._run()
        except BaseException as error:
            self._failure = one_line(error)
            if isinstance(error, Exception):
                self._counters.note(error)
                logger.error(
                    "the worker has ended: %s", self._failure, extra={"error": self._failure}
                )
            raise

    async def _run(self) -> None:
        self._state, began_at = "running", time.monotonic()
        self._run_context = copy_context()
        self.rsmq.add_close_hook(self._client_closes)
        try:
            queues = [handler.queue for handler in self._handlers]
            found = None
            # Once more if other code has cancelled the search: only a stop ends it.
            while found is None and self._state in ("running", "paused"):
                found = await self._run_interruptible(self._find_queues(queues))
            if found:
                self.rsmq.dead_letters.listen(self._on_dead_letter_moved)
                self._begun = True
                for hook in self._on_start:
                    await hook()
                self._started = True
                self._log_start()
                if self._acks_later and self._handlers:
                    self._executions.acks = self._background_acks()
                self._intake = Intake(
                    self.rsmq,
                    self._handlers,
                    self._executions,
                    prefetch=self._prefetch,
                    order=self._order,
                    alone=self.alone,
                    rmq_handlers=self._rmq_handlers,
                )
                with self._observed():
                    while self._state in ("running", "paused"):
                        await self._serve(self._intake)
                    await self._executions.drain(self._grace, self._grace_over)
            if self._orphaned:
                raise ClientClosed("the client was closed before its worker was stopped")
        finally:
            self._state = "stopped"
            try:
                await run_to_completion(self._shut_down())
            finally:
                self.rsmq.remove_close_hook(self._client_closes)
                for handler in self._rmq_handlers:
                    handler.queue.rmq.remove_close_hook(self._client_closes)
                self._log_end(time.monotonic() - began_at)
                # In a task of its own: it goes on if this one is cancelled again.
                await asyncio.shield(asyncio.create_task(self._finish()))

    def _log_start(self) -> None:
        queues, concurrency = self._queue_names(), self._executions.concurrency
        logger.info(
            "serving %s, up to %d handlers at a time", ", ".join(map(repr, queues)), concurrency,
            extra={"queues": queues, "concurrency": concurrency, "prefetch": self._prefetch},
        )  # fmt: skip

    def _log_end(self, seconds: float) -> None:
        counters, health = self._counters, self.health
        logger.info(
            "stopped; messages done: %d, failed: %d, rejected: %d, given back: %d, "
            "handlers that did not end: %d, after %.1f s",
            counters.done, counters.failed, counters.rejected, counters.released, health.stuck,
            seconds,
            extra={
                "done": counters.done, "failed": counters.failed, "rejected": counters.rejected,
                "released": counters.released, "stuck": health.stuck, "seconds": seconds,
            },
        )  # fmt: skip

    def _queue_names(self) -> list[str]:
        names = [handler.queue.name for handler in self._handlers]
        return names + [handler.queue.name for handler in self._rmq_handlers]

    def __repr__(self) -> str:
        queues = ", ".join(self._queue_names())
        running = self._executions.running
        at_work = f", {len(running)} handlers running" if running else ""
        return f"<Worker of {queues or 'no queues'}, {self._state}{at_work}>"

    async def _find_queues(self, queues: list[Queue]) -> bool:
        limit_s, rmq_queues = self.wait_for_server, [h.queue for h in self._rmq_handlers]
        for queue in rmq_queues:
            if not queue.rmq.is_open:
                self._own_rmqs.add(queue.rmq)
            queue.rmq.add_close_hook(self._client_closes)
        # A worker of rmq alone needs no client of RSMQ.
        if queues:
            await find_queues(self.rsmq, queues, create=self._create, limit_s=limit_s)
        return await open_rmq_queues(rmq_queues, limit_s)

    def _observed(self) -> AbstractContextManager[None]:
        """Return the context in which telemetry, if there is any, has the gauges of the worker."""
        if (recorder := self._counters.recorder) is None:
            return nullcontext()
        names = self._queue_names()
        gauges = WorkerGauges(self.rsmq.ns, names, self._executions, lambda: self._intake)
        return recorder.working(gauges)

    def _background_acks(self) -> BackgroundAcks[LeasedMessage]:
        context = context_of(self._handlers[0].queue)
        rules = LeaseAcks(context.keeper)
        return BackgroundAcks(context.transport, rules, self._on_acks_answered)

    def _on_acks_answered(self, batch: Sequence[LeasedMessage], acked: Sequence[bool]) -> None:
        """Count messages that were acked in the background, or could not be; all of one queue."""
        keys, done = batch[0].lease.keys, sum(acked)
        self._counters.handled(keys.namespace.name, keys.queue, "acked", done)
        self._counters.handled(keys.namespace.name, keys.queue, "lost", len(acked) - done)

    async def _serve(self, intake: Intake) -> None:
        """Hand out messages until paused or stopped; after a pause, wait for the end of it."""
        if self._state == "paused":
            self._turn.clear()
            await self._turn.wait()
            return
        await self._run_interruptible(intake.run())

    async def _run_interruptible(self, work: Coroutine[Any, Any, R]) -> R | None:
        """Run *work* in a task of its own; return None if a pause or a stop has cancelled it."""
        # So that a cancellation of the caller does not reach it.
        task: asyncio.Task[R] = asyncio.create_task(work, name="aiorsmq-ng intake")
        self._interruptible = task
        await asyncio.wait([task])
        if task.cancelled():
            return None
        if (error := task.exception()) is not None:
            raise first_of(error)
        return task.result()

    def _interrupt(self) -> None:
        if self._interruptible is not None:
            self._interruptible.cancel()

    def _on_dead_letter_moved(self, letter: DeadLetter) -> None:
        """Count and log a dead letter of one of the worker's queues, and call the hooks for it."""
        served = next((h for h in self._handlers if h.queue.name == letter.queue), None)
        if served is None:
            return
        if letter.by_receive:
            # The receive has logged it.
            self._counters.handled(served.ns, letter.queue, "rejected", 1)
        else:
            log_move(letter)
        if self._on_dead_letter:
            task = asyncio.create_task(
                call_dead_letter_hooks(letter, self._on_dead_letter),
                name="aiorsmq-ng dead letter",
                # A receive runs in the background, for all callers.
                context=self._run_context.copy() if letter.by_receive else None,
            )
            self._hook_tasks.add(task)
            task.add_done_callback(self._hook_tasks.discard)

    async def _shut_down(self) -> None:
        """End all handlers, and give back all messages; takes at most some seconds."""
        self._interrupt()
        if self._interruptible is not None:
            await asyncio.wait([self._interruptible], timeout=_INTAKE_S)
        await self._executions.abandon()
        await self._executions.finish_acks()
        if self._hook_tasks:
            await asyncio.wait(self._hook_tasks, timeout=_HOOKS_S)
        self.rsmq.dead_letters.forget(self._on_dead_letter_moved)
        self._is_shut_down.set()

    async def _client_closes(self) -> None:
        """End before the client closes: without a grace period; all messages are given back."""
        self._orphaned = self._state in ("running", "paused")
        self.stop()
        self._grace_over.set()
        await self._is_shut_down.wait()

    async def _finish(self) -> None:
        """Call the stop hooks, and close the client if the worker opened it."""
        try:
            for hook in self._on_stop if self._begun else ():
                try:
                    await hook()
                except Exception:
                    logger.exception("a stop hook failed")
        finally:
            for rmq in self._own_rmqs:
                await rmq.aclose()
            if self._own:
                await self.rsmq.aclose()
