"""The broker's receipts, kept by what this library knows a delivery by."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .._protocol.operation import Argument
from ..errors import InvalidValue

#: Receipts kept at most, some 700 bytes each; those not used for longest are dropped first. They
#: are of messages in hand, and of those that were given back.
MOST_RECEIPTS = 50_000
#: And of messages that are settled or lost, so that settling one twice tells what became of it.
_MOST_SETTLED = 1_000

#: Queue, id, rc, fr.
Key = tuple[str, str, int, int]


class Receipts:
    """Finds the receipt of a delivery by queue, id, ``rc`` and ``fr``."""

    def __init__(self, most: int = MOST_RECEIPTS) -> None:
        self._most = most
        self._kept: OrderedDict[Key, str] = OrderedDict()
        self._settled: OrderedDict[Key, str] = OrderedDict()

    def keep(self, delivery: Any) -> None:
        """Keep the receipt of a ``Delivery`` that was received."""
        self._kept[delivery.queue, delivery.id, delivery.rc, delivery.fr] = delivery.receipt
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def find(self, key: Key) -> str:
        """Return the receipt of a delivery; ``InvalidValue`` if it was not received here."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        if key in self._settled:
            return self._settled[key]
        raise InvalidValue(
            f"message {key[1]} of queue {key[0]!r} was not received by this client; through a "
            "broker only the client that received a message can settle it"
        )

    def settle(self, key: Key) -> None:
        """Take note that a delivery is settled or lost."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._settled[key] = found
            if len(self._settled) > _MOST_SETTLED:
                self._settled.popitem(last=False)


def key_of(queue: str, id: Argument, rc: Argument, fr: Argument) -> Key:
    """Return what names a delivery, from the arguments of a script."""
    return (queue, str(id), int(rc), int(fr))
