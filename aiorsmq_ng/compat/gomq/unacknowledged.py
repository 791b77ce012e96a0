"""Replies of Observe that are not acknowledged yet.

GOMQ's clients have no call to acknowledge. The next Observe of a peer shows that the peer has
earlier replies, as far as the number of its concurrent calls allows that conclusion.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import NamedTuple

import anyio

from aiorsmq_ng import Delivery, LeaseLost

#: A client whose next call comes within this time before or after the deadline of the last one has
#: most likely not received the last reply in time.
_TIMED_OUT_S = (-0.02, 0.1)

#: Deliveries with the keys of their subscriptions.
Taken = list[tuple[str, Delivery]]


class _Reply(NamedTuple):
    """The deliveries in a reply, and until when the client waits for it."""

    number: int
    taken: Taken
    deadline: float

    def expired(self) -> bool:
        """Return True if one of its leases has ended, so that a message could be received again."""
        now = anyio.current_time()
        return any(delivery.lease.expires_at <= now for _, delivery in self.taken)


class UnacknowledgedReplies:
    """The replies to one peer, until its next calls show that it has received them."""

    def __init__(self) -> None:
        # Observes that arrived, those in flight, and the most that were in flight at a time.
        self._arrived = self._in_flight = self._width = 0
        self._answered = 0
        self._replies: deque[_Reply] = deque()

    def arrive(self) -> int:
        """Count an Observe; return the number of the last reply that the client certainly has.

        A client has no more calls in flight than the maximum seen so far. So when its call number n
        arrives, it has received all but that many of the replies before.
        """
        self._arrived += 1
        self._in_flight += 1
        self._width = max(self._width, self._in_flight)
        return self._arrived - self._width

    def leave(self, *, answered: bool = False) -> None:
        """Count the end of an Observe. One without an answer counts as never arrived."""
        self._in_flight -= 1
        if not answered:
            self._arrived -= 1

    def add(self, taken: Taken, deadline: float = math.inf) -> None:
        """Record the deliveries of a reply, and until when the client waits for it."""
        self._answered += 1
        if taken:
            self._replies.append(_Reply(self._answered, taken, deadline))

    async def acknowledge(self, upto: int, arrived: float, *, expired: bool = False) -> None:
        """Delete the messages of replies that the client has, as a call that *arrived* shows.

        With *expired*, only up to the last reply whose leases have ended.
        """
        while self._replies and self._replies[0].number <= upto:
            reply = self._replies[0]
            if expired and not reply.expired():
                return
            early, late = _TIMED_OUT_S
            missed = early <= arrived - reply.deadline <= late
            done = [
                # Only once, or a client that always asks at that moment would never finish.
                delivery.release() if missed and delivery.rc == 1 else delivery.ack()
                for _, delivery in reply.taken
            ]
            for outcome in await asyncio.gather(*done, return_exceptions=True):
                # With LeaseLost, another client has received the message since and holds it.
                if isinstance(outcome, BaseException) and not isinstance(outcome, LeaseLost):
                    raise outcome
            # Unless all of it has been given back.
            if self._replies and self._replies[0] is reply:
                self._replies.popleft()

    def clear(self) -> list[Delivery]:
        """Remove and return the deliveries of all replies."""
        held = [delivery for reply in self._replies for _, delivery in reply.taken]
        self._replies.clear()
        return held
