"""Budgets: what all callers of a broker share, and how much of it each may take."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from contextvars import ContextVar
from typing import Any


class Pool:
    """A limited resource: calls, streams, bytes.

    Divided, one caller may take half of what the others leave, so that there is always something
    left for the next: half of all for the first, a quarter for the second, and so on.
    """

    def __init__(self, most: int, *, divided: bool) -> None:
        self.most = most
        self._divided = divided
        self._parties: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}
        #: How much is taken, by all together.
        self.taken = 0

    def share(self, who: str) -> int:
        """Return how much *who* may have at present."""
        left = self.most - (self.taken - self._parties[who])
        return -(-left // 2) if self._divided else left

    def room(self, who: str) -> int:
        """Return how much more *who* may take; less than 0 after an ``add`` of too much."""
        return self.share(who) - self._parties[who]

    def take(self, who: str, amount: int) -> bool:
        """Take *amount* if there is room for it; return True if so."""
        if self.room(who) < amount:
            return False
        self.add(who, amount)
        return True

    def add(self, who: str, amount: int) -> None:
        """Count *amount*, whether there is room for it or not; less than 0: give it back."""
        self.taken += amount
        self._parties[who] += amount
        if not self._parties[who]:
            del self._parties[who]
        if amount < 0 and self._waiting:
            self._serve()

    async def acquire(self, who: str, amount: int, within_s: float | None = None) -> None:
        """Take *amount*, after all that *who* waits for; ``TimeoutError`` if it takes too long."""
        if who not in self._waiting and self.take(who, amount):
            return
        waiting = self._waiting.setdefault(who, deque())
        entry = (amount, asyncio.get_running_loop().create_future())
        waiting.append(entry)
        try:
            # Not around all of it: most callers find room, and a timer costs more than that.
            async with asyncio.timeout(within_s):
                await entry[1]
        except (asyncio.CancelledError, TimeoutError):
            if not entry[1].cancelled():
                self.add(who, -amount)
            elif entry in waiting:
                waiting.remove(entry)
                self._serve()  # what came after it may need less
            raise

    def _serve(self) -> None:
        for who, waiting in list(self._waiting.items()):
            while waiting and (waiting[0][1].done() or self.take(who, waiting[0][0])):
                _, granted = waiting.popleft()
                if not granted.done():  # or it was cancelled, and will learn of it
                    granted.set_result(None)
            if not waiting:
                self._waiting.pop(who, None)


class RetainedBytes:
    """Bytes that stay in memory between calls, counted in a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._who, self._size = "", 0

    def hold(self, who: str, size: int, leaving: int) -> bool:
        """Count *size* for *who* instead of the last size; 0 if *leaving* would not be left."""
        if self._size:
            self._pool.add(self._who, -self._size)
        fits = not size or self._pool.room(who) >= size + leaving
        self._who, self._size = who, size if fits else 0
        if self._size:
            self._pool.add(who, size)
        return fits


class CallBudget:
    """What one call has taken of the pools, until its reply is with the client."""

    def __init__(
        self, who: str, places: Pool, requests: Pool, replies: Pool, sources: Pool
    ) -> None:
        self.who = who
        self._places = places
        self._requests, self._replies, self._sources = requests, replies, sources
        self._request = self._reply = self._source = 0
        #: The call itself, and tasks that go on without it.
        self._users = 1

    async def expect(self, size: int, within_s: float) -> None:
        """Wait for room for a request of *size* bytes; ``TimeoutError`` if there is none."""
        await self._requests.acquire(self.who, size, within_s)
        self._request += size

    def arrived(self, size: int) -> None:
        """Count the real size of the request."""
        self._requests.add(self.who, size - self._request)
        self._request = size

    def waits_for(self, count: int) -> bool:
        """Count *count* queues that it waits for if there is room; return True if so."""
        fits = self._sources.take(self.who, count)
        self._source += count if fits else 0
        return fits

    @property
    def room(self) -> int:
        """Bytes of replies for which there is still room."""
        return self._replies.room(self.who)

    async def prepare(self, size: int, within_s: float) -> int:
        """Wait for room for *size* bytes of a reply; return how many were counted."""
        size = self._possible(size)
        await self._replies.acquire(self.who, size, within_s)
        self._reply += size
        return size

    def replies(self, size: int) -> None:
        """Count the real size of the reply."""
        self.change(size - self._reply)

    def change(self, more: int) -> None:
        """Count *more* bytes of the reply; less than 0: fewer."""
        if self._users:
            self._replies.add(self.who, more)
            self._reply += more

    def more(self, size: int) -> bool:
        """Count *size* more bytes of the reply if there is room; return True if so."""
        # A single reply always fits if nothing else is in flight, however large it is.
        fits = self._replies.room(self.who) >= size or not self._replies.taken
        if fits:
            self.change(size)
        return fits

    async def readable(self, size: int) -> None:
        """Wait until there would be room for *size* bytes, and take none of it."""
        size = self._possible(size)
        await self._replies.acquire(self.who, size)
        self._replies.add(self.who, -size)

    def hold(self, task: asyncio.Task[Any]) -> None:
        """Let *task*, which may go on after the call, keep what the call has taken."""
        self._users += 1
        task.add_done_callback(self.leave)

    def leave(self, _: Any = None) -> None:
        """Give back what was taken, unless a task still needs it."""
        self._users -= 1
        if self._users == 0:
            self._places.add(self.who, -1)
            self._requests.add(self.who, -self._request)
            self._replies.add(self.who, -self._reply)
            self._sources.add(self.who, -self._source)

    def _possible(self, size: int) -> int:
        # No share is larger than that.
        return min(size, -(-self._replies.most // 2))


#: Not counted: code that runs outside of any call.
_UNCOUNTED = CallBudget("", *(Pool(sys.maxsize, divided=False) for _ in range(4)))
#: The budget of the call that the running code belongs to; the interceptor sets it.
CALL_BUDGET: ContextVar[CallBudget] = ContextVar(
    "aiorsmq_ng.broker.call_budget", default=_UNCOUNTED
)
