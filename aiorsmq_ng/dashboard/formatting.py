"""Figures and times in words, for the templates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from .bodies import one_line, visible

#: Shown where there is no value.
_NONE = "\u2013"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def count(number: float | None) -> str:
    """Return a number with thin spaces between thousands; a dash if there is none."""
    if number is None:
        return _NONE
    return f"{number:,}".replace(",", "\u2009")


def age(seconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return _NONE
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    left, parts = int(seconds), []
    for unit, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size}\u00a0{unit}")
            left %= size
    return " ".join(parts[:2])


def when(ms: float | None) -> str:
    """Return a time in epoch milliseconds; a dash if there is none."""
    if not ms:
        return _NONE
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except (OverflowError, ValueError):
        return "beyond all years"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def size(number: float | None) -> str:
    """Return a number of bytes in the unit that fits."""
    if number is None:
        return _NONE
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f}\u00a0{unit}" if unit == "B" else f"{value:.1f}\u00a0{unit}"


def spark(depths: list[int]) -> str:
    """Return the points of a polyline, 60 wide and 16 high."""
    if not depths:
        return ""
    most, first = max(*depths, 1), 60 - len(depths)
    return " ".join(f"{first + at},{15 - 14 * depth / most:.1f}" for at, depth in enumerate(depths))


FILTERS: dict[str, Callable[..., Any]] = {
    "count": count,
    "age": age,
    "when": when,
    "size": size,
    "spark": spark,
    "visible": visible,
    "one_line": one_line,
}
