"""The budget for second tries, shared by all clients of a process.

After an outage every call of every client wants to be made again at once. Each waits for its own
backoff, and then for its turn here, so that a server that comes back is not run over.
"""

from __future__ import annotations

import threading
import time

#: Second tries that need no turn, and how many per second follow.
BURST = 30
PER_SECOND = 200.0


class RetryBudget:
    """So many tries at once, then so many per second; nobody is refused, only put off."""

    def __init__(self, burst: int = BURST, per_second: float = PER_SECOND) -> None:
        self._burst_s = burst / per_second
        self._step_s = 1 / per_second
        self._full_at = 0.0
        # Clients of several threads, each with a loop of its own, share the budget.
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Take a turn and return in how many seconds it comes."""
        now = time.monotonic()
        with self._lock:
            self._full_at = max(self._full_at, now) + self._step_s
            return max(0.0, self._full_at - now - self._burst_s)


#: The one of this process.
RETRIES = RetryBudget()
