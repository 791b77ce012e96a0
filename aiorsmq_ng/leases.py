"""Lease renewal: one task per client keeps the leases of all messages in hand."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import anyio

from .errors import LeaseLost, RSMQError
from .protocol.operation import Operation
from .transport.coalescing import Transport

logger = logging.getLogger("aiorsmq_ng.leases")

#: A lease is renewed when a third of it is gone, so two renewals may fail before it ends.
_RENEW_AFTER = 1 / 3
_SHORTEST_PAUSE_S = 0.05


class Lease(Protocol):
    """Something whose lease can be renewed."""

    #: The lease in milliseconds, and when it ends on the event loop's clock.
    vt_ms: int
    expires_at: float

    def renewal(self) -> Operation[bool]:
        """Return the operation that renews it."""
        ...

    def lost(self) -> None:
        """Take note that it can no longer be renewed."""


class LeaseKeeper:
    """Renews leases until they are dropped. Those due together share one script call."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._leases: set[Lease] = set()
        self._renewing: dict[Lease, asyncio.Future[bool]] = {}
        self._changed = asyncio.Event()
        self._running = False

    def keep(self, lease: Lease) -> None:
        """Renew *lease* from now on. A lease of no length cannot be kept."""
        if lease.vt_ms <= 0:
            return
        self._leases.add(lease)
        self._changed.set()
        if not self._running:
            self._running = True
            self._transport.spawn(self._run)

    def drop(self, lease: Lease) -> None:
        """Stop renewing *lease*."""
        self._leases.discard(lease)

    def keeps(self, lease: Lease) -> bool:
        """Tell whether *lease* is being renewed."""
        return lease in self._leases

    def renewing(self, lease: Lease) -> asyncio.Future[bool] | None:
        """Return the renewal of *lease* that is under way, if one is."""
        return self._renewing.get(lease)

    async def _run(self) -> None:
        try:
            while self._leases:
                self._changed.clear()
                pause_s = min(map(_renew_at, self._leases)) - asyncio.get_running_loop().time()
                with anyio.move_on_after(max(pause_s, _SHORTEST_PAUSE_S)):
                    await self._changed.wait()
                    continue
                await self._renew_due()
        finally:
            self._running = False

    async def _renew_due(self) -> None:
        now = asyncio.get_running_loop().time()
        # What is due soon goes along: one call for all.
        due = [x for x in self._leases if _renew_at(x) - now <= x.vt_ms / 10_000]
        if not due:
            return
        self._renewing = {lease: self._transport.submit(lease.renewal()) for lease in due}
        await asyncio.wait(self._renewing.values())
        renewed, self._renewing = self._renewing, {}
        for lease, future in renewed.items():
            error = future.exception()
            if lease not in self._leases:
                continue  # settled meanwhile
            if error is None:
                lease.expires_at = now + lease.vt_ms / 1000
            elif isinstance(error, LeaseLost) or now >= lease.expires_at:
                self._leases.discard(lease)
                lease.lost()
                logger.warning("%s", error)
            elif isinstance(error, RSMQError):
                logger.warning("lease not renewed yet, trying again: %s", error)


def _renew_at(lease: Lease) -> float:
    return lease.expires_at - lease.vt_ms / 1000 * (1 - _RENEW_AFTER)
