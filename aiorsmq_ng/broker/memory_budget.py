"""Budgets: the resources that callers of a broker share, and the share of each caller."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextvars import ContextVar
from typing import Any


class Pool:
    """A limited resource: calls, streams, bytes.

    A divided pool lets one caller take half of what the others leave, so that some is always left
    for the next caller: half of all for the first, a quarter for the second, and so on.
    """

    def __init__(self, most: int, *, divided: bool) -> None:
        self.most = most
        self._divided = divided
        self._parties: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}
        #: The amount that all callers together have taken.
        self.taken = 0

    def share(self, caller: str) -> int:
        """Return the amount that *caller* may have at present."""
        left = self.most - (self.taken - self._parties.get(caller, 0))
        return -(-left // 2) if self._divided else left

    def room(self, caller: str) -> int:
        """Return how much more *caller* may take; negative after an ``add`` beyond its share."""
        return self.share(caller) - self._parties.get(caller, 0)

    def take(self, caller: str, amount: int) -> bool:
        """Take *amount* if there is room for it. Return True if it was taken."""
        if self.room(caller) < amount:
            return False
        self.add(caller, amount)
        return True

    def add(self, caller: str, amount: int) -> None:
        """Count *amount* even if there is no room for it. A negative amount is given back."""
        self.taken += amount
        if has := self._parties.get(caller, 0) + amount:
            self._parties[caller] = has
        else:
            self._parties.pop(caller, None)
        if amount < 0 and self._waiting:
            self._serve()

    async def acquire(self, caller: str, amount: int, within_s: float | None = None) -> None:
        """Take *amount*, in order with other waits of *caller*; ``TimeoutError`` if too late."""
        if caller not in self._waiting and self.take(caller, amount):
            return
        waiting = self._waiting.setdefault(caller, deque())
        entry = (amount, asyncio.get_running_loop().create_future())
        waiting.append(entry)
        try:
            # A timer only for waits: most calls find room at once, and a timer would cost more.
            async with asyncio.timeout(within_s):
                await entry[1]
        except (asyncio.CancelledError, TimeoutError):
            if not entry[1].cancelled():
                self.add(caller, -amount)
            elif entry in waiting:
                waiting.remove(entry)
                self._serve()  # a later entry may need less
            raise

    def _serve(self) -> None:
        for caller, waiting in list(self._waiting.items()):
            while waiting and (waiting[0][1].done() or self.take(caller, waiting[0][0])):
                _, granted = waiting.popleft()
                if not granted.done():  # else it was cancelled
                    granted.set_result(None)
            if not waiting:
                self._waiting.pop(caller, None)


class RetainedBytes:
    """Bytes that stay in memory between calls, counted in a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._caller, self._size = "", 0

    def hold(self, caller: str, size: int, leaving: int) -> bool:
        """Count *size* for *caller* instead of the last size. Return True if it fits.

        It fits if *leaving* bytes are left for others. If not, 0 is counted.
        """
        if self._size:
            self._pool.add(self._caller, -self._size)
        fits = not size or self._pool.room(caller) >= size + leaving
        self._caller, self._size = caller, size if fits else 0
        if self._size:
            self._pool.add(caller, size)
        return fits


class CallBudget:
    """What one call has taken from the pools, until the client has its reply."""

    def __init__(
        self, caller: str, places: Pool, requests: Pool, replies: Pool, sources: Pool
    ) -> None:
        self.caller = caller
        self._places = places
        self._requests, self._replies, self._sources = requests, replies, sources
        self._request = self._reply = self._source = 0
        #: The call, and tasks that continue after it.
        self._users = 1

    async def expect(self, size: int, within_s: float) -> None:
        """Wait for room for a request of *size* bytes; ``TimeoutError`` after *within_s*."""
        await self._requests.acquire(self.caller, size, within_s)
        self._request += size

    def arrived(self, size: int) -> None:
        """Count the real size of the request."""
        self._requests.add(self.caller, size - self._request)
        self._request = size

    def waits_for(self, count: int) -> bool:
        """Count *count* queues that the call waits for. Return True if there was room."""
        fits = self._sources.take(self.caller, count)
        self._source += count if fits else 0
        return fits

    @property
    def room(self) -> int:
        """Bytes of replies for which there is still room."""
        return self._replies.room(self.caller)

    async def prepare(self, size: int, within_s: float) -> int:
        """Wait for room for *size* bytes of a reply; return how many were counted."""
        size = self._possible(size)
        await self._replies.acquire(self.caller, size, within_s)
        self._reply += size
        return size

    def replies(self, size: int) -> None:
        """Count the real size of the reply."""
        self.change(size - self._reply)

    def change(self, more: int) -> None:
        """Add *more* bytes to the size of the reply; may be negative."""
        if self._users:
            self._replies.add(self.caller, more)
            self._reply += more

    def more(self, size: int) -> bool:
        """Add *size* bytes to the reply if there is room. Return True if there was."""
        # A single reply always fits if nothing else is in flight, however large it is.
        fits = self._replies.room(self.caller) >= size or not self._replies.taken
        if fits:
            self.change(size)
        return fits

    async def readable(self, size: int) -> None:
        """Wait until there is room for *size* bytes, without taking it."""
        size = self._possible(size)
        await self._replies.acquire(self.caller, size)
        self._replies.add(self.caller, -size)

    def hold(self) -> None:
        """Keep what the call has taken until one more ``leave``, which may be after the call."""
        self._users += 1

    def leave(self, _: Any = None) -> None:
        """Give back what was taken, unless a task still needs it."""
        self._users -= 1
        if self._users == 0:
            self._places.add(self.caller, -1)
            self._requests.add(self.caller, -self._request)
            self._replies.add(self.caller, -self._reply)
            self._sources.add(self.caller, -self._source)

    def _possible(self, size: int) -> int:
        # No share of a divided pool is larger than half.
        return min(size, -(-self._replies.most // 2))


#: For code that runs outside of any call: unlimited.
_UNCOUNTED = CallBudget("", *(Pool(sys.maxsize, divided=False) for _ in range(4)))
#: The budget of the call that the running code belongs to; the interceptor sets it.
CALL_BUDGET: ContextVar[CallBudget] = ContextVar(
    "aiorsmq_ng.broker.call_budget", default=_UNCOUNTED
)
