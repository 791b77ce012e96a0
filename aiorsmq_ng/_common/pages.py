"""Cutting a list into pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def pages(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield *items* in pages of *size*."""
    for at in range(0, len(items), size):
        yield items[at : at + size]
