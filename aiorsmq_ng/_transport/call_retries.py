"""Retries: repeat a call until it is answered, as long as that is safe and before its deadline.

All clients of a process share one retry budget. After an outage all their calls are due for a retry
at once. Each waits for its own backoff, and then for its turn in the budget, so that a server that
comes back is not overloaded.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from .._common.backoff import Backoff
from .._common.durability import MEMORY, Durability
from .._protocol.operation import Operation
from ..errors import RSMQError, Unavailable
from .driver import Driver, NotExecuted, ReplyLost
from .server_monitor import ServerMonitor

if TYPE_CHECKING:
    from .call import Call

T = TypeVar("T")
X = TypeVar("X")

RETRY_BASE_S, RETRY_CAP_S = 0.02, 1.0
#: Part of a call's time after which an attempt is given up for the next, if the call is repeatable.
PATIENCE = 1 / 3
#: The part of an attempt's time in which replicas or the disk must confirm.
CONFIRM = 0.8
#: Retries that need not wait for a turn, and retries per second after these.
BURST = 20
PER_SECOND = 200.0
#: An event loop that is late by this much was blocked: all retries that fell due meanwhile would
#: start at once.
LATE_S = 0.05


class RetryBudget:
    """Allows a burst of retries, then a number per second. A retry is delayed, never refused."""

    def __init__(self, burst: int = BURST, per_second: float = PER_SECOND) -> None:
        self._burst_s = burst / per_second
        self._step_s = 1 / per_second
        self._full_at = 0.0
        # Clients of several threads, each with a loop of its own, share the budget.
        self._lock = threading.Lock()

    def reserve(self, pause_s: float, within_s: float = math.inf) -> float | None:
        """Reserve a turn after *pause_s* at the earliest; return the seconds until it comes.

        Return ``None`` and reserve nothing if that is not *within_s*: a caller that gives up must
        not delay others.
        """
        now = time.monotonic()
        with self._lock:
            full_at = max(self._full_at, now) + self._step_s
            pause_s = max(pause_s, full_at - now - self._burst_s)
            if pause_s >= within_s:
                return None
            self._full_at = full_at
            return pause_s


#: The budget of this process.
BUDGET = RetryBudget()


async def rest(pause_s: float) -> None:
    """Sleep for *pause_s*; after a blocked event loop, add jitter to spread overdue retries."""
    loop = asyncio.get_running_loop()
    due = loop.time() + pause_s
    await asyncio.sleep(pause_s)
    late_s = loop.time() - due
    if late_s > LATE_S:
        await asyncio.sleep(random.uniform(0, late_s))  # noqa: S311 - jitter, not a secret


class Timeout(Protocol):
    """The end of the time of something in flight."""

    at: float

    def expire(self) -> None:
        """Act on it: the time is over."""


class _Timeout(Struct, eq=False):
    """The end of one attempt's time, and the task that makes the attempt."""

    at: float
    task: asyncio.Task[Any]
    #: Cancellation requests of the task before the attempt.
    cancelling: int
    reached: bool = False

    def expire(self) -> None:
        """Cancel the task."""
        self.reached = True
        self.task.cancel()

    def was_reached(self) -> bool:
        """Return True if a cancellation was for this timeout alone."""
        if not self.reached:
            return False
        self.reached = False
        return self.task.uncancel() <= self.cancelling


class _Timeouts:
    """Ends attempts that have taken too long.

    All attempts in flight share one timer. Nearly every attempt ends in time, and a timer of its
    own would cost more than the rest of its bookkeeping. The timer is not cancelled with the last
    attempt: if it finds none, it is not set again.
    """

    def __init__(self) -> None:
        self._in_flight: dict[Timeout, None] = {}
        self._wakes_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def start(self, at: float) -> _Timeout:
        """Cancel the current task at *at* on the event loop's clock, unless ``end`` comes first."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        timeout = _Timeout(at, task, task.cancelling())
        self.add(timeout)
        return timeout

    def add(self, timeout: Timeout) -> None:
        """Let *timeout* expire at its time, unless it is discarded before."""
        self._in_flight[timeout] = None
        if timeout.at < self._wakes_at:
            self._set_timer(timeout.at)

    def discard(self, timeout: Timeout) -> None:
        """Forget *timeout*."""
        self._in_flight.pop(timeout, None)

    def of_type(self, kind: type[X]) -> list[X]:
        """Return the timeouts of a class that have not expired."""
        return [timeout for timeout in self._in_flight if isinstance(timeout, kind)]

    def end(self, timeout: _Timeout) -> None:
        """Cancel the timeout of a task."""
        self.discard(timeout)
        if timeout.reached:
            # The answer came before the cancellation.
            timeout.task.uncancel()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._wake)

    def _wake(self) -> None:
        # The event loop may be early by the resolution of its clock.
        now = max(self._wakes_at, asyncio.get_running_loop().time())
        self._wakes_at, self._timer = math.inf, None
        for timeout in [timeout for timeout in self._in_flight if timeout.at <= now]:
            del self._in_flight[timeout]
            timeout.expire()
        if self._in_flight:
            self._set_timer(min(timeout.at for timeout in self._in_flight))


class Retries:
    """Makes calls on a driver, which is opened by the first call."""

    def __init__(
        self, driver: Callable[[], Awaitable[Driver]], *, deadline_s: float, peer: str = "redis"
    ) -> None:
        self._driver = driver
        #: What errors call the other side.
        self.peer = peer
        self._patience_s = deadline_s * PATIENCE
        #: What sends wait for.
        self.durability = Durability()
        #: Called with the first operation of a call that is made again.
        self.on_retry: Callable[[Operation[Any]], object] = lambda _: None
        self.monitor = ServerMonitor("the server" if peer == "redis" else peer)
        self.timeouts = _Timeouts()

    async def make(self, call: Call, deadline: float) -> list[Any]:
        """Return the results of *call*.

        ``NotExecuted`` or a final error: it did not run. ``ReplyLost``: its outcome is unknown.
        """
        loop = asyncio.get_running_loop()
        backoff = None
        try:
            while True:
                left_s = self.start_attempt(call, deadline, loop.time())
                try:
                    results = await self._attempt(partial(self._run, call, left_s), left_s, call)
                    if _is_confirmed(call, results):
                        return results
                    backoff = backoff or _backoff()
                    if not await self._ask_again(call, backoff, deadline):
                        return results
                except (NotExecuted, ReplyLost) as error:
                    if isinstance(error, ReplyLost):
                        call.doubt()
                        if not call.may_repeat:
                            raise
                    backoff = backoff or _backoff()
                    await _pause(backoff, deadline, error)
                    self.on_retry(call.operations[0])
        except (NotExecuted, RSMQError) as error:
            if call.in_doubt:
                # This attempt did not run; an earlier one may have.
                raise ReplyLost(str(error)) from error
            raise

    def start_attempt(self, call: Call, deadline: float, now: float) -> float:
        """Note that an attempt of *call* begins, and return the seconds that it may take.

        For one that was begun already: that it may take in all.
        """
        if call.begun is None:
            call.began_at = now
            call.written = False
        left_s = deadline - call.began_at
        return min(left_s, self._patience_s) if call.may_repeat else left_s

    def _run(self, call: Call, left_s: float, driver: Driver) -> Awaitable[list[Any]]:
        """Make one attempt on *driver*, with a timeout of *left_s*."""
        # The durability is set when the client has connected.
        durability = self.durability
        call.min_replicas = durability.replicas
        if call.kind.with_durability is not None and (durability.replicas or durability.fsync):
            call.durability = durability
            call.reached = [MEMORY] * len(call.operations)
            call.confirm_ms = max(1, int(left_s * CONFIRM * 1000))
        return driver.run(call)

    async def ask(self, question: Callable[[Driver], Awaitable[T]], deadline: float) -> T:
        """Return the driver's answer to an idempotent question; retry until *deadline*."""
        loop = asyncio.get_running_loop()
        backoff = _backoff()
        while True:
            try:
                return await self._attempt(question, deadline - loop.time())
            except (NotExecuted, ReplyLost) as error:
                await _pause(backoff, deadline, error)

    async def _attempt(
        self, work: Callable[[Driver], Awaitable[T]], timeout_s: float, call: Call | None = None
    ) -> T:
        """Make one attempt within *timeout_s*."""
        if timeout_s <= 0:
            raise NotExecuted("the deadline of the call passed before it could be made")
        clock = asyncio.get_running_loop().time
        began_at = clock() if call is None else call.began_at
        timeout = self.timeouts.start(began_at + timeout_s)
        try:
            result = await work(await self._driver())
        except asyncio.CancelledError:
            if not timeout.was_reached():
                raise
            fault: NotExecuted | ReplyLost = NotExecuted("no connection in time")
            if call is None or call.written:
                fault = ReplyLost(f"{self.peer} did not answer in time")
            self.monitor.failed(fault, began_at, clock())
            raise fault from None
        except (NotExecuted, ReplyLost) as error:
            self.monitor.failed(error, began_at, clock())
            raise
        except RSMQError as error:
            # The driver's error behind it may repeat the command: a password or a body.
            error.__context__ = None
            if isinstance(error, Unavailable) and error.transient:
                self.monitor.failed(error, began_at, clock())
            else:
                self.monitor.answered(clock())
            raise
        else:
            self.monitor.answered(clock())
            return result
        finally:
            self.timeouts.end(timeout)

    async def _ask_again(self, call: Call, backoff: Backoff, deadline: float) -> bool:
        """Wait before an unconfirmed call is repeated; return False if there is no time for it.

        The server may have ended the wait because it is no longer the primary; the new primary may
        confirm. Without time for a retry, the unconfirmed result is returned.
        """
        within_s = deadline - self._patience_s - asyncio.get_running_loop().time()
        pause_s = BUDGET.reserve(backoff.next_s(), within_s) if call.may_repeat else None
        if pause_s is None:
            return False
        call.doubt()
        await rest(pause_s)
        self.on_retry(call.operations[0])
        return True


def _is_confirmed(call: Call, results: list[Any]) -> bool:
    """Return True if all stored messages have the durability that the client demands."""
    durability = call.durability
    return durability is None or all(
        isinstance(result, Exception) or durability.met_by(reached)
        for result, reached in zip(results, call.reached, strict=True)
    )


def _backoff() -> Backoff:
    return Backoff(RETRY_BASE_S, RETRY_CAP_S, least=0.0)


async def _pause(backoff: Backoff, deadline: float, error: Exception) -> None:
    """Wait until the call may be retried; raise *error* if that is after *deadline*."""
    loop = asyncio.get_running_loop()
    pause_s = BUDGET.reserve(backoff.next_s(), deadline - loop.time())
    if pause_s is None:
        raise error
    await rest(pause_s)
    if loop.time() >= deadline:
        raise error
