"""Operations that only tests need."""

from __future__ import annotations

from collections.abc import Iterable

from .keys import QueueKeys
from .operation import Kind, Operation, QueueRequest


class ShiftRequest(QueueRequest, frozen=True):
    """Bring every message but *stay* nearer to being visible. The result is how many became so."""

    by_ms: int
    stay: tuple[str, ...]


SHIFT: Kind[int] = Kind(name="test_shift_time")


def shift(keys: QueueKeys, *, by_ms: int, stay: Iterable[str] = ()) -> Operation[int]:
    """Bring every message but *stay* nearer to being visible; the result is how many became so."""
    return Operation(SHIFT, ShiftRequest(keys, by_ms, tuple(stay)))
