"""Batching: operations that are submitted at the same time share a call.

Theory of operation
-------------------

Operations that may share a call (same kind, and same lane of their requests) gather in a *lane*.

Rule 1: nothing waits for a timer. A call of a lane is started in the tick in which its first
operation is submitted, and takes its batch in the next tick, with all that was submitted until
then. If one task has made one lone operation after the other for a while, its next one that finds
no call in flight is written in the task's own step, without a tick in between.

Rule 2: a lane has at most two calls in flight. What is submitted meanwhile goes with the next call.
While the server works on one, the client packs the other or hands out results.

Rule 3: a batch is bounded by weight and size, so that a call keeps the server busy for about a
millisecond. The size of receives is that of their reply, if bodies are as long as the last one: the
client reads one long reply while the server works on the next. One operation always fits, however
large.

Rule 4: no call runs in a caller's task, so cancelling a caller cancels no I/O, no connection gets
out of step and no neighbour in the batch is hurt. The first attempt of a call needs no task, see
``first_attempts.py``. What that cannot do is done in tasks of the transport (runners). There are as
many runners as it pays to have calls in flight, and no more first attempts; lanes that have
something to do wait for their turn (``_due``), and a lane with more to do lines up again behind the
others.

Rule 5: an operation that is cancelled before its call is written is not made, unless it was
submitted to be seen through.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from .._common.tasks import TaskGroup, retrieve_exception
from .._protocol.operation import Kind, Operation
from .call_runner import CallRunner, never_made

if TYPE_CHECKING:
    from .call import Call
    from .first_attempts import FirstAttempts

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
#: After as many lone calls of one task, the next one is taken for another, and not kept until the
#: next tick.
LONE_CALLS = 8
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
    """The lanes of a transport, and the runners that make calls, one at a time each."""

    def __init__(self, calls: CallRunner, runners: int) -> None:
        self._calls = calls
        self._lanes: dict[Key, Lane] = {}
        self._due: deque[Lane] = deque()
        self._resting: list[asyncio.Future[None]] = []
        # Calls that runners have to make: those that could not be begun without one, or were not
        # answered plainly.
        self._handed_over: deque[tuple[Call, Lane]] = deque()
        self._runners = self._spare = runners
        # Makes first attempts without runners; how many are in flight; True if more are about to.
        self._first: FirstAttempts | None = None
        self._first_in_flight = 0
        # How many calls in a row had one operation, and no other call beside them, all of one task;
        # that task, and the one of the last operation (their ids; 0 if there is none).
        self._lone_calls = self._lone_task = self._last_task = 0
        self._beginning = False
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
        for _ in range(min(len(self._due) + len(self._handed_over), self._spare)):
            self._spare -= 1
            tasks.start_soon(self._serve)

    def close(self) -> None:
        """Fail what is not made yet; nothing is made from now on."""
        self._tasks = None
        self._resting.clear()
        for lane in (*self._lanes.values(), *self._due):
            for waiting in lane.waiting:
                waiting.fail(never_made())
        for call, _ in self._handed_over:
            self._calls.abandon(call)

    def resize(self, runners: int) -> None:
        """Allow this many runners."""
        self._spare += runners - self._runners
        self._runners = runners

    def begin_by(self, first: FirstAttempts | None) -> None:
        """Have first attempts made by *first* from now on; without it, by runners."""
        self._first = first
        if self._due:
            self._serve_due()

    def attempt_ended(self, lane: Lane) -> None:
        """Note that a first attempt for *lane* has ended."""
        self._first_in_flight -= 1
        self._end_call(lane)
        if self._due:
            self._serve_due()

    def attempt_handed_over(self, call: Call, lane: Lane) -> None:
        """Have a runner go on with a first attempt of *lane*."""
        self._first_in_flight -= 1
        self._hand_over(call, lane)
        if self._due:
            self._serve_due()

    def enqueue(self, waiting: PendingOperation) -> None:
        """Put an operation into its lane, and start a call if the lane may have another."""
        if self._tasks is None:
            waiting.fail(never_made())
            return
        operation = waiting.operation
        task = asyncio.current_task()
        self._last_task = 0 if task is None else id(task)
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
        lane.starting = True
        lane.calls += 1
        self.busy += 1
        self._quiet.clear()
        self._due.append(lane)
        self._serve_due()

    def _serve_due(self) -> None:
        """Have calls made for the lanes that are due, in the next tick: after all callers of this.

        If there are as many first attempts as may be, the next that ends does it.
        """
        if self._first is None:
            self._wake_runner()
        elif (
            self._lone_calls >= LONE_CALLS and self.busy == 1 and self._last_task == self._lone_task
        ):
            self._begin_calls()
        elif not self._beginning and self._first_in_flight < self._runners:
            self._beginning = True
            asyncio.get_running_loop().call_soon(self._begin_calls)

    def _begin_calls(self) -> None:
        """Begin calls for the lanes that are due, without a runner where that is possible."""
        self._beginning = False
        if self._tasks is None:
            return  # closed, and nothing is made any more
        first = self._first
        while self._due and self._first_in_flight < self._runners:
            lane = self._due.popleft()
            if (call := self._next_call(lane)) is None:
                continue
            self._count_lone(call)
            if first is not None and first.begin(call, lane):
                self._first_in_flight += 1
            else:
                self._hand_over(call, lane)
        if first is not None:
            first.write()

    def _count_lone(self, call: Call) -> None:
        if self.busy != 1 or len(call.callers) != 1 or not self._last_task:
            self._lone_calls = 0
        elif self._last_task == self._lone_task:
            self._lone_calls += 1
        else:
            self._lone_calls, self._lone_task = 1, self._last_task

    def _next_call(self, lane: Lane) -> Call | None:
        """Return the next call of *lane*, unless nothing is left to do."""
        lane.starting = False
        batch = lane.batch()
        if not batch:
            self._end_call(lane)
            return None
        if lane.waiting and lane.calls < CALLS_PER_LANE:
            self._start_call(lane)
        return self._calls.number(batch)

    def _hand_over(self, call: Call, lane: Lane) -> None:
        self._handed_over.append((call, lane))
        self._wake_runner()

    def _wake_runner(self) -> None:
        while self._resting:
            rest = self._resting.pop()
            # That of a runner that is cancelled is done: asyncio.run cancels all tasks at its end.
            if not rest.done():
                rest.set_result(None)
                return
        # A transport that is cancelled starts no runner, which would outlive the cancellation; what
        # is due fails when it has ended.
        tasks, host = self._tasks, self._host
        if self._spare and tasks is not None and host is not None and not host.cancelling():
            self._spare -= 1
            tasks.start_soon(self._serve)

    async def _serve(self) -> None:
        """Make calls, one at a time: those handed over, and all if there are no first attempts."""
        loop = asyncio.get_running_loop()
        while True:
            while self._handed_over or (self._due and self._first is None):
                await self._make_next()
            rest = loop.create_future()
            self._resting.append(rest)
            await rest

    async def _make_next(self) -> None:
        if self._handed_over:
            call, lane = self._handed_over.popleft()
        else:
            lane = self._due.popleft()
            if (due := self._next_call(lane)) is None:
                return
            call = due
        try:
            await self._calls.complete(call)
        finally:
            self._end_call(lane)

    def _end_call(self, lane: Lane) -> None:
        """Note the end of a call; if operations are left, queue the lane behind the others."""
        lane.calls -= 1
        self.busy -= 1
        if lane.waiting:
            if not lane.starting:
                self._start_call(lane)
        elif not lane.calls and lane.key is not None:
            self._lanes.pop(lane.key, None)
        if not self.busy:
            self._quiet.set()
