"""Exponential backoff with jitter and a cap. Pure: nothing here sleeps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that double from *base_s* to *cap_s*, each multiplied by a random *least* to 1."""

    base_s: float
    cap_s: float
    #: Lower bound of the random factor.
    least: float = 0.5
    _step: int = field(default=0, init=False)

    def next_s(self) -> float:
        """Return the next delay in seconds, and double the one after it."""
        ceiling: float = min(self.cap_s, self.base_s * 2**self._step)
        # No further doubling once the cap is reached.
        if ceiling < self.cap_s:
            self._step += 1
        return ceiling * random.uniform(self.least, 1.0)  # noqa: S311 - jitter, not a secret

    def reset(self) -> None:
        """Start again from *base_s*."""
        self._step = 0
