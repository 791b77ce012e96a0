"""The budget for second tries, shared by all clients of a process.

After an outage every call of every client wants to be made again at once. Each waits for its own
backoff, and then for its turn here, so that a server that comes back is not run over.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time

#: Second tries that need no turn, and how many per second follow.
BURST = 20
PER_SECOND = 200.0
#: An event loop that is so late has stood still: all whose turn came meanwhile go on at once.
LATE_S = 0.05


class RetryBudget:
    """So many tries at once, then so many per second; nobody is refused, only put off."""

    def __init__(self, burst: int = BURST, per_second: float = PER_SECOND) -> None:
        self._burst_s = burst / per_second
        self._step_s = 1 / per_second
        self._full_at = 0.0
        # Clients of several threads, each with a loop of its own, share the budget.
        self._lock = threading.Lock()

    def reserve(self, pause_s: float, within_s: float = math.inf) -> float | None:
        """Take a turn after *pause_s* at the earliest; return in how many seconds it comes.

        ``None``, and no turn is taken, if that is not *within_s*: whoever gives up must not keep
        others waiting.
        """
        now = time.monotonic()
        with self._lock:
            full_at = max(self._full_at, now) + self._step_s
            pause_s = max(pause_s, full_at - now - self._burst_s)
            if pause_s >= within_s:
                return None
            self._full_at = full_at
            return pause_s


#: The one of this process.
RETRIES = RetryBudget()


async def rest(pause_s: float) -> None:
    """Sleep for *pause_s*; turns that a busy event loop has heaped up are spread again."""
    loop = asyncio.get_running_loop()
    due = loop.time() + pause_s
    await asyncio.sleep(pause_s)
    late_s = loop.time() - due
    if late_s > LATE_S:
        await asyncio.sleep(random.uniform(0, late_s))  # noqa: S311 - jitter, not a secret
