"""A dictionary of limited size."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(MutableMapping[K, V], Generic[K, V]):
    """Holds at most *max_items*; the least recently written or used entry is dropped first.

    ``get`` and ``[]`` count as use; ``in`` and iteration do not.
    """

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        self._items: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        value = self._items.pop(key)
        self._items[key] = value
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._items.pop(key, None)
        self._items[key] = value
        if len(self._items) > self._max_items:
            del self._items[next(iter(self._items))]

    def __delitem__(self, key: K) -> None:
        del self._items[key]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
