"""Growing delays with jitter and a cap. Pure: nothing here sleeps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that double from *base* to *cap* seconds, each drawn between *least* and the whole."""

    base_s: float
    cap_s: float
    #: The part of a delay that is never drawn below.
    least: float = 0.5
    _step: int = field(default=0, init=False)

    def next_s(self) -> float:
        """Return the next delay."""
        ceiling: float = min(self.cap_s, self.base_s * 2**self._step)
        # Once the cap is reached there is nothing left to count.
        if ceiling < self.cap_s:
            self._step += 1
        return ceiling * random.uniform(self.least, 1.0)  # noqa: S311 - jitter, not a secret

    def reset(self) -> None:
        """Start again from *base*."""
        self._step = 0
