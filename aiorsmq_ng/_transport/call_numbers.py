"""Idempotency keys of calls: a series and a number, and the records that the server keeps of them.

The server keeps a record of the last call of a *series*, by which it recognises a repetition. So a
series must not begin a call before the outcome of the previous one is known. A call whose outcome
stays unknown keeps its series for good (it is parked), so that a later repetition finds its record.
"""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from .call import Call

#: Call records that are removed when the client is closed; more are left to expire.
MAX_RECORDS = 10_000


class CallNumber(Struct, frozen=True):
    """One call of a series."""

    series: str
    number: int


class CallNumbers:
    """Allocates call numbers: of an idle series if there is one, else of a new one.

    The series last used is used first, so a client that makes one call at a time has one series,
    and one call record for each queue.
    """

    def __init__(self) -> None:
        self._idle: list[CallNumber] = []
        # Records that are removed when the client is closed; not those that an attempt which may
        # still arrive must find.
        self._records: set[str] = set()
        self._doubtful: set[str] = set()
        self._restart()

    def take(self) -> CallNumber:
        """Return the number of the next call of a series without a call in flight."""
        if os.getpid() != self._pid:
            # A child process must not continue the series of its parent.
            self._restart()
        if not self._idle:
            return CallNumber(f"{self._name}-{next(self._numbers)}", 1)
        last = self._idle.pop()
        return CallNumber(last.series, last.number + 1)

    def settle(self, number: CallNumber) -> None:
        """Make the series idle again: the outcome of its last call is known."""
        if number.series.startswith(self._name):
            self._idle.append(number)

    def release(self, call: Call) -> None:
        """Make the series of *call* idle again, and note its record to be removed at the end."""
        if call.number is None:
            return
        self.settle(call.number)
        if call.in_doubt:
            self.keep_record(call)
        elif (record := call.record) is not None and len(self._records) < MAX_RECORDS:
            self._records.add(record)

    def keep_record(self, call: Call) -> None:
        """Exclude the record from removal: an attempt that may still arrive must find it."""
        if (record := call.record) is not None:
            self._doubtful.add(record)

    def take_records(self) -> list[str]:
        """Return the records of calls that will not be repeated, once."""
        records = sorted(self._records - self._doubtful)
        self._records.clear()
        return records

    def _restart(self) -> None:
        self._idle.clear()
        self._pid = os.getpid()
        self._name = os.urandom(8).hex()
        self._numbers = count()
