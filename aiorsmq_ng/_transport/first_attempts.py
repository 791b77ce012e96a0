"""First attempts: a call goes from its callers to the socket and back without a task of its own.

Theory of operation
-------------------

Nearly every call is answered at its first attempt. A task, a future and a timer for each would cost
the client more than the rest of the call.

Rule 1: at the end of a tick the lanes begin their calls here. A first attempt is written at once if
that needs no waiting: the client is connected, and a connection is idle and in step. Otherwise
nothing is written, and a runner makes the call.

Rule 2: a reply in time is decoded in the step that receives it, and handed out to the callers.

Rule 3: anything else (an error in place of the reply, a lost connection, a reply that is late)
hands the attempt over to a runner. The runner awaits the reply as if it had written the command
itself. So refusals, repetitions and damaged connections are handled in one place, ``Retries``.

Rule 4: nothing cancels a first attempt. A caller that is cancelled gives up its result, and what
was taken for it is undone. When the client ends, attempts in flight are interrupted calls.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .._protocol.operation import Reply
from .driver import ImmediateDriver

if TYPE_CHECKING:
    from .batching import Lane, Lanes
    from .call import Call
    from .call_retries import Retries
    from .call_runner import CallRunner
    from .loop_guard import LoopGuard


class FirstAttempt:
    """The first attempt of a call, in flight. The connection gives it the reply or an error."""

    __slots__ = ("_attempts", "at", "call", "connection", "lane", "over", "reply")

    def __init__(self, attempts: FirstAttempts, call: Call, lane: Lane, at: float) -> None:
        self._attempts = attempts
        self.call = call
        self.lane = lane
        #: When its time is over, on the event loop's clock.
        self.at = at
        #: What it was written to; set by the driver.
        self.connection: Any = None
        #: True once its results are handed out, or it is interrupted.
        self.over = False
        #: The reply, once a runner waits for it.
        self.reply: asyncio.Future[Reply] | None = None

    def done(self) -> bool:
        """Return True if no reply is wanted any more."""
        return self.over if self.reply is None else self.reply.done()

    def set_result(self, reply: Reply) -> None:
        """Hand out the results in *reply*."""
        if self.reply is not None or not self._attempts.finish(self, reply):
            self._handed_over().set_result(reply)

    def set_exception(self, error: Exception) -> None:
        """Have a runner handle *error*: the server refused the call, or the connection is lost."""
        self._handed_over().set_exception(error)

    def expire(self) -> None:
        """Have a runner give the attempt up: its time is over."""
        self._handed_over()

    def _handed_over(self) -> asyncio.Future[Reply]:
        if self.reply is None:
            self.reply = asyncio.get_running_loop().create_future()
            self._attempts.hand_over(self)
        return self.reply


class FirstAttempts:
    """Makes the first attempts of calls on a driver that can write without waiting."""

    def __init__(self, lanes: Lanes, calls: CallRunner, retries: Retries, guard: LoopGuard) -> None:
        self._guard = guard
        self._lanes = lanes
        self._calls = calls
        self._retries = retries
        self._timeouts = retries.timeouts
        self._driver: ImmediateDriver | None = None

    def use(self, driver: ImmediateDriver | None) -> None:
        """Begin calls on *driver* from now on; without one, runners make all calls."""
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._lanes.begin_by(None if driver is None else self)

    def begin(self, call: Call, lane: Lane) -> bool:
        """Get the first attempt of *call* ready; return False if a runner has to make it."""
        driver = self._driver
        if driver is None or self._guard.here is not self._loop:
            return False  # the runner says why
        left_s = self._retries.start_attempt(call, call.deadline, self._loop.time())
        if left_s <= 0:
            return False
        attempt = FirstAttempt(self, call, lane, call.began_at + left_s)
        try:
            if not driver.begin(call, attempt):
                return False
        except Exception:
            return False  # the runner meets the same error, and reports it to the callers
        call.written = True
        self._timeouts.add(attempt)
        return True

    def write(self) -> None:
        """Write what was begun in this tick."""
        if self._driver is not None:
            self._driver.write_begun()

    def finish(self, attempt: FirstAttempt, reply: Reply) -> bool:
        """Hand out the results in *reply*; return False if a runner has to do it."""
        driver, call = self._driver, attempt.call
        now = self._loop.time()
        if driver is None or not driver.end(attempt.connection, now):
            return False
        attempt.over = True
        self._timeouts.discard(attempt)
        self._retries.monitor.answered(now)
        try:
            self._calls.settle(call, driver.decode(call, reply))
        except Exception as error:
            self._calls.fail(call, error)
        self._lanes.attempt_ended(attempt.lane)
        return True

    def hand_over(self, attempt: FirstAttempt) -> None:
        """Have a runner go on with *attempt*."""
        self._timeouts.discard(attempt)
        attempt.call.begun = attempt
        self._lanes.attempt_handed_over(attempt.call, attempt.lane)

    def interrupt(self) -> None:
        """End all attempts in flight: the client ends."""
        for attempt in self._timeouts.of_type(FirstAttempt):
            attempt.over = True
            self._timeouts.discard(attempt)
            self._calls.lost.interrupt(attempt.call)
