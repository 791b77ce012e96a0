"""Long poll: wait for messages on behalf of all waiters on a queue in this client.

All waiters of a queue share one loop, which receives for them. Theory of operation:

1. A receive is one script call for any number of waiters.
2. A receive that finds nothing registers the loop's name with the queue. The reply says when to
   receive again; the script schedules the loops of all clients, so that one of them receives when
   one is enough.
3. When a message arrives, the server publishes a wake-up to one loop, by its name.
4. A loop that has no waiter any more when it is woken, or when its scheduled receive is due, passes
   this on: another loop gets a wake-up in its place.
5. A waiter's future is resolved only with messages, or with an error.
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
from .._protocol.operations.message_values import Received
from .._protocol.operations.messages import ReceiveSource, give_back
from .._transport.driver import Heard
from .._transport.notifier import Notifier
from .._transport.transport import Transport
from ..errors import ClientClosed
from ..options import Options

#: Waiters that one receive is made for. If all of them got messages, twice as many follow at once.
#: It starts small: most wake-ups are for one message, and each further waiter delays it.
_MIN_BATCH, _MAX_BATCH = 4, 64
#: How long the loop outlives its last waiter; most callers come back for the next message.
_LINGER_S = 10.0
#: The server's clock is read in whole milliseconds; a receive just too early would find nothing.
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
        self._batch_size = _MIN_BATCH
        #: Receives in flight. A wake-up can arrive before the reply after which a caller waits.
        self._in_flight = 0
        self._closed = False
        self._renew_name()

    def _renew_name(self) -> None:
        """Take a new name, registered with no queue; wake-ups of the old one are ignored."""
        self._source = self._source_of(secrets.token_hex(8), self._cap_ms)
        self._channels = (*self._source.realtime, *self._source.calls)
        #: Channels of wake-ups that no receive has followed yet.
        self._woken_on: set[str] = set()
        #: When to receive because of a delayed wake-up: as a fallback, if no other loop does.
        self._fallback_at = math.inf
        #: When the queue expects the receive that it scheduled for this loop.
        self._scheduled_at = math.inf
        #: True if a queue may have the name.
        self._registered = False

    async def receive(self, count: int, vt_ms: int, wait_s: float) -> Received:
        """Lease up to *count* messages, waiting up to *wait_s* for the first.

        A cancellation gives back what was taken. The result is empty if the wait ends first.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        pause_ms = self._proposed_pause_ms() if wait_s > 0 else 0
        operation = self._source.receive(count, vt_ms, pause_ms)
        with self._receive_in_flight() if wait_s > 0 else nullcontext():
            received = await self._transport.run(operation)
            # Nothing was found, but a message is due now: the script has removed a thousand ids
            # without a body, and returned so that other clients are not held up.
            while not received.messages and received.next_visible_ms == 0:
                received = await self._transport.run(operation)
            if received.messages or wait_s <= 0:
                return received
            waiter = _Waiter(count, vt_ms, loop.create_future())
            self._add_waiter(waiter, self._agreed_pause_s(received.next_visible_ms, pause_ms))
        try:
            with anyio.move_on_after(until - loop.time()):
                return await waiter.future
        except BaseException:
            # A coroutine that is closed cancels nothing: what it was to get must be given back.
            if not waiter.future.cancel() and _served(waiter):
                self._transport.begin(give_back(waiter.future.result()))
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._changed.set()
        # The wait may have ended just as a message arrived.
        return waiter.future.result() if _served(waiter) else received

    async def aclose(self) -> None:
        """Fail all waiters with ``ClientClosed``, and wait until the loop has ended."""
        self._closed = True
        self._changed.set()
        await self._stopped.wait()

    def _add_waiter(self, waiter: _Waiter, look_after_s: float) -> None:
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
            while not self._closed and await self._has_waiters():
                await self._until_due()
                if self._waiters and not self._closed:
                    with self._receive_in_flight():
                        await self._receive_for_waiters()
            self._leave()
        except ClientClosed:
            pass  # closing came between a look and the next one
        finally:
            for waiter in self._waiters:
                if not waiter.future.done():
                    waiter.future.set_exception(ClientClosed("the client was closed"))
            self._waiters.clear()
            self._notifier.forget(self._channels, self._wake)
            self._renew_name()
            self._stopped.set()

    async def _has_waiters(self) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + _LINGER_S
        while not self._waiters and not self._closed:
            remaining = None
            if not self._in_flight:
                if loop.time() >= until:
                    break
                self._pass_on_wake_ups()
                remaining = min(until, self._scheduled_at, self._fallback_at) - loop.time()
            self._changed.clear()
            with anyio.move_on_after(remaining):
                await self._changed.wait()
        return bool(self._waiters)

    @contextmanager
    def _receive_in_flight(self) -> Iterator[None]:
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._changed.set()

    def _pass_on_wake_ups(self) -> None:
        """Pass wake-ups and a receive that is due on to other loops: this one has no waiter."""
        woken_on, self._woken_on = self._woken_on, set()
        calls = self._source.calls
        if min(self._scheduled_at, self._fallback_at) <= asyncio.get_running_loop().time():
            woken_on.update(calls)
            self._scheduled_at = self._fallback_at = self._due = math.inf
        self._transport.begin(calls[channel] for channel in woken_on if channel in calls)

    def _leave(self) -> None:
        """Remove the loop from its queues; other loops get its wake-ups and scheduled receives."""
        # Not without a connection: the next loop that receives finds what is there.
        if self._registered and self._notifier.is_subscribed(self._source.calls):
            self._transport.begin(self._source.leave)

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiters and not self._closed and not self._woken_on:
            remaining = min(self._due, self._fallback_at) - loop.time()
            if remaining <= 0:
                break
            self._changed.clear()
            with anyio.move_on_after(remaining):
                await self._changed.wait()

    async def _receive_for_waiters(self) -> None:
        """Receive once for the first waiters, all in one script call."""
        served: list[_Waiter] = []
        most = self._batch_size if self._source.shared else 1
        while self._waiters and len(served) < most:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                served.append(waiter)
        if not served:
            return  # all of them were cancelled, and have not removed themselves yet
        woken, self._woken_on = bool(self._woken_on), set()
        # This receive is the fallback, too.
        self._fallback_at = math.inf
        if self._scheduled_at <= asyncio.get_running_loop().time():
            self._scheduled_at = math.inf
        pause_ms = self._proposed_pause_ms()
        try:
            pending = [
                self._transport.submit(self._source.receive(w.count, w.vt_ms, pause_ms))
                for w in served
            ]
            await asyncio.wait(pending)
            hints = [
                self._hand_out(waiter, future)
                for waiter, future in zip(served, pending, strict=True)
            ]
        finally:
            # Waiters that got nothing keep their places at the head.
            self._waiters.extendleft(w for w in reversed(served) if not w.future.done())
        self._schedule(hints, pause_ms, woken)

    def _hand_out(self, waiter: _Waiter, future: asyncio.Future[Received]) -> int | None:
        """Give a result to its waiter; return the hint if there was no message."""
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

    def _schedule(self, hints: Sequence[int | None], pause_ms: int, woken: bool) -> None:
        now = asyncio.get_running_loop().time()
        empty = [hint for hint in hints if hint is not None]
        if len(empty) < len(hints) and not woken:
            # Messages came without a wake-up, so a foreign client sends; poll often again.
            self._backoff.reset()
        self._batch_size = _MIN_BATCH if empty else min(2 * self._batch_size, _MAX_BATCH)
        if empty:
            self._due = now + self._agreed_pause_s(empty[0], pause_ms)
        else:
            # All of them got messages, so there may be more for the waiters behind them.
            self._due = now if self._waiters else math.inf

    def _proposed_pause_ms(self) -> int:
        """Return the pause until the next receive to propose; 0 if no wake-up can be received."""
        if not self._notifier.is_subscribed(self._source.calls):
            return 0
        return max(1, round(self._backoff.next_s() * 1000))

    def _agreed_pause_s(self, hint_ms: int, pause_ms: int) -> float:
        """Return the pause until the next receive: the reply's, if a pause was proposed."""
        if pause_ms:
            after_s = hint_ms / 1000 + _MARGIN_S
            self._scheduled_at = asyncio.get_running_loop().time() + after_s
            self._registered = True
            return after_s
        pause_s = self._backoff.next_s()
        return pause_s if hint_ms < 0 else min(pause_s, hint_ms / 1000 + _MARGIN_S)

    def _wake(self, heard: Heard) -> None:
        """Receive at once, or after the milliseconds in the wake-up."""
        text = heard.text if heard.channel in self._source.calls else None
        after_ms = int(text) if text and text.isdigit() else 0
        if text:
            # The wake-up replaces the scheduled receive.
            self._scheduled_at = math.inf
        if after_ms:
            at = asyncio.get_running_loop().time() + after_ms / 1000 + _MARGIN_S
            self._fallback_at = min(self._fallback_at, at)
        else:
            # A publication to all clients need not be passed on.
            self._woken_on.add(heard.channel if text else "")
        self._changed.set()


def _served(waiter: _Waiter) -> bool:
    future = waiter.future
    return future.done() and not future.cancelled() and future.exception() is None
