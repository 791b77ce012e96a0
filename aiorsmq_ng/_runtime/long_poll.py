"""Long poll: wait for messages on behalf of all waiters on a queue in this client.

All waiters of a queue share one loop. A look that finds nothing leaves the loop's name with the
queue, and learns when to look again: that is agreed on with the loops of other clients, so that
one of them looks when one is enough. When a message comes one loop is called by its name. If it
has no waiter any more when it is called, or when it was to look, another one comes in its place.
Each look is one script call, whatever the number of waiters. A waiter is woken only with a message
in its hands.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import anyio

from .._common.backoff import Backoff
from .._protocol.messages import ReceiveSource, give_back
from .._protocol.values import Received
from .._transport.batching import Transport
from .._transport.driver import Heard
from .._transport.notifier import Notifier
from ..errors import ClientClosed
from ..options import Options

#: Waiters that a look is made for. If all of them were served, twice as many follow at once: most
#: wake-ups are for one message, and each further waiter delays it.
_FEWEST, _MOST = 4, 64
#: How long a subscription outlives its last waiter; most come back for the next message.
_LINGER_S = 10.0
#: The server's clock is read in whole milliseconds; looking a hair too early would be in vain.
_MARGIN_S = 0.001


@dataclass(slots=True, eq=False)
class _Waiter:
    count: int
    vt_ms: int
    future: asyncio.Future[Received]


class LongPoll:
    """The loop that all waiters of one queue share; it runs only while there are waiters."""

    def __init__(
        self,
        transport: Transport,
        notifier: Notifier,
        source: Callable[[str, int], ReceiveSource],
        options: Options,
    ) -> None:
        self._transport = transport
        self._notifier = notifier
        self._source_of = source
        self._cap_ms = round(options.poll_cap * 1000)
        self._backoff = Backoff(options.poll_base, options.poll_cap, least=0.8)
        self._waiters: deque[_Waiter] = deque()
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stopped.set()
        self._due = 0.0
        self._at_once = _FEWEST
        #: Looks under way. A call can arrive before the reply that says who waits for it.
        self._looks = 0
        self._closed = False
        self._take_name()

    def _take_name(self) -> None:
        """Take a new name, which no queue knows: what is said under the old one is over."""
        self._source = self._source_of(secrets.token_hex(8), self._cap_ms)
        self._channels = (*self._source.realtime, *self._source.calls)
        #: Channels on which the loop was called and has not answered yet.
        self._called: set[str] = set()
        #: When the loop was asked to look, should another one not come.
        self._asked = math.inf
        #: When the queue expects a look that the loop has promised.
        self._promised = math.inf
        #: Whether a queue may know the name.
        self._noted = False

    async def receive(self, count: int, vt_ms: int, wait_s: float) -> Received:
        """Lease up to *count* messages, waiting up to *wait_s* for the first.

        Cancelling gives back what was taken; at the end of the wait the result is empty.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        pause_ms = self._pause_ms() if wait_s > 0 else 0
        operation = self._source.receive(count, vt_ms, pause_ms)
        with self._looking() if wait_s > 0 else nullcontext():
            received = await self._transport.run(operation)
            # Nothing found, yet a message is due now: the script stopped to let others through
            # after clearing a thousand ids without a body.
            while not received.messages and received.next_visible_ms == 0:
                received = await self._transport.run(operation)
            if received.messages or wait_s <= 0:
                return received
            waiter = _Waiter(count, vt_ms, loop.create_future())
            self._enrol(waiter, self._look_after_s(received.next_visible_ms, pause_ms))
        try:
            with anyio.move_on_after(until - loop.time()):
                return await waiter.future
        except BaseException:
            # A coroutine that is closed cancels nothing: what is on its way to it must come back.
            if not waiter.future.cancel() and _served(waiter):
                self._transport.begin(give_back(waiter.future.result()))
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._changed.set()
        # The wait may have ended in the very moment in which a message came.
        return waiter.future.result() if _served(waiter) else received

    async def aclose(self) -> None:
        """Send everybody home and wait until the loop has ended."""
        self._closed = True
        self._changed.set()
        await self._stopped.wait()

    def _enrol(self, waiter: _Waiter, look_after_s: float) -> None:
        if self._closed:
            raise ClientClosed
        now = asyncio.get_running_loop().time()
        if self._stopped.is_set():
            self._transport.spawn(self._run)
            self._stopped.clear()
            self._due = now + look_after_s
        else:
            self._due = min(self._due, now + look_after_s)
        self._waiters.append(waiter)
        self._changed.set()

    async def _run(self) -> None:
        try:
            self._notifier.watch(self._channels, self._wake)
            while not self._closed and await self._somebody_waits():
                await self._until_due()
                if self._waiters and not self._closed:
                    with self._looking():
                        await self._look()
            self._leave()
        finally:
            for waiter in self._waiters:
                if not waiter.future.done():
                    waiter.future.set_exception(ClientClosed("the client was closed"))
            self._waiters.clear()
            self._notifier.forget(self._channels, self._wake)
            self._take_name()
            self._stopped.set()

    async def _somebody_waits(self) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + _LINGER_S
        while not self._waiters and not self._closed:
            remaining = None
            if not self._looks:
                if loop.time() >= until:
                    break
                self._pass_on()
                remaining = min(until, self._promised, self._asked) - loop.time()
            self._changed.clear()
            with anyio.move_on_after(remaining):
                await self._changed.wait()
        return bool(self._waiters)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        self._looks += 1
        try:
            yield
        finally:
            self._looks -= 1
            self._changed.set()

    def _pass_on(self) -> None:
        """Let others come for what this loop was to come for by now and has no waiter for."""
        called, self._called = self._called, set()
        calls = self._source.calls
        if min(self._promised, self._asked) <= asyncio.get_running_loop().time():
            called.update(calls)
            self._promised = self._asked = self._due = math.inf
        self._transport.begin(calls[channel] for channel in called if channel in calls)

    def _leave(self) -> None:
        """Let others come for all that this loop was to come for, now or later."""
        # Without a connection there is no hurry: the next one to look finds what is there.
        if self._noted and self._notifier.hears(self._source.calls):
            self._transport.begin(self._source.leave)

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiters and not self._closed and not self._called:
            remaining = min(self._due, self._asked) - loop.time()
            if remaining <= 0:
                break
            self._changed.clear()
            with anyio.move_on_after(remaining):
                await self._changed.wait()

    async def _look(self) -> None:
        """Make one attempt for the first waiters, all in one script call."""
        served: list[_Waiter] = []
        most = self._at_once if self._source.shared else 1
        while self._waiters and len(served) < most:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                served.append(waiter)
        if not served:
            return  # all of them were cancelled and have not left yet
        called, self._called = bool(self._called), set()
        # Whatever was to be made sure of, this look finds.
        self._asked = math.inf
        if self._promised <= asyncio.get_running_loop().time():
            self._promised = math.inf
        pause_ms = self._pause_ms()
        try:
            pending = [
                self._transport.submit(self._source.receive(w.count, w.vt_ms, pause_ms))
                for w in served
            ]
            await asyncio.wait(pending)
            hints = [
                self._hand_over(waiter, future)
                for waiter, future in zip(served, pending, strict=True)
            ]
        finally:
            # Those who got nothing keep their places at the head.
            self._waiters.extendleft(w for w in reversed(served) if not w.future.done())
        self._plan(hints, pause_ms, called)

    def _hand_over(self, waiter: _Waiter, future: asyncio.Future[Received]) -> int | None:
        """Give a result to its waiter; return the hint if there was nothing."""
        error = future.exception()
        if error is not None:
            if not waiter.future.done():
                waiter.future.set_exception(error)
            return None
        received = future.result()
        if not received.messages:
            return received.next_visible_ms
        if waiter.future.done():
            self._transport.begin(give_back(received))
        else:
            waiter.future.set_result(received)
        return None

    def _plan(self, hints: Sequence[int | None], pause_ms: int, called: bool) -> None:
        now = asyncio.get_running_loop().time()
        empty = [hint for hint in hints if hint is not None]
        if len(empty) < len(hints) and not called:
            # A client sends without a wake-up; more messages may come that way.
            self._backoff.reset()
        self._at_once = _FEWEST if empty else min(2 * self._at_once, _MOST)
        if empty:
            self._due = now + self._look_after_s(empty[0], pause_ms)
        else:
            # Everybody was served, so there may be more for those behind them.
            self._due = now if self._waiters else math.inf

    def _pause_ms(self) -> int:
        """Return after how long to look again, if this loop can be called before; else 0."""
        if not self._notifier.hears(self._source.calls):
            return 0
        return max(1, round(self._backoff.next_s() * 1000))

    def _look_after_s(self, hint_ms: int, pause_ms: int) -> float:
        """Return after how long to look again, as agreed on with others, or by ourselves."""
        if pause_ms:
            after_s = hint_ms / 1000 + _MARGIN_S
            self._promised = asyncio.get_running_loop().time() + after_s
            self._noted = True
            return after_s
        pause_s = self._backoff.next_s()
        return pause_s if hint_ms < 0 else min(pause_s, hint_ms / 1000 + _MARGIN_S)

    def _wake(self, heard: Heard) -> None:
        """Look at once, or after as many milliseconds as the call says."""
        text = heard.text if heard.channel in self._source.calls else None
        after_ms = int(text) if text and text.isdigit() else 0
        if text:
            # The call stands in place of what was promised.
            self._promised = math.inf
        if after_ms:
            at = asyncio.get_running_loop().time() + after_ms / 1000 + _MARGIN_S
            self._asked = min(self._asked, at)
        else:
            # What is meant for everybody need not be passed on.
            self._called.add(heard.channel if text else "")
        self._changed.set()


def _served(waiter: _Waiter) -> bool:
    future = waiter.future
    return future.done() and not future.cancelled() and future.exception() is None
