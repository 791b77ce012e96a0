"""Operations that only tests need."""

from __future__ import annotations

from collections.abc import Iterable

from ..keys import QueueKeys
from ..operation import Kind, Operation, QueueRequest


class ShiftRequest(QueueRequest, frozen=True):
    """Make all messages but *stay* visible earlier. The result is how many became visible."""

    by_ms: int
    stay: tuple[str, ...]


SHIFT: Kind[int] = Kind(name="test_shift_time")


def shift(keys: QueueKeys, *, by_ms: int, stay: Iterable[str] = ()) -> Operation[int]:
    """Make all messages but *stay* visible earlier; the result is how many became visible."""
    return Operation(SHIFT, ShiftRequest(keys, by_ms, tuple(stay)))
