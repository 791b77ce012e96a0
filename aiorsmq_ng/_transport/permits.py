"""Permits for a limited number of connections."""

from __future__ import annotations

import asyncio
from collections import deque


class Permits:
    """A semaphore, first come first served, that can also be acquired without waiting."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def all_in_use(self) -> bool:
        """Return True if the next one has to be waited for."""
        return not self._free

    def take_now(self) -> None:
        """Take a permit; there must be one."""
        self._free -= 1

    async def acquire(self) -> None:
        """Take a permit, waiting for it."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # it was given a permit in the same moment
            raise

    def release(self) -> None:
        """Return a permit: to the first that waits, if any does."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
