"""Deliveries that a stream has handed out and whose leases the broker renews meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiorsmq_ng import Delivery

#: Queue, id, rc, fr: one delivery, whoever names it.
Key = tuple[str, str, int, int]


def key_of(delivery: Delivery) -> Key:
    """Return what names a delivery."""
    return (delivery.queue, delivery.id, delivery.rc, delivery.fr)


class Held:
    """Finds the delivery that a receipt stands for, and tells its stream when it is settled."""

    def __init__(self) -> None:
        self._held: dict[Key, tuple[Delivery, Callable[[Key], None]]] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, delivery: Delivery, settled: Callable[[Key], None]) -> None:
        """Hold *delivery*; *settled* is called when it is settled or lost."""
        self._held[key_of(delivery)] = (delivery, settled)
        self._empty.clear()

    def find(self, key: Key) -> Delivery | None:
        """Return the delivery, if it is held here."""
        found = self._held.get(key)
        return found[0] if found else None

    def settled(self, key: Key) -> None:
        """Take note that a delivery is settled, lost or given back."""
        found = self._held.pop(key, None)
        if not self._held:
            self._empty.set()
        if found is not None:
            found[1](key)

    async def empty(self) -> None:
        """Wait until nothing is held."""
        await self._empty.wait()
