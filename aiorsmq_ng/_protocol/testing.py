"""Operations that only tests need."""

from __future__ import annotations

from collections.abc import Iterable

from .keys import QueueKeys
from .operation import Operation
from .scripts import load


def shift(keys: QueueKeys, *, by_ms: int, stay: Iterable[str] = ()) -> Operation[int]:
    """Bring every message but *stay* nearer to being visible; the result is how many became so."""
    return Operation(
        script=load("test_shift_time"),
        keys=(keys.zset, keys.hash),
        args=(keys.wake, by_ms, *stay),
        parse=int,
        fail=keys.failure,
    )
