"""The worker: receives from several queues and runs their handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

from .._common.durations import Duration, Seconds, at_least_0, in_seconds
from ..client import RSMQ
from ..errors import ClientClosed, InvalidValue
from ..models import DeadLetter
from ..retry import Retry
from .execution import Executions, call_dead_letter_hooks
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
    QueueHandler,
    check_coroutine_function,
    readers,
)
from .health import Counters, State, WorkerHealth, one_line
from .intake import Intake
from .shutdown import first_of, run_to_completion
from .signals import stopped_by_signals
from .startup import find_queues

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.worker")

#: How long the end of the worker waits for its intake, and for hooks that still run.
_INTAKE_S, _HOOKS_S = 4.0, 2.0


class Worker:
    """Runs handlers for messages of one or more queues.

    A *suspect*, a message whose last delivery vanished with its holder, is handled alone: the
    worker holds nothing else meanwhile. It keeps other messages waiting for ``alone`` seconds at
    most, before it begins and while it runs.

    For a queue that exists, the worker needs no permission but those of a consumer. A refusal, such
    as of a password, ends ``run`` at once.

    Args:
        rsmq: a client of yours, which stays open, or a URL; by default as for ``RSMQ``.
        concurrency: how many handlers run at a time.
        grace: seconds that handlers have to end after a stop.
        prefetch: how many messages are leased ahead; by default as many as ``concurrency``.
        order: serve queues in the order of their handlers, or in one drawn by their weights.
        create: create missing queues; if not, ``run`` raises ``QueueNotFound``, also for a missing
            dead-letter queue.
        wait_for_server: seconds to wait for a server that is away at the start; ``None`` for ever,
            0 for one attempt.
    """

    #: For how long a suspect may keep others waiting, before it begins and while it runs; in
    #: seconds or as a timedelta, read as seconds when the worker starts.
    alone = Duration(30.0, or_0=True)

    def __init__(
        self,
        rsmq: RSMQ | str | None = None,
        *,
        concurrency: int = 10,
        grace: Seconds = 30.0,
        prefetch: int | None = None,
        order: Literal["strict", "weighted"] = "strict",
        create: bool = True,
        wait_for_server: Seconds | None = None,
    ) -> None:
        if concurrency < 1:
            raise InvalidValue(f"concurrency must be at least 1, not {concurrency!r}")
        if order not in ("strict", "weighted"):
            raise InvalidValue(f"order must be strict or weighted, not {order!r}")
        self._own = not isinstance(rsmq, RSMQ)
        self.rsmq = rsmq if isinstance(rsmq, RSMQ) else RSMQ(rsmq)
        self._grace = at_least_0("grace", grace)
        self.wait_for_server = wait_for_server
        if prefetch is not None and prefetch < 1:
            raise InvalidValue(f"prefetch must be at least 1, not {prefetch!r}")
        self._prefetch = prefetch or concurrency
        self._order: Literal["strict", "weighted"] = order
        self._create = create
        self._handlers: list[QueueHandler] = []
        self._middleware: list[Middleware] = []
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._on_failure: list[FailureHook] = []
        self._on_dead_letter: list[DeadLetterHook] = []
        self._hook_tasks: set[asyncio.Task[None]] = set()
        self._counters = Counters()
        self._executions = Executions(
            concurrency, self._middleware, self._on_failure, self._counters
        )
        self._intake: Intake | None = None
        #: What a pause or a stop cancels: the search for queues, then the intake.
        self._interruptible: asyncio.Task[Any] | None = None
        self._state: State = "new"
        self._stopped_early = False
        #: True once the server was reached and the start hooks were called.
        self._started = False
        #: True once the first start hook is called: the stop hooks end what it made.
        self._begun = False
        self._failure: str | None = None
        self._turn = asyncio.Event()
        self._hurry = asyncio.Event()
        self._has_let_go = asyncio.Event()
        #: True once the client was closed before a stop.
        self._orphaned = False

    def handler(
        self,
        queue: str,
        *,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        timeout: Seconds | None = None,
        vt: Seconds | None = None,
        weight: int = 1,
    ) -> Callable[[H], H]:
        """Register a coroutine function (or an object with ``async __call__``) for *queue*.

        It takes the body (converted to its annotation: ``str``, ``bytes``, a dataclass, a pydantic
        model, anything msgspec reads, also inside lists, dicts and unions), the ``Delivery``, or
        both; an annotation that no body could ever fit is refused here. Returning acks the message.

        Args:
            queue: name of the queue.
            retry: when it is delivered again after an error; ``Retry()`` by default.
            dead_letter: where it goes after the last delivery; by default ``<queue>-dead``.
            timeout: seconds after which the handler is cancelled; ``None`` for no limit.
            vt: lease in seconds, renewed while the handler runs; by default the queue's.
            weight: how often the queue comes first in ``weighted`` order.
        """
        return self._registrar(
            queue=queue,
            retry=retry,
            dead_letter=dead_letter,
            timeout=None if timeout is None else in_seconds("timeout", timeout),
            vt=vt,
            weight=weight,
        )

    def batch_handler(
        self,
        queue: str,
        *,
        size: int,
        wait: Seconds,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        timeout: Seconds | None = None,
        vt: Seconds | None = None,
    ) -> Callable[[H], H]:
        """Register a coroutine function for lists of messages of *queue*.

        It is called with up to *size* deliveries: as soon as there are that many, or *wait* seconds
        after the first. It may settle each by itself (``ack``, ``reject``, ...); those it does not
        settle are acked when it returns, and given back by *retry* when it raises. *dead_letter*,
        *timeout* and *vt* are those of ``handler``.
        """
        if size < 1:
            raise InvalidValue(f"a batch has a size of at least 1, not {size!r}")

        return self._registrar(
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

        The first one registered is the outermost.
        """
        check_coroutine_function("middleware", function, arguments=2)
        self._middleware.append(function)
        return function

    def on_start(self, function: K) -> K:
        """Register a coroutine function that is called before the first message is taken."""
        check_coroutine_function("start hook", function, arguments=0)
        self._on_start.append(function)
        return function

    def on_stop(self, function: K) -> K:
        """Register a coroutine function that is called when the last handler has ended.

        Also if a hook for the start has failed, but not if the worker ends before it calls those.
        """
        check_coroutine_function("stop hook", function, arguments=0)
        self._on_stop.append(function)
        return function

    def on_failure(self, function: F) -> F:
        """Register a coroutine function that is called with each message that failed, and why.

        Also for a body that does not decode, which no handler and no middleware ever sees.
        """
        check_coroutine_function("failure hook", function, arguments=2)
        self._on_failure.append(function)
        return function

    def on_dead_letter(self, function: D) -> D:
        """Register a coroutine function that is called with each dead letter, and why it is one.

        Wherever the move happens: a handler that failed for the last time or rejects its message, a
        body that does not decode, or a receive that finds a message which was delivered too often
        and never settled (``Message.body`` is empty if many are found that are large together).
        """
        check_coroutine_function("dead-letter hook", function, arguments=2)
        self._on_dead_letter.append(function)
        return function

    @property
    def wait_for_server(self) -> float | None:
        """For how many seconds ``run`` waits for a server that is away; ``None`` for ever."""
        return self._wait_for_server

    @wait_for_server.setter
    def wait_for_server(self, limit: Seconds | None) -> None:
        self._wait_for_server = None if limit is None else at_least_0("wait_for_server", limit)

    @property
    def health(self) -> WorkerHealth:
        """What the worker is doing."""
        executions, counters, server = self._executions, self._counters, self.rsmq.server_status
        stuck = sum(execution.stuck for execution in executions.running)
        state: State = self._state
        if state == "running" and not self._started:
            state = "starting"
        return WorkerHealth(
            state,
            len(executions.running) - stuck,
            stuck + executions.left_behind,
            counters.done,
            counters.failed,
            counters.rejected,
            server.error if server.away else counters.last_error,
            server.last_reply,
            server.away,
            self._failure,
        )

    def pause(self) -> None:
        """Take no more messages, and give back those that no handler works on; handlers run on."""
        if self._state == "running":
            self._state = "paused"
            if self._started:
                self._interrupt()

    def resume(self) -> None:
        """Take messages again."""
        if self._state == "paused":
            self._state = "running"
            self._turn.set()

    def stop(self) -> None:
        """Take no more messages, let handlers end within the grace period, then return from run.

        Called again, it does not wait for them any longer; called before run, that returns at once.
        """
        if self._state == "draining":
            self._hurry.set()
        elif self._state == "new":
            self._state, self._stopped_early = "stopped", True
        elif self._state != "stopped":
            self._state = "draining"
            self._turn.set()
            self._interrupt()

    async def run(self, *, signals: bool = True) -> None:
        """Serve until stopped. With *signals*, SIGTERM and SIGINT stop; a second one hurries.

        What it raises is logged, and shown by ``health``, so a task need not be awaited to see it.
        """
        if self._stopped_early:
            self._stopped_early = False
            return
        if self._state != "new":
            raise InvalidValue(f"a worker runs once; this one is {self._state}")
        try:
            self._check_handlers()
            with stopped_by_signals(self.stop, wanted=signals):
                await self._run()
        except BaseException as error:
            self._failure = one_line(error)
            if isinstance(error, Exception):
                self._counters.note(error)
                logger.error("the worker has ended: %s", self._failure)
            raise

    async def _run(self) -> None:
        self._state = "running"
        self.rsmq.add_close_hook(self._client_closes)
        try:
            queues = [handler.queue for handler in self._handlers]
            found = await self._run_interruptible(
                find_queues(self.rsmq, queues, create=self._create, limit_s=self.wait_for_server)
            )
            if found:
                self.rsmq.dead_letters.listen(self._heard)
                self._begun = True
                for hook in self._on_start:
                    await hook()
                self._started = True
                self._intake = Intake(
                    self.rsmq,
                    self._handlers,
                    self._executions,
                    prefetch=self._prefetch,
                    order=self._order,
                    alone=self.alone,
                )
                while self._state in ("running", "paused"):
                    await self._serve(self._intake)
                await self._executions.drain(self._grace, self._hurry)
            if self._orphaned:
                raise ClientClosed("the client was closed before its worker was stopped")
        finally:
            self._state = "stopped"
            try:
                await run_to_completion(self._let_go())
            finally:
                self.rsmq.remove_close_hook(self._client_closes)
                # In a task of its own: it goes on if this one is cancelled once more.
                await asyncio.shield(asyncio.create_task(self._finish()))

    def __repr__(self) -> str:
        queues = ", ".join(handler.queue.name for handler in self._handlers)
        running = self._executions.running
        at_work = f", {len(running)} handlers running" if running else ""
        return f"<Worker of {queues or 'no queues'}, {self._state}{at_work}>"

    def _registrar(
        self,
        queue: str,
        *,
        retry: Retry | None,
        dead_letter: str | None,
        vt: Seconds | None,
        **rules: Any,
    ) -> Callable[[H], H]:
        # A queue, or a dead-letter queue, that cannot exist is refused here and not by run().
        handle = self.rsmq.queue(queue, retry=retry or Retry(), dead_letter=dead_letter, vt=vt)
        self.rsmq.queue(handle.dead_letter)

        def register(function: H) -> H:
            handler = QueueHandler(
                queue=handle,
                function=function,
                readers=readers(function, self.rsmq.codec),
                **rules,
            )
            if any(known.queue.name == queue for known in self._handlers):
                raise InvalidValue(f"queue {queue!r} has a handler already")
            self._handlers.append(handler)
            return function

        return register

    def _check_handlers(self) -> None:
        """Refuse a worker without handlers, and a handler that no message would ever reach.

        A dead letter keeps its count of receives, so a handler of a dead-letter queue that has a
        limit would move every message on.
        """
        if not self._handlers:
            raise InvalidValue("the worker has no handlers; register one with @worker.handler()")
        dead = {handler.queue.dead_letter: handler.queue.name for handler in self._handlers}
        for queue in (handler.queue for handler in self._handlers):
            if queue.name in dead and queue.retry is not None and queue.retry.max_receives:
                raise InvalidValue(
                    f"queue {queue.name!r} holds the dead letters of {dead[queue.name]!r}; "
                    f"its handler needs retry=Retry(0), or none of them would ever reach it"
                )

    async def _serve(self, intake: Intake) -> None:
        """Hand out messages until paused or stopped; then wait for the next turn."""
        if self._state == "paused":
            self._turn.clear()
            await self._turn.wait()
            return
        await self._run_interruptible(intake.run())

    async def _run_interruptible(self, work: Coroutine[Any, Any, R]) -> R | None:
        """Run *work* in a task of its own; return None if a pause or a stop has cancelled it."""
        # A cancellation of the caller does not reach it this way.
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

    def _heard(self, letter: DeadLetter) -> None:
        """Count a dead letter of one of the worker's queues, and call the hooks for it."""
        if all(letter.queue != handler.queue.name for handler in self._handlers):
            return
        if letter.by_receive:
            self._counters.rejected += 1
        if self._on_dead_letter:
            task = asyncio.create_task(
                call_dead_letter_hooks(letter, self._on_dead_letter),
                name="aiorsmq-ng dead letter",
            )
            self._hook_tasks.add(task)
            task.add_done_callback(self._hook_tasks.discard)

    async def _let_go(self) -> None:
        """End what still runs, and give back all messages; takes some seconds at most."""
        self._interrupt()
        if self._interruptible is not None:
            await asyncio.wait([self._interruptible], timeout=_INTAKE_S)
        await self._executions.abandon()
        if self._hook_tasks:
            await asyncio.wait(self._hook_tasks, timeout=_HOOKS_S)
        self.rsmq.dead_letters.forget(self._heard)
        self._has_let_go.set()

    async def _client_closes(self) -> None:
        """End before the client does: without a grace period, and with nothing left in hand."""
        self._orphaned = self._state in ("running", "paused")
        self.stop()
        self._hurry.set()
        await self._has_let_go.wait()

    async def _finish(self) -> None:
        """Call the hooks, and close a client of our own."""
        try:
            for hook in self._on_stop if self._begun else ():
                try:
                    await hook()
                except Exception:
                    logger.exception("a stop hook failed")
        finally:
            if self._own:
                await self.rsmq.aclose()
