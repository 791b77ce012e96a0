"""Wake-ups: one subscribed connection per client, whatever the number of waiters.

A wake-up is a hint that looking again is worth while. Losing the connection loses hints, never
messages: whoever waits also looks from time to time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from ..backoff import Backoff
from ..errors import RSMQError
from .base import Listener, NotExecuted
from .coalescing import Transport

logger = logging.getLogger("aiorsmq_ng.notifier")

RECONNECT_BASE_S, RECONNECT_CAP_S = 0.05, 5.0


Wake = Callable[[], None]


class Notifier:
    """Tells receivers when something was published on their channels."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._wake: dict[str, set[Wake]] = {}
        self._listener: Listener | None = None
        self._running = False
        self._warned = False

    def watch(self, channels: tuple[str, ...], wake: Wake) -> None:
        """Call *wake* whenever something is published on one of *channels*."""
        for channel in channels:
            self._wake.setdefault(channel, set()).add(wake)
        if not self._running:
            self._running = True
            self._transport.spawn(self._run)
        elif self._listener is not None:
            self._transport.spawn(self._change, self._listener.subscribe, channels)

    def forget(self, channels: tuple[str, ...], wake: Wake) -> None:
        """Stop calling *wake* for *channels*."""
        for channel in channels:
            self._wake.get(channel, set()).discard(wake)
        unwatched = [channel for channel in channels if not self._wake.get(channel)]
        for channel in unwatched:
            self._wake.pop(channel, None)
        # The last one to go leaves the subscription; it ends at the next sign of life or silence.
        if self._listener is not None and self._wake and unwatched:
            self._transport.spawn(self._change, self._listener.unsubscribe, tuple(unwatched))

    async def _run(self) -> None:
        backoff = Backoff(RECONNECT_BASE_S, RECONNECT_CAP_S)
        try:
            while self._wake:
                try:
                    await self._listen(backoff)
                except NotExecuted as error:
                    logger.info("wake-up connection lost, trying again: %s", error)
                except RSMQError as error:
                    # A user who may not subscribe still receives, by looking from time to time.
                    level = logging.DEBUG if self._warned else logging.WARNING
                    self._warned = True
                    logger.log(level, "no wake-ups, only polling: %s", error)
                if self._wake:
                    await anyio.sleep(backoff.next_s())
        finally:
            self._running = False

    async def _listen(self, backoff: Backoff) -> None:
        listener = (await self._transport.driver()).listener()
        try:
            subscribed: set[str] = set()
            while missing := self._wake.keys() - subscribed:
                await listener.subscribe(*missing)
                subscribed |= missing
            self._listener = listener
            # Something may have been sent before the subscription stood.
            for wake in set().union(*self._wake.values()):
                wake()
            while self._wake:
                channel = await listener.next_channel()
                backoff.reset()
                for wake in self._wake.get(channel or "", ()):
                    wake()
        finally:
            self._listener = None
            await listener.aclose()

    async def _change(
        self, change: Callable[..., Awaitable[None]], channels: tuple[str, ...]
    ) -> None:
        try:
            await change(*channels)
        except (NotExecuted, RSMQError) as error:
            logger.info("wake-up connection lost: %s", error)
