"""Unsettled deliveries: those of streams, whose leases the broker renews, and all others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from aiorsmq_ng import Delivery

#: Queue, id, rc, fr: identifies one delivery.
DeliveryKey = tuple[str, str, int, int]
#: Limit of recorded deliveries outside of streams; the oldest are dropped.
_MAX_LOANED = 100_000


def key_of(delivery: Delivery) -> DeliveryKey:
    """Return the key of a delivery."""
    return (delivery.queue, delivery.id, delivery.rc, delivery.fr)


class StreamDeliveries:
    """Finds the delivery of a receipt, and calls back its stream when it is settled."""

    def __init__(self) -> None:
        self._held: dict[DeliveryKey, tuple[Delivery, Callable[[DeliveryKey], None]]] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, delivery: Delivery, settled: Callable[[DeliveryKey], None]) -> None:
        """Hold *delivery*; *settled* is called when it is settled or lost."""
        self._held[key_of(delivery)] = (delivery, settled)
        self._empty.clear()

    def find(self, key: DeliveryKey) -> Delivery | None:
        """Return the delivery, if it is held here."""
        found = self._held.get(key)
        return found[0] if found else None

    def settled(self, key: DeliveryKey) -> None:
        """Remove a delivery that is settled, lost or given back."""
        found = self._held.pop(key, None)
        if not self._held:
            self._empty.set()
        if found is not None:
            found[1](key)

    async def empty(self) -> None:
        """Wait until nothing is held."""
        await self._empty.wait()


class LoanedDeliveries:
    """Deliveries that a Receive or Recover has handed out, until they are settled or expire.

    A stop of the broker waits for them, so that clients can settle what they are processing.
    """

    def __init__(self) -> None:
        self._ends: OrderedDict[DeliveryKey, float] = OrderedDict()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, delivery: Delivery) -> None:
        """Record a delivery until its lease ends."""
        now = asyncio.get_running_loop().time()
        self._ends[key_of(delivery)] = delivery.lease.expires_at
        while len(self._ends) > _MAX_LOANED or next(iter(self._ends.values())) <= now:
            self._ends.popitem(last=False)
            if not self._ends:
                return

    def extend(self, key: DeliveryKey, vt_s: float) -> None:
        """Record the new end of a lease."""
        if key in self._ends:
            self._ends[key] = asyncio.get_running_loop().time() + vt_s

    def settled(self, key: DeliveryKey) -> None:
        """Remove a delivery that is settled or lost."""
        if self._ends.pop(key, None) is not None:
            self._changed.set()

    async def empty(self) -> None:
        """Wait until the leases of all recorded deliveries have ended."""
        loop = asyncio.get_running_loop()
        while self._ends:
            next_end = min(self._ends.values())
            timer = loop.call_at(next_end, self._changed.set)
            try:
                while self._ends and loop.time() < next_end:
                    self._changed.clear()
                    await self._changed.wait()
            finally:
                timer.cancel()
            now = loop.time()
            for key in [key for key, end in self._ends.items() if end <= now]:
                del self._ends[key]
