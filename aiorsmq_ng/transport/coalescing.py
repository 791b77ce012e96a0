"""The transport: runs operations, and turns concurrency into batches.

Operations that may share a call (same script, keys and head) gather in a *lane*. A lane has up to
two calls under way; whatever is submitted meanwhile, or in the same tick of the event loop, goes
with the next one. A lone operation finds an idle lane and is written at once.

Calls run in tasks of the transport, never in the caller's: cancelling a caller cancels no I/O, so
no connection gets out of step and no neighbour in the batch is hurt. What was taken for a caller
who is gone is undone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from copy import copy
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from ..backoff import Backoff
from ..errors import RSMQError, Unavailable
from ..protocol.operation import Argument, Operation, Reply
from .base import Command, Driver, NotExecuted, ReplyLost, ScriptMissing, WrongLayout
from .lanes import Key, Lane, Waiting

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.transport")

#: While two calls of a lane are under way the next batch gathers by itself; more gain nothing.
CALLS_PER_LANE = 2
RETRY_BASE_S, RETRY_CAP_S = 0.02, 1.0
#: How long closing waits for calls under way and give-backs.
CLOSE_S = 3.0


class Transport:
    """Runs operations on a driver that is opened when first needed."""

    def __init__(
        self, connect: Callable[[], Awaitable[Driver]], *, deadline_s: float, connections: int
    ) -> None:
        self._connect = connect
        self._deadline_s = deadline_s
        self._spare = connections
        self._due: deque[Lane] = deque()
        self._resting: list[asyncio.Future[None]] = []
        self._driver: Driver | None = None
        self._connecting: anyio.Lock | None = None
        self._lanes: dict[Key, Lane] = {}
        self._busy = 0
        self._quiet: asyncio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._host: asyncio.Task[None] | None = None
        self._closed = False
        #: Called first when the client is closed, while operations can still be submitted.
        self.closers: set[Callable[[], object]] = set()

    async def start(self) -> None:
        """Make ready to run operations; nothing is connected yet."""
        if self._closed:
            raise Unavailable("the client is closed; open a new one")
        if self._host is None:
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
            raise Unavailable("the client is closed; open a new one")
        future = self._submit(operation)
        try:
            return await future
        except asyncio.CancelledError:
            # The reply may have arrived between the cancellation and this line.
            if future.done() and not future.cancelled() and future.exception() is None:
                self.undo(operation, future.result())
            raise

    def submit(
        self, operation: Operation[R], *, after: asyncio.Future[Any] | None = None
    ) -> asyncio.Future[R]:
        """Send *operation* on its way, once *after* is done.

        Cancelling the future gives up the result, and the operation if it is not written yet.
        Whoever wants it done in any case awaits it shielded, and need not look at the outcome.
        """
        if self._tasks is None or self._closed:
            raise Unavailable("the client is closed; open a new one")
        future = self._submit(operation, after)
        future.add_done_callback(_note_failure)
        return future

    def undo(self, operation: Operation[R], result: R) -> None:
        """Undo in the background what *operation* did for a caller who is gone."""
        if operation.undo is not None:
            self.begin(operation.undo(result))

    def begin(self, operations: Iterable[Operation[Any]]) -> None:
        """Run *operations* in the background, also while the client is being closed."""
        for operation in operations:
            self._submit(operation).add_done_callback(_note_failure)

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Run a background task that ends with the transport."""
        if self._tasks is None or self._closed:
            raise Unavailable("the client is closed; open a new one")
        self._tasks.start_soon(function, *args)

    async def driver(self) -> Driver:
        """Return the driver, connected on first use."""
        if self._driver is None:
            assert self._connecting is not None  # noqa: S101 - start() came first
            async with self._connecting:
                if self._driver is None:
                    self._driver = await self._connect()
        return self._driver

    async def ping(self, timeout_s: float) -> None:
        """Learn whether the server answers, within *timeout_s*; ``Unavailable`` if it does not.

        A server that does not answer is let go of, so that nothing needs closing then.
        """
        await self.start()
        try:
            # Starting an embedded server has a limit of its own.
            await self.driver()
            deadline = asyncio.get_running_loop().time() + timeout_s
            await self._persist(lambda: Command(("PING",)), deadline, repeatable=True)
        except BaseException as error:
            await self._disconnect()
            if isinstance(error, NotExecuted | ReplyLost):
                raise Unavailable(_gave_up(error, timeout_s), passing=True) from None
            raise

    async def aclose(self) -> None:
        """Finish what is under way, then let go of every connection."""
        if self._closed:
            return
        for close in list(self.closers):
            with suppress(Unavailable):
                close()
        self._closed = True
        if self._host is not None and self._quiet is not None and not self._host.done():
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
                while self._busy:
                    await self._quiet.wait()
            self._host.cancel()
            await asyncio.gather(self._host, return_exceptions=True)
        await self._disconnect()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._tasks else "idle"
        return f"<Transport {state}, {len(self._lanes)} lanes, {self._busy} calls>"

    async def _disconnect(self) -> None:
        driver, self._driver = self._driver, None
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
        finally:
            self._closed = True
            self._tasks = None
            for lane in (*self._lanes.values(), *self._due):
                for waiting in lane.waiting:
                    waiting.fail(_never_made())

    def _submit(
        self, operation: Operation[R], after: asyncio.Future[Any] | None = None
    ) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        waiting = Waiting(operation, future, loop.time() + self._deadline_s)
        if after is None or after.done():
            self._enqueue(waiting)
        else:
            after.add_done_callback(lambda _: self._enqueue(waiting))
        return future

    def _enqueue(self, waiting: Waiting) -> None:
        if self._tasks is None:
            waiting.fail(_never_made())
            return
        lane = self._lane(waiting.operation)
        lane.waiting.append(waiting)
        self._start_call(lane)

    def _lane(self, operation: Operation[Any]) -> Lane:
        if not operation.merge:
            return Lane(None)
        key = (operation.script.name, operation.keys, operation.head)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        return lane

    def _start_call(self, lane: Lane) -> None:
        if lane.starting or lane.calls >= CALLS_PER_LANE:
            return
        assert self._tasks is not None and self._quiet is not None  # noqa: S101, PT018
        lane.starting = True
        lane.calls += 1
        self._busy += 1
        self._quiet.clear()
        self._due.append(lane)
        # A runner takes its next step in the next tick, after everybody in this one submitted.
        if self._resting:
            self._resting.pop().set_result(None)
        elif self._spare:
            self._spare -= 1
            self._tasks.start_soon(self._serve_lanes)

    async def _serve_lanes(self) -> None:
        """Run calls, one at a time, for whichever lane is due. As many runners as connections."""
        loop = asyncio.get_running_loop()
        while True:
            while self._due:
                await self._drain(self._due.popleft())
            rest = loop.create_future()
            self._resting.append(rest)
            await rest

    async def _drain(self, lane: Lane) -> None:
        """Make one call for *lane*; if more is waiting, line up again behind the other lanes."""
        lane.starting = False
        try:
            if batch := lane.batch():
                if lane.waiting:
                    self._start_call(lane)
                await self._run(batch)
        finally:
            lane.calls -= 1
            self._busy -= 1
            if lane.waiting:
                self._start_call(lane)
            elif not lane.calls and lane.key is not None:
                self._lanes.pop(lane.key, None)
            if not self._busy and self._quiet is not None:
                self._quiet.set()

    async def _run(self, batch: list[Waiting]) -> None:
        first = batch[0].operation
        args: list[Argument] = list(first.head)
        for waiting in batch:
            args += waiting.operation.args
        try:
            reply = await self._script(first, args, min(w.deadline for w in batch))
            self._settle_all(batch, reply)
        except RSMQError as error:
            cause = error
            self._fail_all(batch, lambda _: copy(cause))
        except WrongLayout as error:
            code = error.code
            self._fail_all(batch, lambda operation: operation.fail(code))
        except NotExecuted as error:
            text = _gave_up(error, self._deadline_s)
            self._fail_all(batch, lambda _: Unavailable(text, passing=True))
        except ReplyLost as error:
            text = f"the reply was lost, so the outcome is not known: {error}"
            self._fail_all(
                batch, lambda operation: operation.lost(text, executed=None, passing=True)
            )
        except Exception as error:
            # A fault of ours or of the driver must not take the whole client down.
            logger.exception("a call failed in an unexpected way; please report it")
            text = f"the call failed in an unexpected way ({type(error).__name__})"
            self._fail_all(batch, lambda operation: operation.lost(text, executed=None))
        except BaseException:
            text = "the client was closed while the call ran"
            self._fail_all(batch, lambda operation: operation.lost(text, executed=None))
            raise

    def _settle_all(self, batch: list[Waiting], reply: Reply) -> None:
        if isinstance(reply, bytes):
            code = reply.decode()
            self._fail_all(batch, lambda operation: operation.fail(code))
        elif batch[0].operation.merge:
            if len(reply) != len(batch):
                raise ValueError(f"{len(reply)} replies for {len(batch)} operations")
            for waiting, part in zip(batch, reply, strict=True):
                self._settle(waiting, part)
        else:
            self._settle(batch[0], reply)

    def _settle(self, waiting: Waiting, reply: Reply) -> None:
        try:
            result = waiting.operation.parse(reply)
        except RSMQError as error:
            waiting.fail(error)
            return
        except Exception:
            logger.exception("a reply could not be read; please report it")
            waiting.fail(waiting.operation.lost("the reply could not be read", executed=None))
            return
        if waiting.future.cancelled():
            self.undo(waiting.operation, result)
        else:
            waiting.future.set_result(result)

    def _fail_all(self, batch: list[Waiting], error: Callable[[Operation[Any]], Exception]) -> None:
        for waiting in batch:
            waiting.fail(error(waiting.operation))

    async def _script(
        self, operation: Operation[Any], args: list[Argument], deadline: float
    ) -> Reply:
        """Call the script by its digest; send its text only to a server that lacks it."""
        tail = (len(operation.keys), *operation.keys, *args)
        script = operation.script
        try:
            return await self._persist(
                lambda: Command(("EVALSHA", script.sha, *tail)), deadline, operation.repeatable
            )
        except ScriptMissing:
            return await self._persist(
                lambda: Command(("EVAL", script.source, *tail)), deadline, operation.repeatable
            )

    async def _persist(
        self, command: Callable[[], Command], deadline: float, repeatable: bool
    ) -> Reply:
        """Try until *deadline* as long as nothing ran, or as running twice does no harm."""
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S)
        loop = asyncio.get_running_loop()
        while True:
            try:
                if loop.time() >= deadline:
                    raise NotExecuted("the call's time was over before it could be made")
                return await self._attempt(command(), deadline - loop.time())
            except NotExecuted:
                pause_s = backoff.next_s()
                if loop.time() + pause_s >= deadline:
                    raise
            except ReplyLost:
                pause_s = backoff.next_s()
                if not repeatable or loop.time() + pause_s >= deadline:
                    raise
            await anyio.sleep(pause_s)

    async def _attempt(self, command: Command, timeout_s: float) -> Reply:
        try:
            # asyncio's timeout, because it costs a fifth of a cancel scope and this is every call.
            async with asyncio.timeout(timeout_s):
                driver = self._driver or await self.driver()
                return await driver.execute(command)
        except TimeoutError:
            if command.written:
                raise ReplyLost("redis did not answer in time") from None
            raise NotExecuted("no connection in time") from None
        except RSMQError as error:
            # The driver's error behind it may repeat the command: a password or a body.
            error.__context__ = None
            raise


def _note_failure(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.debug("an operation in the background failed: %s", error)


def _never_made() -> Unavailable:
    return Unavailable("the client was closed before the call was made")


def _gave_up(error: Exception, deadline_s: float) -> str:
    return f"redis cannot be reached: {error} (gave up after {deadline_s:g} s)"
