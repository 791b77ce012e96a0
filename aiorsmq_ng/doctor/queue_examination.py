"""Examination of one queue: its keys, then its messages by pages, then the suspects once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import anyio

from .._protocol.keys import QueueKeys
from .._protocol.operations import doctor
from .._protocol.operations.doctor import MESSAGES_PAGE, FieldsCursor, QueueState, Tally
from .._transport.transport import Transport
from ..models import Finding, FindingKind
from .finding_texts import finding, fixable

#: Callback that is given what is examined, how much of it is done, and the total (0: unknown).
Progress = Callable[[str, int, int], None]

#: How long something must stay wrong to be reported. Not every client stores and deletes in one
#: atomic step: a message may be incomplete for a moment.
SETTLE_S = 0.25
#: Number of suspects that are collected before they are checked again; bounds memory.
_MANY = 20_000
_SAMPLES = 3
_HOUR_S = 3600


class Orders(NamedTuple):
    """Options of an examination."""

    fix: bool
    #: Messages that are hidden for longer than this are made visible; -1: none are.
    max_hidden_ms: int
    progress: Progress | None

    def report(self, what: str, done: int, total: int) -> None:
        """Call the progress callback, if there is one."""
        if self.progress is not None:
            self.progress(what, done, total)


class Examination:
    """Examines one queue, and repairs it with ``fix``."""

    def __init__(
        self,
        transport: Transport,
        keys: QueueKeys,
        channel: str,
        orders: Orders,
    ) -> None:
        self._transport = transport
        self._keys = keys
        self._channel = channel
        self._fix = orders.fix
        self._max_hidden_ms = orders.max_hidden_ms
        self._report = orders.report
        self._suspects: dict[bytes, None] = {}
        self._tallies: dict[FindingKind, Tally] = {}
        self._looked_at = 0
        #: True if no key of the queue exists.
        self.nothing_there = False

    async def run(self) -> list[Finding]:
        """Return the findings about the queue, after repair if asked for."""
        state = await self._transport.run(doctor.queue(self._keys, repair=False))
        found = self._keys_findings(state)
        self.nothing_there = not (state.readable or found)
        if state.readable:
            await self._look_at_ids(state)
            await self._look_at_fields(state)
            await self._look_closer()
        if self._fix:
            # After the messages: a queue whose last fields were leaks is gone by now, and must not
            # be completed.
            after = await self._transport.run(doctor.queue(self._keys, repair=True))
            found = self._merged(state, after)
        return found + self._messages_findings()

    async def _look_at_ids(self, state: QueueState) -> None:
        cursor = b"0"
        while True:
            page = await self._transport.run(doctor.ids(self._keys, cursor, self._max_hidden_ms))
            self._count("long_hidden", page.long_hidden)
            self._count("sent_in_future", page.sent_in_future)
            await self._suspect(page.suspects, page.looked_at, state)
            cursor = page.cursor
            if cursor == b"0":
                return

    async def _look_at_fields(self, state: QueueState) -> None:
        at = FieldsCursor()
        while True:
            page = await self._transport.run(doctor.fields(self._keys, at))
            self._count("unknown_field", page.unknown)
            await self._suspect(page.suspects, page.looked_at, state)
            at = page.next
            if at.cursor == b"0":
                return

    async def _suspect(self, ids: list[bytes], looked_at: int, state: QueueState) -> None:
        self._looked_at += looked_at
        self._report(self._keys.queue, self._looked_at, state.ids + state.fields)
        self._suspects.update(dict.fromkeys(ids))
        if len(self._suspects) >= _MANY:
            await self._look_closer()

    async def _look_closer(self) -> None:
        """Check the suspects again after ``SETTLE_S``; report what is still wrong."""
        suspects, self._suspects = list(self._suspects), {}
        if not suspects:
            return
        await anyio.sleep(SETTLE_S)
        for start in range(0, len(suspects), MESSAGES_PAGE):
            page = suspects[start : start + MESSAGES_PAGE]
            kinds = await self._transport.run(
                doctor.messages(
                    self._keys,
                    page,
                    repair=self._fix,
                    max_hidden_ms=self._max_hidden_ms,
                    channel=self._channel,
                )
            )
            for id, kind in zip(page, kinds, strict=True):
                if kind:
                    self._count(kind, Tally(1, [id.decode(errors="backslashreplace")]))

    def _count(self, kind: FindingKind, tally: Tally) -> None:
        if tally.number:
            old = self._tallies.get(kind, Tally(0, []))
            samples = (old.samples + tally.samples)[:_SAMPLES]
            self._tallies[kind] = Tally(old.number + tally.number, samples)

    def _merged(self, before: QueueState, after: QueueState) -> list[Finding]:
        """Return the findings after repair, and those that the repair of messages has resolved."""
        left = {(fault.kind, fault.what) for fault in after.faults}
        ended = [f for f in before.faults if (f.kind, f.what) not in left]
        return [
            *(
                finding(f.kind, self._keys.queue, fixed=True, what=f.what, count=before.ids or 1)
                for f in ended
                if f.kind == "headless"
            ),
            *self._keys_findings(after),
        ]

    def _keys_findings(self, state: QueueState) -> list[Finding]:
        name = self._keys.queue
        about_list = f"{self._keys.namespace.index} "
        found = [
            finding(
                fault.kind,
                None if fault.what.startswith(about_list) else name,
                state.ids if fault.kind == "headless" else 1,
                fixed=fault.repaired,
                what=fault.what,
            )
            for fault in state.faults
        ]
        for attribute, stored in (("vt", state.vt), ("delay", state.delay)):
            found += _duration(name, attribute, stored)
        return found

    def _messages_findings(self) -> list[Finding]:
        limit = "RSMQ allows (115 days)" if self._max_hidden_ms < 0 else "max_hidden"
        return [
            finding(
                kind,
                self._keys.queue,
                tally.number,
                fixed=self._fix and fixable(kind),
                what=limit,
                ids=tally.samples,
            )
            for kind, tally in self._tallies.items()
        ]


def _duration(queue: str, attribute: str, stored: bytes) -> list[Finding]:
    """Report a stored duration that looks like milliseconds, or that other clients cannot read."""
    if not stored:
        return []
    value = float(stored)
    if value % 1:
        return [finding("fraction", queue, what=attribute)]
    whole_hours = value % _HOUR_S == 0 and value <= 12 * _HOUR_S
    if value < _HOUR_S or value % 1000 or whole_hours:
        return []
    fact = f"{attribute} is {value:.0f} s, that is {value / _HOUR_S:.1f} h"
    return [finding("milliseconds", queue, what=fact)]
