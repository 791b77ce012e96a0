"""Wait for what comes to pass by itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

#: How long a test waits for what a stalled machine may delay.
PATIENCE_S = 30


async def until(condition: Callable[..., object], *args: object) -> None:
    """Wait until *condition* holds; it may be a coroutine function."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            holds = condition(*args)
            if await holds if inspect.isawaitable(holds) else holds:
                return
            await asyncio.sleep(0.01)
