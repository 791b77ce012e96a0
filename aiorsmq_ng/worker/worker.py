"""The worker: receives from several queues and runs their handlers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Literal, TypeVar

import anyio

from .._common.durations import Seconds, at_least_0, in_seconds
from .._common.queue_defaults import dead_letter_queue
from .._protocol.limits import MAX_SECONDS
from .._runtime.context import context_of
from .._runtime.prefetch import Prefetch, give_back
from ..client import RSMQ
from ..delivery import Delivery
from ..errors import ClientClosed, InvalidValue, RSMQError
from ..models import DeadLetter
from ..retry import Retry
from .execution import Execution, tell
from .health import Counters, State, WorkerHealth, one_line
from .routes import (
    D,
    DeadLetterHook,
    F,
    FailureHook,
    H,
    Hook,
    K,
    M,
    Middleware,
    Route,
    Served,
    readers,
)
from .shutdown import first_of, run_to_completion, wait_until_done
from .signals import stopped_by_signals
from .startup import find_queues, handle

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.worker")

#: How long a cancelled handler may take to end before the worker leaves it behind.
_CANCEL_S = 2.0
#: How often a suspect is put back because of handlers that take long; of so many that is known.
_POSTPONED, _POSTPONED_IDS = 3, 1000


class Worker:
    """Runs handlers for messages of one or more queues.

    A *suspect*, a message whose last delivery vanished with its holder, is handled alone: nothing
    else is held by the worker meanwhile. It keeps others waiting for ``alone`` seconds at most,
    before it begins and while it runs.

    Queues that exist are only looked for, which needs no right but those of a consumer. A refusal,
    such as of a password, ends ``run`` at once.

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
        self._concurrency = concurrency
        self._grace = at_least_0("grace", grace)
        #: Seconds for which a suspect may keep others waiting, before it begins and while it runs.
        self.alone = 30.0
        #: For how many seconds ``run`` waits for a server that is away; none: for ever.
        self.wait_for_server = (
            None if wait_for_server is None else at_least_0("wait_for_server", wait_for_server)
        )
        if prefetch is not None and prefetch < 1:
            raise InvalidValue(f"prefetch must be at least 1, not {prefetch!r}")
        self._prefetch = prefetch or concurrency
        self._order = order
        self._create = create
        self._routes: list[Route] = []
        self._middleware: list[Middleware] = []
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._on_failure: list[FailureHook] = []
        self._on_dead_letter: list[DeadLetterHook] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._queues: dict[str, Served] = {}
        self._suspect: Delivery | None = None
        #: Suspects that were put back because of handlers that take long, and how often.
        self._postponed: dict[str, int] = {}
        self._counters = Counters()
        self._running: set[Execution] = set()
        # Fair: the longest waiting task is next.
        self._slots = asyncio.Semaphore(concurrency)
        self._intake: asyncio.Task[Any] | None = None
        self._left_behind = 0
        self._state: State = "new"
        self._stopped_early = False
        #: Set once the server was reached and the hooks for the start were called.
        self._started = False
        #: Set once the first of those hooks is called: what it made, the hooks for the stop end.
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
            retry=retry or Retry(),
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
            retry=retry or Retry(),
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
        self._middleware.append(function)
        return function

    def on_start(self, function: K) -> K:
        """Register a coroutine function that is called before the first message is taken."""
        self._on_start.append(function)
        return function

    def on_stop(self, function: K) -> K:
        """Register a coroutine function that is called when the last handler has ended.

        Also if a hook for the start has failed, but not if the worker ends before it calls those.
        """
        self._on_stop.append(function)
        return function

    def on_failure(self, function: F) -> F:
        """Register a coroutine function that is called with each message that failed, and why.

        Also for a body that does not decode, which no handler and no middleware ever sees.
        """
        self._on_failure.append(function)
        return function

    def on_dead_letter(self, function: D) -> D:
        """Register a coroutine function that is called with each dead letter, and why it is one.

        Wherever the move happens: a handler that failed for the last time or rejects its message, a
        body that does not decode, or a receive that finds a message which was delivered too often
        and never settled (``Message.body`` is empty if many are found that are large together).
        """
        self._on_dead_letter.append(function)
        return function

    @property
    def health(self) -> WorkerHealth:
        """What the worker is doing."""
        stuck = sum(execution.stuck for execution in self._running)
        counters, contact = self._counters, self.rsmq.contact
        state: State = self._state
        if state == "running" and not self._started:
            state = "starting"
        return WorkerHealth(
            state,
            len(self._running) - stuck,
            stuck + self._left_behind,
            counters.done,
            counters.failed,
            counters.rejected,
            contact.error if contact.away else counters.last_error,
            contact.last,
            contact.away,
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
            self._check_routes()
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
            served = await self._aside(
                find_queues(
                    self.rsmq, self._routes, create=self._create, limit_s=self.wait_for_server
                )
            )
            if served is not None:
                self._queues = {s.queue.name: s for s in served}
                self.rsmq.dead_letters.listen(self._heard)
                self._begun = True
                for hook in self._on_start:
                    await hook()
                self._started = True
                while self._state in ("running", "paused"):
                    await self._serve(served)
                await self._drain()
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
        queues = ", ".join(route.queue for route in self._routes)
        at_work = f", {len(self._running)} handlers running" if self._running else ""
        return f"<Worker of {queues or 'no queues'}, {self._state}{at_work}>"

    def _registrar(self, **rules: Any) -> Callable[[H], H]:
        def register(function: H) -> H:
            route = Route(handler=function, readers=readers(function, self.rsmq.codec), **rules)
            # A queue, or a dead-letter queue, that cannot exist is refused here and not by run().
            queue = handle(self.rsmq, route)
            self.rsmq.queue(queue.dead_letter)
            if any(known.queue == route.queue for known in self._routes):
                raise InvalidValue(f"queue {route.queue!r} has a handler already")
            self._routes.append(route)
            return function

        return register

    def _check_routes(self) -> None:
        """Refuse a worker without handlers, and what would move messages on before any sees them.

        A dead letter keeps its count, so a handler with a limit would put it aside once more.
        """
        if not self._routes:
            raise InvalidValue("the worker has no handlers; register one with @worker.handler()")
        dead = {
            route.dead_letter or dead_letter_queue(route.queue): route.queue
            for route in self._routes
        }
        for route in self._routes:
            if route.queue in dead and route.retry.max_receives:
                raise InvalidValue(
                    f"queue {route.queue!r} holds the dead letters of {dead[route.queue]!r}; "
                    f"its handler needs retry=Retry(0), or none of them would ever reach it"
                )

    async def _serve(self, served: list[Served]) -> None:
        """Hand out messages until paused or stopped; then wait for the next turn."""
        if self._state == "paused":
            self._turn.clear()
            await self._turn.wait()
            return
        await self._aside(self._hand_out(served))

    async def _aside(self, work: Coroutine[Any, Any, R]) -> R | None:
        """Run *work* in a task of its own; return None if a pause or a stop has cancelled it."""
        # A cancellation of ours stays ours.
        intake: asyncio.Task[R] = asyncio.create_task(work, name="aiorsmq-ng intake")
        self._intake = intake
        await asyncio.wait([intake])
        if intake.cancelled():
            return None
        if (error := intake.exception()) is not None:
            raise first_of(error)
        return intake.result()

    async def _hand_out(self, served: list[Served]) -> None:
        # One call reaches the queues of one namespace; those of another are served beside them.
        groups: dict[object, list[Served]] = {}
        for s in served:
            groups.setdefault((s.queue.ns, s.queue.name if s.route.size else ""), []).append(s)
        with ExitStack() as present:
            for s in served:
                present.enter_context(s.queue.present())
            await self._dispatch_all(groups)

    async def _dispatch_all(self, groups: dict[object, list[Served]]) -> None:
        try:
            while True:
                async with anyio.create_task_group() as tasks:
                    for group in groups.values():
                        tasks.start_soon(self._dispatch, group, tasks.cancel_scope)
                # A suspect came: all that was leased ahead is given back.
                await self._handle_alone()
        finally:
            if (suspect := self._suspect) is not None:
                self._suspect = None
                suspect.release_nowait(unseen=True)

    def _interrupt(self) -> None:
        if self._intake is not None:
            self._intake.cancel()

    async def _handle_alone(self) -> None:
        """Handle a suspect while nothing else is in the worker's hands, as far as that can be."""
        suspect = self._suspect
        if suspect is None:
            return
        route = self._queues[suspect.queue].route
        logger.info(
            "message %s of queue %r runs alone: %d deliveries in a row vanished with their holders",
            suspect.id, suspect.queue, suspect.strikes,
        )  # fmt: skip
        # A handler that ignores its cancellation holds up its slot only.
        if running := [execution for execution in self._running if not execution.stuck]:
            await asyncio.wait([execution.task for execution in running], timeout=self.alone)
        times = self._postponed.pop(suspect.id, 0)
        beside = sum(execution in self._running for execution in running)
        # With several strikes it most likely kills; what runs here must not go with it.
        if beside and suspect.strikes > 1 and self._postpone(suspect, beside, times + 1):
            self._suspect = None
            return
        # A receive that was cancelled may just be served, and what it took is on its way back.
        await self.rsmq.wait_idle(_CANCEL_S)
        await self._slots.acquire()
        self._suspect = None
        execution = self._start(route, [suspect])
        await asyncio.wait([execution.task], timeout=self.alone)

    def _postpone(self, suspect: Delivery, beside: int, times: int) -> bool:
        """Put a suspect back because of *beside* handlers, unless that was done often enough."""
        if times > _POSTPONED:
            logger.warning(
                "message %s of queue %r runs beside %d handlers that take long: it was put back %d"
                " times, and %d deliveries in a row vanished with their holders",
                suspect.id, suspect.queue, beside, _POSTPONED, suspect.strikes,
            )  # fmt: skip
            return False
        delay = 10 * self.alone
        logger.warning(
            "message %s of queue %r is put back for %g s: %d deliveries in a row vanished with"
            " their holders, and %d handlers that run here take long",
            suspect.id, suspect.queue, delay, suspect.strikes, beside,
        )  # fmt: skip
        suspect.release_nowait(delay, unseen=True)
        self._postponed[suspect.id] = times
        if len(self._postponed) > _POSTPONED_IDS:
            # Most likely another consumer has handled it.
            del self._postponed[next(iter(self._postponed))]
        return True

    async def _dispatch(self, served: list[Served], intake: anyio.CancelScope) -> None:
        """Start a handler for each message (or batch), as slots become free.

        A suspect ends the whole intake, and is left to be handled alone.
        """
        routes = {s.queue.name: s.route for s in served}
        size = served[0].route.size
        prefetch = Prefetch(
            lambda count: self._receive(served, count),
            context_of(served[0].queue).transport,
            max(self._prefetch, size),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prefetch.fill)
            try:
                while True:
                    # First the messages, then the slot: who has nothing to do holds no slot.
                    batch = await prefetch.take_many(size or 1, served[0].route.wait)
                    if batch[0].suspect:
                        if self._suspect is None:
                            self._suspect = batch.pop()
                        prefetch.put_back(batch)
                        intake.cancel()
                        await anyio.sleep_forever()
                    try:
                        await self._slots.acquire()
                    except BaseException:
                        prefetch.put_back(batch)
                        raise
                    if prefetch.holds_suspect:
                        # It came while they waited: nothing is begun beside it.
                        give_back(batch)
                        self._slots.release()
                    else:
                        self._start(routes[batch[0].queue], batch)
            finally:
                if going := prefetch.close():
                    with anyio.CancelScope(shield=True):
                        await asyncio.wait(going, timeout=_CANCEL_S)

    async def _receive(self, served: list[Served], count: int) -> list[Delivery]:
        try:
            return await self._look(served, count)
        except RSMQError as error:
            self._counters.note(error)
            raise

    async def _look(self, served: list[Served], count: int) -> list[Delivery]:
        if self._order == "weighted" and len(served) > 1:
            # Sorting by u ** (1 / weight) draws an order in which heavier ones tend to come first.
            drawn = sorted(served, key=lambda s: -(random.random() ** (1 / s.route.weight)))  # noqa: S311
            if found := await self.rsmq.receive_many([s.queue for s in drawn], count):
                return found
        # Nothing there: whichever comes first is right, so all wait in one order.
        return await self.rsmq.receive_many([s.queue for s in served], count, wait=MAX_SECONDS)

    def _start(self, route: Route, batch: list[Delivery]) -> Execution:
        execution = Execution(route, batch, self._middleware, self._on_failure, self._counters)
        self._running.add(execution)
        execution.start(on_end=self._ended)
        return execution

    def _ended(self, execution: Execution) -> None:
        self._running.discard(execution)
        self._slots.release()

    def _heard(self, letter: DeadLetter) -> None:
        """Count a dead letter, if it is from one of our queues."""
        if letter.queue not in self._queues:
            return
        if letter.by_receive:
            self._counters.rejected += 1
        if self._on_dead_letter:
            task = asyncio.create_task(
                tell(letter, self._on_dead_letter), name="aiorsmq-ng dead letter"
            )
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _drain(self) -> None:
        """Give handlers the grace period to end, or less after a second stop."""
        if not self._running:
            return
        logger.info("stopping: %d handlers have %g s to end", len(self._running), self._grace)
        await wait_until_done(
            [execution.task for execution in self._running], self._grace, self._hurry
        )

    async def _let_go(self) -> None:
        """End what still runs, and give back all messages; takes some seconds at most."""
        self._interrupt()
        if self._intake is not None:
            await asyncio.wait([self._intake], timeout=2 * _CANCEL_S)
        await self._abandon()
        if self._telling:
            await asyncio.wait(self._telling, timeout=_CANCEL_S)
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

    async def _abandon(self) -> None:
        """Cancel what still runs; its messages are given back. Leave behind what does not end."""
        running = [execution.task for execution in self._running]
        for execution in list(self._running):
            execution.cancel()
        if running:
            await asyncio.wait(running, timeout=_CANCEL_S)
        for execution in list(self._running):
            logger.error("handler %s does not end and is left behind", execution.route.name)
            execution.leave_behind()
            self._left_behind += 1
