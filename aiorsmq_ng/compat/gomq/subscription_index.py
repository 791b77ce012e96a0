"""Index from consumers to their keys: GOMQ's clients name a consumer, but not its keys."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from aiorsmq_ng import RSMQ, AccessDenied, ClientClosed, RSMQError, Unavailable

logger = logging.getLogger("aiorsmq_ng.broker")

#: Topics that are read at a time; the library joins such calls.
_AT_A_TIME = 50
#: How long the index is fresh for a new peer: seconds, or a multiple of the time it took to read
#: it, so that clients without subscriptions cannot keep the server busy.
_FRESH_S, _FRESH_TIMES = 0.5, 10.0


class SubscriptionIndex:
    """The keys of every consumer, collected from all topics."""

    def __init__(self, rsmq: RSMQ, mode: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._rsmq = rsmq
        self._mode = mode
        self._clock = clock
        #: Consumer -> keys.
        self._keys: dict[str, set[str]] = {}
        self._known_at = -1e9
        self._cost_s = 0.0
        self._reading: asyncio.Task[None] | None = None
        #: Changes made here while topics are read: consumer, key, True if subscribed.
        self._changes: list[tuple[str, str, bool]] = []
        #: Topics that could not be read, and were logged.
        self._damaged: set[str] = set()

    def keys(self, consumer: str) -> set[str]:
        """Return the keys that a consumer is subscribed to, as far as known."""
        return self._keys.get(consumer, set())

    def change(self, consumer: str, key: str, *, subscribed: bool) -> None:
        """Record a change that this broker made."""
        keys = self._keys.setdefault(consumer, set())
        (keys.add if subscribed else keys.discard)(key)
        if not keys:
            del self._keys[consumer]
        if self._reading is not None:
            self._changes.append((consumer, key, subscribed))

    @property
    def age_s(self) -> float:
        """Age of the index in seconds."""
        return self._clock() - self._known_at

    @property
    def fresh(self) -> bool:
        """True if the index is fresh enough for a peer that is new here."""
        return self.age_s <= max(_FRESH_S, _FRESH_TIMES * self._cost_s)

    async def learn(self, wait_s: float) -> None:
        """Read all topics in the background, and wait for that up to *wait_s* seconds.

        Concurrent calls share one read.
        """
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all(), name="aiorsmq-ng broker topics")
        if wait_s > 0:
            await asyncio.wait([self._reading], timeout=wait_s)

    async def close(self) -> None:
        """Stop reading."""
        if (looking := self._reading) is not None:
            looking.cancel()
            await asyncio.wait([looking])

    async def _read_all(self) -> None:
        started = self._clock()
        self._changes.clear()
        found: dict[str, set[str]] = {}
        try:
            names = await self._rsmq.list_topics()
            for at in range(0, len(names), _AT_A_TIME):
                page = names[at : at + _AT_A_TIME]
                for name, consumers in zip(
                    page, await asyncio.gather(*map(self._read, page)), strict=True
                ):
                    for consumer in consumers:
                        found.setdefault(consumer, set()).add(name)
        except RSMQError as error:
            logger.warning("cannot read the subscriptions of topics: %s", error)
            return
        finally:
            self._reading = None
        self._keys, self._known_at, self._cost_s = found, started, self._clock() - started
        # Keep changes that were made here during the read.
        for consumer, key, subscribed in self._changes:
            self.change(consumer, key, subscribed=subscribed)

    async def _read(self, name: str) -> list[str]:
        """Return the subscribers of a topic. A damaged topic does not affect the others."""
        try:
            described = await self._rsmq.topic(name).describe()
        except (Unavailable, AccessDenied, ClientClosed):
            raise
        except Exception as error:
            if name not in self._damaged:
                self._damaged.add(name)
                logger.warning("cannot read topic %r, it is left out: %r", name, error)
            return [consumer for consumer, keys in self._keys.items() if name in keys]
        self._damaged.discard(name)
        return [
            one.consumer
            for one in described.subscriptions
            if one.state == "on" and one.mode == self._mode
        ]
