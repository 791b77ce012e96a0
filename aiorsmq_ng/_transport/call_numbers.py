"""Tickets: what the server knows a call by when it is repeated.

A ticket is a series and a number. The server remembers the last call of a series, so a series must
not begin a call before the one before is settled. A call whose outcome stays unknown keeps its
series for good (it is parked): whoever repeats it later finds the memory untouched.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Ticket:
    """One call of a series."""

    series: str
    number: int


class TicketBook:
    """Hands out tickets: of an idle series if there is one, else of a new one.

    The series last used is used first, so a client that makes one call at a time has one series,
    and one memory for each queue.
    """

    def __init__(self) -> None:
        self._idle: list[Ticket] = []
        self._open_anew()

    def take(self) -> Ticket:
        """Return a ticket for the next call of a series that has nothing under way."""
        if os.getpid() != self._pid:
            # A child process must not continue the series of its parent.
            self._open_anew()
        if not self._idle:
            return Ticket(f"{self._name}-{next(self._numbers)}", 1)
        last = self._idle.pop()
        return Ticket(last.series, last.number + 1)

    def settle(self, ticket: Ticket) -> None:
        """Take note that the outcome is known: the series may go on."""
        if ticket.series.startswith(self._name):
            self._idle.append(ticket)

    def _open_anew(self) -> None:
        self._idle.clear()
        self._pid = os.getpid()
        self._name = os.urandom(8).hex()
        self._numbers = count()
