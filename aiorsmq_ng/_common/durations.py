"""Durations as users write them: seconds as a number, or a timedelta."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from ..errors import InvalidValue

#: A duration in seconds, or as a timedelta.
Seconds = int | float | timedelta


def in_seconds(what: str, value: Seconds) -> float:
    """Convert a duration to seconds; *what* names it in the error."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidValue(f"{what} must be a number of seconds or a timedelta, not {value!r}")
    return value


def at_least_0(what: str, value: Seconds) -> float:
    """Convert a duration to seconds; ``InvalidValue`` if it is negative."""
    seconds = in_seconds(what, value)
    if seconds < 0:
        raise InvalidValue(f"{what} must be at least 0 seconds, not {value!r}")
    return seconds


def epoch_ms(at: datetime | None) -> int:
    """Return a time in epoch milliseconds, as RSMQ has it; 0 for none."""
    return 0 if at is None else round(at.timestamp() * 1000)


class Duration:
    """An attribute that takes a duration as users write it, and is read as seconds.

    Args:
        default: seconds of an instance whose attribute was never set.
        or_0: refuse a negative duration at once; without it, the owner checks the range.
    """

    def __init__(self, default: float, *, or_0: bool = False) -> None:
        self._default = default
        self._convert = at_least_0 if or_0 else in_seconds

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> float:
        if instance is None:
            return self._default  # where a dataclass looks for it
        seconds: float = vars(instance).get(self._name, self._default)
        return seconds

    def __set__(self, instance: object, value: Seconds) -> None:
        vars(instance)[self._name] = self._convert(self._name, value)
