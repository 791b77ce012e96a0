"""When the next batch of a stream begins, and how many messages it may have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .options import StreamReadOptions

#: Seconds from one batch of a stream with a rate to the next, at least: a batch has its cost.
RATE_STEP_S = 1.0


class StreamPacing:
    """Holds a batch back until enough messages wait, and limits messages per second.

    After a restart both begin again.
    """

    def __init__(
        self, options: StreamReadOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._least = options.min_messages_per_trigger
        self._longest_s = options.max_trigger_delay_ms / 1000
        self._rate = options.max_messages_per_second
        self._clock = clock
        self._last_batch = self._last_credit = clock()
        #: Messages that the rate allows by now.
        self._credit = self._rate * RATE_STEP_S

    @property
    def is_active(self) -> bool:
        """True if the options ask for it. Then no claim is made ahead of its batch."""
        return bool(self._least or self._rate)

    @property
    def needs_backlog(self) -> bool:
        """True if the decision depends on how many messages wait."""
        return bool(self._least)

    def admit(self, waiting: int, limit: int, *, ends: bool) -> int:
        """Return how many messages the next batch may have; 0 if it must not begin yet.

        A query that *ends* when all is consumed does not wait for more messages.
        """
        now = self._clock()
        if self._least > waiting and not ends and now - self._last_batch < self._longest_s:
            return 0
        if not self._rate:
            return limit
        most = max(float(limit), self._rate * RATE_STEP_S)
        self._credit = min(most, self._credit + self._rate * (now - self._last_credit))
        self._last_credit = now
        enough = min(limit, max(1, int(self._rate * RATE_STEP_S)))
        return min(limit, int(self._credit)) if self._credit >= enough else 0

    def began(self, messages: int) -> None:
        """Note a batch of *messages*."""
        self._last_batch = self._clock()
        self._credit -= messages
