"""The transport: runs operations, and turns concurrency into batches.

Theory of operation
-------------------

Operations that may share a call (same kind, and same lane of their requests) gather in a *lane*.

Rule 1: nothing waits for a timer. A call of a lane is started in the tick in which its first
operation is submitted, and takes its batch in the next tick, with all that was submitted until
then. A lone operation finds an idle lane and is written at once.

Rule 2: a lane has at most two calls in flight. What is submitted meanwhile goes with the next call.
While the server works on one, the client packs the other or hands out results.

Rule 3: a batch is bounded by weight and size, so that a call keeps the server busy for about a
millisecond. One operation always fits, however large.

Rule 4: calls run in tasks of the transport, never in the caller's. There are as many runners as it
pays to have calls in flight; lanes that have something to do queue for them (``_due``), and a
lane with more to do lines up again behind the others. So cancelling a caller cancels no I/O, no
connection gets out of step and no neighbour in the batch is hurt.

Rule 5: an operation that is cancelled before its call is written is not made, unless it was
submitted to be seen through. What was taken for a caller that is gone is undone.

Rule 6: closing finishes calls in flight and give-backs for a few seconds, then fails the rest. So
does a cancellation of all tasks of the event loop, which is how ``asyncio.run`` ends.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import _get_running_loop as running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct, field

from .._common.durability import Durability
from .._common.tasks import retrieve_exception
from .._protocol.operation import Kind, Operation
from ..errors import ClientClosed, SendToken, Unavailable, WrongContext
from ..models import ServerStatus
from .call_retries import Retries
from .calls import CallRunner, gave_up
from .driver import Driver, NotExecuted, ReplyLost
from .loop_guard import LoopGuard

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.transport")

#: What operations must have in common to share a call: their kind, and the lane of their requests.
Key = tuple[Kind[Any], tuple[Any, ...]]

#: A call with this many messages keeps the server busy for about a millisecond.
MAX_WEIGHT = 256
#: What a socket takes at once; more would be copied again and again while it is written.
MAX_SIZE = 1 << 18
#: From this many operations on, a lane with no call in flight makes two calls of them: while the
#: server works on one, the client encodes the other, or hands out the replies of the previous one.
#: Fewer are not enough work for another call.
SPLIT_FROM = 64
#: While two calls of a lane are in flight, the next batch gathers; more gain nothing.
CALLS_PER_LANE = 2
#: How long closing waits for calls in flight and give-backs.
CLOSE_S = 3.0
#: Ticks of the event loop that closing leaves to tasks which have to give something back.
_LAST_TICKS = 8
#: Give-backs in flight at a time, for cancelled callers. What is not given back comes back when
#: its lease ends; new work must not starve behind them.
MAX_GIVE_BACKS = 64 * 256


class PendingOperation(Struct, eq=False):
    """A submitted operation, and the future of its caller."""

    operation: Operation[Any]
    future: asyncio.Future[Any]
    deadline: float
    #: True if it is made even if the caller is cancelled before it is written.
    firm: bool = False

    @property
    def is_wanted(self) -> bool:
        """Return True if it is to be made: the caller is not cancelled, or it is firm."""
        return self.firm or not self.future.cancelled()

    def fail(self, error: Exception) -> None:
        """Fail the caller with *error*, unless it is cancelled."""
        if not self.future.done():
            self.future.set_exception(error)
            # A caller that is cancelled right now never retrieves it.
            self.future.add_done_callback(retrieve_exception)


class Lane(Struct, eq=False):
    """Operations that may share a call: same kind, and same lane of their requests.

    ``key`` is ``None`` for the lane of an operation that goes alone.
    """

    key: Key | None
    waiting: deque[PendingOperation] = field(default_factory=deque)
    calls: int = 0
    starting: bool = False

    def batch(self) -> list[PendingOperation]:
        """Take the operations of the next call, at least one; skip those of cancelled callers."""
        batch: list[PendingOperation] = []
        waiting = self.waiting
        most = len(waiting)
        if self.calls == 1 and most >= SPLIT_FROM:
            most = (most + 1) // 2
        weight = size = 0
        while waiting and len(batch) < most:
            head = waiting[0]
            if head.is_wanted:
                request = head.operation.request
                weight += request.weight
                size += request.size
                if batch and (weight > MAX_WEIGHT or size > MAX_SIZE):
                    break
                batch.append(head)
            waiting.popleft()
        return batch


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
        self._connections = self._spare = connections
        #: Tasks that make calls, one at a time each, the spare ones included.
        self._runners = connections
        self._due: deque[Lane] = deque()
        self._resting: list[asyncio.Future[None]] = []
        self._driver: Driver | None = None
        self._checked = False
        self._connecting: anyio.Lock | None = None
        self._lanes: dict[Key, Lane] = {}
        self._busy = 0
        self._quiet: asyncio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_guard = LoopGuard(self)
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

    @property
    def server_status(self) -> ServerStatus:
        """When the server last replied, and if it is unavailable now."""
        return self._retries.monitor.status

    @property
    def is_started(self) -> bool:
        """True while its background tasks run."""
        return self._tasks is not None

    async def start(self) -> None:
        """Start the background tasks; nothing is connected yet."""
        self.check()
        if self._closed:
            raise ClientClosed
        if self._host is None:
            self._loop = self._loop_guard.settle()
            self._connecting = anyio.Lock()
            self._quiet = asyncio.Event()
            self._quiet.set()
            ready = asyncio.Event()
            # The task group lives in a task of its own, so that open and close may be called
            # from different tasks (fixtures and frameworks do).
            self._host = asyncio.create_task(self._serve(ready), name="aiorsmq-ng transport")
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
        if self._quiet is not None:
            with anyio.move_on_after(within_s):
                await self._until_idle()

    async def resume(self, token: SendToken) -> Any:
        """Repeat the call of *token*, and return the result of the send."""
        self.check()
        return await self._calls.resume(token)

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Run a background task that ends with the transport."""
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
                if not self._checked and self._check is not None:
                    self._retries.durability = await self._check(self._driver)
                self._checked = True
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
                    await self._until_idle()
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
            await self._until_idle()
            await asyncio.sleep(0)

    async def _until_idle(self) -> None:
        while self._busy and self._quiet is not None:
            await self._quiet.wait()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._tasks else "idle"
        return f"<Transport {state}, {len(self._lanes)} lanes, {self._busy} calls>"

    async def _open_driver(self) -> None:
        if self._driver is None:
            assert self._connecting is not None  # noqa: S101 - start() came first
            async with self._connecting:
                if self._driver is None:
                    self._driver = driver = await self._connect()
                    runners = self._connections * driver.calls_per_connection
                    self._spare += runners - self._runners
                    self._runners = runners

    async def _disconnect(self) -> None:
        driver, self._driver, self._checked = self._driver, None, False
        if driver is not None:
            with anyio.CancelScope(shield=True):
                await driver.aclose()

    async def _serve(self, ready: asyncio.Event) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
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
            self._resting.clear()
            self._calls.abandon_interrupted()
            for lane in (*self._lanes.values(), *self._due):
                for waiting in lane.waiting:
                    waiting.fail(_never_made())

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
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._resting.clear()
            self._spare = self._runners
            for _ in range(min(len(self._due), self._spare)):
                self._spare -= 1
                tasks.start_soon(self._serve_lanes)
            with anyio.move_on_after(CLOSE_S):
                await self._calls.finish_interrupted()
                await self._last_calls()
                if not self._closed:
                    self._run_closers()
                await self._last_calls()
            tasks.cancel_scope.cancel()
        self._finished = True
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
        deadline = self._loop.time() + self._deadline_s
        waiting = PendingOperation(operation, future, deadline, firm)
        if after is None or after.done():
            self._enqueue(waiting)
        else:
            after.add_done_callback(lambda _: self._enqueue(waiting))
        return future

    def _enqueue(self, waiting: PendingOperation) -> None:
        if self._tasks is None:
            waiting.fail(_never_made())
            return
        operation = waiting.operation
        if operation.kind.merge:
            key = (operation.kind, operation.request.lane)
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = Lane(key)
        else:
            lane = Lane(None)
        lane.waiting.append(waiting)
        if not lane.starting and lane.calls < CALLS_PER_LANE:
            self._start_call(lane)

    def _start_call(self, lane: Lane) -> None:
        assert self._tasks is not None and self._quiet is not None  # noqa: S101, PT018
        lane.starting = True
        lane.calls += 1
        self._busy += 1
        self._quiet.clear()
        self._due.append(lane)
        # A runner takes its next step in the next tick, after all callers of this tick.
        while self._resting:
            rest = self._resting.pop()
            # That of a runner that is cancelled is done: asyncio.run cancels all tasks at its end.
            if not rest.done():
                rest.set_result(None)
                return
        # A transport that is cancelled starts no runner, which would outlive the cancellation; what
        # is due fails when it has ended.
        if self._spare and self._host is not None and not self._host.cancelling():
            self._spare -= 1
            self._tasks.start_soon(self._serve_lanes)

    async def _serve_lanes(self) -> None:
        """Run calls, one at a time, for whichever lane is due."""
        loop = asyncio.get_running_loop()
        while True:
            while self._due:
                await self._drain(self._due.popleft())
            rest = loop.create_future()
            self._resting.append(rest)
            await rest

    async def _drain(self, lane: Lane) -> None:
        """Make one call for *lane*; if operations are left, queue it behind the other lanes."""
        lane.starting = False
        try:
            if batch := lane.batch():
                if lane.waiting and lane.calls < CALLS_PER_LANE:
                    self._start_call(lane)
                await self._calls.run(batch)
        finally:
            lane.calls -= 1
            self._busy -= 1
            if lane.waiting:
                if not lane.starting:
                    self._start_call(lane)
            elif not lane.calls and lane.key is not None:
                self._lanes.pop(lane.key, None)
            if not self._busy and self._quiet is not None:
                self._quiet.set()

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


def _never_made() -> ClientClosed:
    return ClientClosed("the client was closed before the call was made")
