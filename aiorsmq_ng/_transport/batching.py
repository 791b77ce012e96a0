"""Batching: operations that are submitted at the same time share a call.

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

Rule 4: calls run in tasks of the transport (runners), never in the caller's. There are as many
runners as it pays to have calls in flight; lanes that have something to do queue for them
(``_due``), and a lane with more to do lines up again behind the others. So cancelling a caller
cancels no I/O, no connection gets out of step and no neighbour in the batch is hurt.

Rule 5: an operation that is cancelled before its call is written is not made, unless it was
submitted to be seen through.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field

from .._common.tasks import TaskGroup, retrieve_exception
from .._protocol.operation import Kind, Operation
from ..errors import ClientClosed

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
        waiting = self.waiting
        most = len(waiting)
        if most == 1:  # it always fits
            head = waiting.popleft()
            return [head] if head.is_wanted else []
        batch: list[PendingOperation] = []
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


class Lanes:
    """The lanes of a transport, and the runners that make their calls, one at a time each."""

    def __init__(
        self, make_call: Callable[[list[PendingOperation]], Awaitable[None]], runners: int
    ) -> None:
        self._make_call = make_call
        self._lanes: dict[Key, Lane] = {}
        self._due: deque[Lane] = deque()
        self._resting: list[asyncio.Future[None]] = []
        self._runners = self._spare = runners
        self._tasks: TaskGroup | None = None
        self._host: asyncio.Task[Any] | None = None
        self._quiet = asyncio.Event()
        #: Calls that are due or in flight.
        self.busy = 0

    def __len__(self) -> int:
        return len(self._lanes)

    def open(self, tasks: TaskGroup) -> None:
        """Run calls in *tasks* from now on, the group of the current task; none in an earlier one.

        Calls that are due already are begun.
        """
        self._tasks, self._host = tasks, asyncio.current_task()
        self._resting.clear()
        self._spare = self._runners
        for _ in range(min(len(self._due), self._spare)):
            self._spare -= 1
            tasks.start_soon(self._serve)

    def close(self) -> None:
        """Fail what is not made yet; nothing is made from now on."""
        self._tasks = None
        self._resting.clear()
        for lane in (*self._lanes.values(), *self._due):
            for waiting in lane.waiting:
                waiting.fail(_never_made())

    def resize(self, runners: int) -> None:
        """Allow this many runners."""
        self._spare += runners - self._runners
        self._runners = runners

    def enqueue(self, waiting: PendingOperation) -> None:
        """Put an operation into its lane, and start a call if the lane may have another."""
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

    async def until_idle(self) -> None:
        """Wait until no call is due or in flight."""
        while self.busy:
            await self._quiet.wait()

    def _start_call(self, lane: Lane) -> None:
        assert self._tasks is not None  # noqa: S101 - open() came first
        lane.starting = True
        lane.calls += 1
        self.busy += 1
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
            self._tasks.start_soon(self._serve)

    async def _serve(self) -> None:
        """Make calls, one at a time, for the lanes that are due."""
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
                await self._make_call(batch)
        finally:
            lane.calls -= 1
            self.busy -= 1
            if lane.waiting:
                if not lane.starting:
                    self._start_call(lane)
            elif not lane.calls and lane.key is not None:
                self._lanes.pop(lane.key, None)
            if not self.busy:
                self._quiet.set()


def _never_made() -> ClientClosed:
    return ClientClosed("the client was closed before the call was made")
