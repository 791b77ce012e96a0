"""When a message that failed is tried again, and when it is given up."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from ._common.durations import Seconds, at_least_0, in_seconds
from .errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Retry:
    """Delays between the deliveries of one message, and how many it gets.

    The delay is ordinary visibility: the message waits in its queue, and any RSMQ client sees it
    when it is due. After ``max_receives`` deliveries it goes to the dead-letter queue.
    """

    #: Deliveries a message gets before it goes to the dead-letter queue; 0 for no limit.
    max_receives: int = 20
    #: How delays grow; or a ladder of delays, whose last one repeats.
    backoff: Literal["exponential", "linear", "constant"] | tuple[Seconds, ...] = "exponential"
    #: The first delay (not for a ladder); seconds, or a timedelta.
    base: Seconds = 1.0
    #: The longest delay (not for a ladder); seconds, or a timedelta.
    cap: Seconds = 900.0
    #: Draw each delay between half and the whole, so that failures do not come back together.
    jitter: bool = True

    def __post_init__(self) -> None:
        if self.max_receives < 0:
            raise InvalidValue(f"max_receives must be at least 0, not {self.max_receives}")
        if isinstance(self.backoff, tuple):
            if not self.backoff:
                raise InvalidValue("a ladder has at least one delay")
            for step in self.backoff:
                at_least_0("a delay of a ladder", step)
        elif self.backoff not in ("exponential", "linear", "constant"):
            raise InvalidValue(
                f"backoff must be exponential, linear, constant or a tuple, not {self.backoff!r}"
            )
        if at_least_0("base", self.base) > at_least_0("cap", self.cap):
            raise InvalidValue(f"base must be at most cap, not {self.base!r}")

    def delay(self, rc: int) -> float:
        """Return the seconds to wait after delivery number *rc* failed.

        Args:
            rc: number of the delivery, counted from 1.
        """
        if isinstance(self.backoff, tuple):
            whole = in_seconds("backoff", self.backoff[min(rc, len(self.backoff)) - 1])
        else:
            steps = {"exponential": 2.0 ** min(rc - 1, 60), "linear": float(rc), "constant": 1.0}
            base_s, cap_s = in_seconds("base", self.base), in_seconds("cap", self.cap)
            whole = min(cap_s, base_s * steps[self.backoff])
        # Jitter, not a secret.
        return whole * random.uniform(0.5, 1.0) if self.jitter else whole  # noqa: S311

    def gives_up(self, rc: int) -> bool:
        """Return True if delivery number *rc* was the last one.

        Args:
            rc: number of the delivery, counted from 1.
        """
        return 0 < self.max_receives <= rc
