"""The transport: runs operations, in calls that they share, from its start until it is closed.

Calls run in tasks of the transport, never in the caller's (see ``batching.py``). What was taken for
a caller that is gone is undone. Closing finishes calls in flight and give-backs for a few seconds,
then fails the rest. So does a cancellation of all tasks of the event loop, which is how
``asyncio.run`` ends.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import _get_running_loop as running_loop
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

import anyio

from .._common.durability import Durability
from .._common.tasks import BackgroundTasks
from .._protocol.operation import Operation
from ..errors import ClientClosed, SendToken, Unavailable, WrongContext
from ..models import ServerStatus
from .batching import Lanes, PendingOperation
from .call_retries import Retries
from .call_runner import CallRunner, gave_up
from .driver import Driver, NotExecuted, ReplyLost
from .first_attempts import FirstAttempts
from .loop_guard import LoopGuard
from .observer import Observer

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.transport")

#: How long closing waits for calls in flight and give-backs.
CLOSE_S = 3.0
#: Ticks of the event loop that closing leaves to tasks which have to give something back.
_LAST_TICKS = 8
#: Give-backs in flight at a time, for cancelled callers. What is not given back comes back when
#: its lease ends; new work must not starve behind them.
MAX_GIVE_BACKS = 64 * 256


class Transport:
    """Runs operations on a driver that is opened when first needed."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Driver]],
        *,
        deadline_s: float,
        connections: int,
        check: Callable[[Driver], Awaitable[Durability]] | None = None,
        peer: str = "redis",
    ) -> None:
        self._connect = connect
        self._check = check
        self._deadline_s = deadline_s
        self._retries = Retries(self.driver, deadline_s=deadline_s, peer=peer)
        self._calls = CallRunner(self._retries, self, deadline_s=deadline_s)
        self._give_backs = 0
        self._connections = connections
        self._lanes = Lanes(self._calls, connections)
        self._loop_guard = LoopGuard(self)
        self._first_attempts = FirstAttempts(
            self._lanes, self._calls, self._retries, self._loop_guard
        )
        self._driver: Driver | None = None
        self._checked = False
        self._connecting: anyio.Lock | None = None
        self._tasks: BackgroundTasks | None = None
        self._host: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._closed_by_caller = False
        #: True once nothing is in flight that closing waits for.
        self._finished = False
        #: Run before that, each for some seconds at most: what uses the client ends.
        self.leavers: set[Callable[[], Coroutine[Any, Any, None]]] = set()
        #: Called when the client is closed, while operations can still be submitted, in any order.
        self.closers: set[Callable[[], object]] = set()
        #: Called after all of these: gives back what none of them has.
        self.close_last: Callable[[], object] = lambda: None
        #: Called with what results tell besides: messages that a receive has put aside.
        self.on_event: Callable[[Any], object] = lambda _: None
        #: Sees every operation, if there is one; see ``observe``.
        self.observer: Observer | None = None

    @property
    def server_status(self) -> ServerStatus:
        """When the server last replied, and if it is unavailable now."""
        return self._retries.monitor.status

    @property
    def is_started(self) -> bool:
        """True while its background tasks run."""
        return self._tasks is not None

    def observe(self, observer: Observer) -> None:
        """Report every operation and every retry to *observer* from now on."""
        self.observer = observer
        self._retries.on_retry = observer.retried

    async def start(self) -> None:
        """Start the background tasks; nothing is connected yet."""
        self.check()
        if self._closed:
            raise ClientClosed
        if self._host is None:
            self._loop = self._loop_guard.settle()
            self._connecting = anyio.Lock()
            ready = asyncio.Event()
            # The task group lives in a task of its own, so that open and close may be called
            # from different tasks (fixtures and frameworks do).
            self._host = asyncio.create_task(
                self._serve(ready), name="aiorsmq-ng transport", context=Context()
            )
            self._ready = ready
        await self._ready.wait()

    async def run(self, operation: Operation[R]) -> R:
        """Run *operation* and return its result; one round trip."""
        if self._tasks is None:
            await self.start()
        if self._closed:
            raise ClientClosed
        future = self._submit(operation)
        try:
            return await future
        except BaseException:
            # The reply may have arrived between the cancellation and this line. A coroutine that
            # is closed cancels nothing.
            if not future.cancel() and not future.cancelled() and future.exception() is None:
                self.undo(operation, future.result())
            raise

    def submit(
        self,
        operation: Operation[R],
        *,
        after: asyncio.Future[Any] | None = None,
        closing: bool = False,
    ) -> asyncio.Future[R]:
        """Submit *operation*, once *after* is done; the caller need not await the future.

        Cancelling the future gives up the result, and the operation if it is not written yet. With
        *closing* it is also accepted while the client is being closed, as long as closing waits
        for calls in flight.
        """
        if self._tasks is None or (self._closed and not closing):
            raise ClientClosed
        future = self._submit(operation, after)
        future.add_done_callback(partial(_note_failure, operation))
        return future

    def see_through(
        self, operation: Operation[R], *, after: asyncio.Future[Any] | None = None
    ) -> asyncio.Future[R]:
        """Submit *operation*; cancelling the future gives up only the result."""
        if self._tasks is None or self._closed:
            raise ClientClosed
        return self._submit(operation, after, firm=True)

    def undo(self, operation: Operation[R], result: R) -> None:
        """Undo in the background what *operation* did for a cancelled caller."""
        if operation.kind.undo is not None:
            self.begin(operation.kind.undo(result))

    def report(self, events: Sequence[Any]) -> None:
        """Report events that results carry, such as dead letters, to the listener."""
        for item in events:
            self.on_event(item)

    def begin(self, operations: Iterable[Operation[Any]]) -> None:
        """Run give-backs in the background, also while the client is being closed.

        They have the deadline of a call. If too many are in flight, further ones are dropped: the
        leases end by themselves.
        """
        for operation in operations:
            if self._give_backs >= MAX_GIVE_BACKS:
                logger.warning("too many give-backs are in flight; leases end by themselves")
                return
            self._give_backs += 1
            future = self._submit(operation)
            future.add_done_callback(partial(self._gave_back, operation))

    async def quiet(self, within_s: float) -> None:
        """Wait until no call is in flight, so that nothing is being taken or given back.

        At most *within_s* seconds: other users of the client may never pause.
        """
        with anyio.move_on_after(within_s):
            await self._lanes.until_idle()

    async def resume(self, token: SendToken) -> Any:
        """Repeat the call of *token*, and return the result of the send."""
        self.check()
        return await self._calls.tokens.resume(token)

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Run a background task that ends with the transport, in an empty context."""
        if self._tasks is None or self._closed:
            raise ClientClosed
        self._tasks.start_soon(function, *args)

    def check(self) -> None:
        """Raise ``WrongContext`` for a caller in another event loop, thread or process."""
        if not self._closed_by_caller:
            self._loop_guard.check()

    @property
    def is_gone(self) -> bool:
        """Return True if its event loop is closed, or is that of the parent of this process."""
        return self._loop_guard.is_gone

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the event loop call *function*; from any thread, and not at all if it has ended."""
        self._loop_guard.call_soon(function)

    async def driver(self) -> Driver:
        """Return the driver, connected on first use."""
        self._loop_guard.check()
        if not self._checked:
            await self._open_driver()
            assert self._driver is not None and self._connecting is not None  # noqa: S101, PT018
            async with self._connecting:
                if not self._checked:
                    if self._check is not None:
                        self._retries.durability = await self._check(self._driver)
                    self._checked = True
                    durability = self._retries.durability
                    if not (durability.replicas or durability.fsync):
                        self._first_attempts.use(self._driver.immediate)
        if self._driver is None:
            raise ClientClosed
        return self._driver

    async def ping(self, timeout_s: float, *, limit_s: float | None = None) -> None:
        """Check that the server answers within *timeout_s*; ``Unavailable`` if it does not.

        The connection to a server that does not reply is closed, so that the caller need not close
        anything, unless it was in use before. The error names *limit_s* if this is one of several
        attempts.
        """
        await self.start()
        in_use = self._driver is not None
        try:
            # Starting an embedded server has a limit of its own.
            await self._open_driver()
            deadline = asyncio.get_running_loop().time() + timeout_s
            await self._retries.ask(lambda driver: driver.ping(), deadline)
        except BaseException as error:
            if not in_use:
                await self._disconnect()
            if isinstance(error, NotExecuted | ReplyLost):
                text = gave_up(error, limit_s or timeout_s, self._retries.peer)
                raise Unavailable(text, transient=True) from None
            raise

    async def aclose(self) -> None:
        """Finish calls in flight, then close every connection."""
        self._closed_by_caller = True
        if not self._closed:
            self._run_closers()
            if self._host is not None and not self._host.done():
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                    await self._last_calls()
                    await self._calls.forget()
                    await self._lanes.until_idle()
                self._finished = True
                self._host.cancel()
        if self._host is not None:
            await asyncio.gather(self._host, return_exceptions=True)
        await self._disconnect()

    def _run_closers(self) -> None:
        for close in (*self.closers, self.close_last):
            with suppress(ClientClosed, WrongContext):
                close()
        self._closed = True

    async def _last_calls(self) -> None:
        """Wait for calls in flight, also of tasks that were cancelled with their reply in hand."""
        for _ in range(_LAST_TICKS):
            await self._lanes.until_idle()
            await asyncio.sleep(0)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._tasks else "idle"
        return f"<Transport {state}, {len(self._lanes)} lanes, {self._lanes.busy} calls>"

    async def _open_driver(self) -> None:
        if self._driver is None:
            assert self._connecting is not None  # noqa: S101 - start() came first
            async with self._connecting:
                if self._driver is None:
                    self._driver = driver = await self._connect()
                    self._lanes.resize(self._connections * driver.calls_per_connection)

    async def _disconnect(self) -> None:
        driver, self._driver, self._checked = self._driver, None, False
        if driver is not None:
            self._first_attempts.use(None)
        if driver is not None:
            with anyio.CancelScope(shield=True):
                await driver.aclose()

    async def _serve(self, ready: asyncio.Event) -> None:
        try:
            async with BackgroundTasks() as tasks:
                self._tasks = tasks
                self._lanes.open(tasks)
                ready.set()
                await anyio.sleep_forever()
        except Exception:
            logger.exception("the client stopped because of a fault of its own; please report it")
        except asyncio.CancelledError:
            # A program may cancel all tasks before asyncio.run does.
            for _ in range(2):
                with suppress(asyncio.CancelledError):
                    await self._outlive_cancellation()
            raise
        finally:
            self._closed = True
            self._tasks = None
            self._first_attempts.interrupt()
            self._lanes.close()
            self._calls.lost.abandon_interrupted()

    async def _outlive_cancellation(self) -> None:
        """Make the last calls although all tasks of the event loop were cancelled at once.

        ``asyncio.run`` cancels them when it ends, and waits for them. Tasks with messages in hand
        give them back, and the tasks that make calls are cancelled, too: new ones do it.
        """
        if self._finished:
            return
        host = asyncio.current_task()
        while host is not None and host.uncancel():
            pass
        async with BackgroundTasks() as tasks:
            self._tasks = tasks
            self._lanes.open(tasks)
            with anyio.move_on_after(CLOSE_S):
                await self._calls.lost.finish_interrupted(self._calls.complete)
                await self._last_calls()
                if not self._closed:
                    self._run_closers()
                await self._last_calls()
            tasks.cancel_scope.cancel()
        self._finished = True
        self._first_attempts.interrupt()
        await self._disconnect()

    def _submit(
        self,
        operation: Operation[R],
        after: asyncio.Future[Any] | None = None,
        *,
        firm: bool = False,
    ) -> asyncio.Future[R]:
        assert self._loop is not None  # noqa: S101 - start() came first
        if running_loop() is not self._loop_guard.here:
            raise self._loop_guard.refusal()
        future: asyncio.Future[R] = self._loop.create_future()
        if self.observer is not None:
            operation, ended = self.observer.begin(operation)
            future.add_done_callback(ended)
        deadline = self._loop.time() + self._deadline_s
        waiting = PendingOperation(operation, future, deadline, firm)
        if after is None or after.done():
            self._lanes.enqueue(waiting)
        else:
            after.add_done_callback(lambda _: self._lanes.enqueue(waiting))
        return future

    def _gave_back(self, operation: Operation[Any], future: asyncio.Future[Any]) -> None:
        self._give_backs -= 1
        _note_failure(operation, future)


def _note_failure(operation: Operation[Any], future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.debug(
            "%r on queue %r failed in the background: %s",
            operation.kind.name,
            operation.request.keys.queue,
            error,
        )
