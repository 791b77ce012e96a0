"""Durations as users write them: seconds as a number, or a timedelta."""

from __future__ import annotations

import math
from datetime import timedelta

from ..errors import InvalidValue

#: A duration in seconds, or as a timedelta.
Seconds = int | float | timedelta


def in_seconds(what: str, value: Seconds) -> float:
    """Return a duration as a number of seconds; *what* names it in the error."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidValue(f"{what} must be a number of seconds or a timedelta, not {value!r}")
    return value


def at_least_0(what: str, value: Seconds) -> float:
    """Return a duration as a number of seconds, if it is not negative."""
    seconds = in_seconds(what, value)
    if seconds < 0:
        raise InvalidValue(f"{what} must be at least 0 seconds, not {value!r}")
    return seconds
