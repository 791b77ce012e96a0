"""Helpers for asyncio tasks and futures."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception of *future* as retrieved: a callback for a future with no other reader.

    Without it asyncio logs "exception was never retrieved" when the future is collected.
    """
    if not future.cancelled():
        future.exception()
