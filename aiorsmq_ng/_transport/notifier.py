"""Wake-ups: one subscribed connection per client, for any number of waiters.

A wake-up is a hint to receive again. A lost connection loses hints, never messages: waiters also
poll from time to time.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import partial

import anyio

from .._common.backoff import Backoff
from .._common.tasks import TaskGroup
from ..errors import RSMQError
from .call_retries import BUDGET, rest
from .driver import Heard, Listener, NotExecuted, ReplyLost
from .transport import Transport

logger = logging.getLogger("aiorsmq_ng.notifier")

RECONNECT_BASE_S, RECONNECT_CAP_S = 0.05, 5.0


#: Callback for a publication, or for a confirmed subscription.
Wake = Callable[[Heard], None]


class Notifier:
    """Calls back when something was published on a channel."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._wake: dict[str, set[Wake]] = {}
        self._confirmed: set[str] = set()
        self._changed = anyio.Event()
        self._running = False
        #: True from the line of the log about lost wake-ups to that about their return; and after
        #: the line about a refusal.
        self._lost = self._warned = False

    def is_subscribed(self, channels: Iterable[str]) -> bool:
        """Return True if the server has confirmed the subscriptions to all of *channels*."""
        return self._confirmed.issuperset(channels)

    def watch(self, channels: tuple[str, ...], wake: Wake) -> None:
        """Call *wake* for each publication on *channels*, and when a subscription is confirmed.

        A message may have been sent before the subscription was confirmed, so that is a hint, too.
        """
        for channel in channels:
            self._wake.setdefault(channel, set()).add(wake)
        self._changed.set()
        if not self._running:
            self._running = True
            self._transport.spawn(self._run)

    def forget(self, channels: tuple[str, ...], wake: Wake) -> None:
        """Stop calling *wake* for *channels*."""
        for channel in channels:
            wakes = self._wake.get(channel, set())
            wakes.discard(wake)
            if not wakes:
                self._wake.pop(channel, None)
        self._changed.set()

    async def arrivals(
        self, watched: Mapping[str, tuple[str, ...]]
    ) -> AsyncGenerator[set[str], None]:
        """Yield the names whose channels were woken, all of them at first, until the client closes.

        Wake-ups between two calls are collected in the next set.
        """
        woken = set(watched)
        some = anyio.Event()
        some.set()
        closed = False

        def wake(name: str, _: Heard) -> None:
            woken.add(name)
            some.set()

        def close() -> None:
            nonlocal closed
            closed = True
            some.set()

        calls = {name: partial(wake, name) for name in watched}
        self._transport.closers.add(close)
        try:
            for name, channels in watched.items():
                self.watch(channels, calls[name])
            while True:
                await some.wait()
                if closed:
                    return
                some = anyio.Event()
                arrived, woken = woken, set()
                yield arrived
        finally:
            self._transport.closers.discard(close)
            for name, channels in watched.items():
                self.forget(channels, calls[name])

    async def _run(self) -> None:
        backoff = Backoff(RECONNECT_BASE_S, RECONNECT_CAP_S)
        try:
            while self._wake:
                started = anyio.current_time()
                try:
                    await self._listen()
                except* (NotExecuted, ReplyLost) as errors:
                    level = logging.DEBUG if self._lost else logging.INFO
                    self._lost = True
                    logger.log(level, "wake-ups are lost, only polling: %s", errors.exceptions[0])
                except* RSMQError as errors:
                    # A user without the right to subscribe still receives, by polling.
                    level = logging.DEBUG if self._warned else logging.WARNING
                    self._warned = True
                    logger.log(level, "no wake-ups, only polling: %s", errors.exceptions[0])
                # A server that drops each new connection must not be flooded with connects.
                if anyio.current_time() - started > RECONNECT_CAP_S:
                    backoff.reset()
                if self._wake:
                    # Every client of the process may have lost its connection.
                    await rest(BUDGET.reserve(backoff.next_s()) or 0.0)
        finally:
            self._running = False

    async def _listen(self) -> None:
        """Listen until the connection is lost or no callback is left."""
        listener = (await self._transport.driver()).listener()
        try:
            async with TaskGroup() as tasks:
                first = set(self._wake)
                await listener.subscribe(*first)
                tasks.start_soon(self._adjust, listener, first, tasks.cancel_scope)
                while True:
                    if (heard := await listener.next_heard()) is None:
                        continue
                    if self._lost:
                        self._lost = False
                        logger.info("wake-ups are back")
                    if heard.text is None:
                        self._confirmed.add(heard.channel)
                    for wake in list(self._wake.get(heard.channel, ())):
                        wake(heard)
        finally:
            self._confirmed.clear()
            await listener.aclose()

    async def _adjust(
        self, listener: Listener, subscribed: set[str], listening: anyio.CancelScope
    ) -> None:
        """Subscribe to new channels and unsubscribe from old ones; end when none is left."""
        while self._wake:
            wanted = set(self._wake)
            if missing := wanted - subscribed:
                await listener.subscribe(*missing)
            if surplus := subscribed - wanted:
                self._confirmed -= surplus
                await listener.unsubscribe(*surplus)
            subscribed = wanted
            if set(self._wake) == wanted:
                self._changed = anyio.Event()
                await self._changed.wait()
        listening.cancel()
