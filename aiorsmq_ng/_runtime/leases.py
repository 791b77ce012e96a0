"""Lease renewal: one task per client keeps the leases of all messages in hand."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio

from .._protocol.operation import Operation
from .._transport.batching import Transport
from ..errors import ClientClosed, LeaseLost

logger = logging.getLogger("aiorsmq_ng.leases")

#: A lease is renewed when a third of it is gone, so two renewals may fail before it ends.
_RENEW_AFTER = 1 / 3
#: A renewal that failed is tried again after this part of the lease.
_TRY_AGAIN_AFTER = 1 / 10
_SHORTEST_PAUSE_S = 0.02
#: The task that renews leases is late by less than this on any busy machine.
_STALL_S = 0.2


class Lease(Protocol):
    """Something whose lease can be renewed."""

    #: The lease in milliseconds, and when it ends on the event loop's clock.
    vt_ms: int
    expires_at: float
    #: The message.
    id: str

    @property
    def queue(self) -> str:
        """Name of the queue that the message is in."""
        ...

    def renewal(self) -> Operation[bool]:
        """Return the operation that renews it."""
        ...

    def lost(self) -> None:
        """Take note that it is lost, or will be before anything can be done about it."""


@dataclass(slots=True, eq=False)
class _Kept:
    """A lease being kept: when to renew it, or the renewal under way."""

    lease: Lease
    renew_at: float
    renewing: asyncio.Future[bool] | None = None

    @property
    def give_up_at(self) -> float:
        """A little before the end, so that whoever works on the message can be stopped in time."""
        length_s = self.lease.vt_ms / 1000
        return self.lease.expires_at - min(max(1.0, length_s / 10), length_s / 4)

    @property
    def wake_at(self) -> float:
        """When something has to be done about it."""
        return self.give_up_at if self.renewing else min(self.renew_at, self.give_up_at)


class LeaseKeeper:
    """Renews leases until they are dropped. Those due together share one script call."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kept: dict[Lease, _Kept] = {}
        # Leases that are not renewed while their holder asks the server for something.
        self._suspended: set[Lease] = set()
        # Renewals still under way of leases that were given up.
        self._late: dict[Lease, asyncio.Future[bool]] = {}
        self._changed = asyncio.Event()
        self._running = False
        #: When the task looks again by itself.
        self._looks_at = 0.0

    def keep(self, lease: Lease) -> None:
        """Renew *lease* from now on. A lease of no length cannot be kept."""
        if lease.vt_ms <= 0 or lease in self._kept:
            return
        renew_at = lease.expires_at - lease.vt_ms / 1000 * (1 - _RENEW_AFTER)
        self._kept[lease] = _Kept(lease, renew_at)
        # Most are due later than those kept already.
        if renew_at < self._looks_at:
            self._changed.set()
        if not self._running:
            self._running = True
            self._transport.spawn(self._run)

    def drop(self, lease: Lease) -> asyncio.Future[bool] | None:
        """Stop renewing *lease* for good; return the renewal that is under way, if one is."""
        self._suspended.discard(lease)
        kept = self._kept.pop(lease, None)
        return self._late.get(lease) if kept is None else kept.renewing

    def suspend(self, lease: Lease) -> asyncio.Future[bool] | None:
        """Stop renewing *lease* until ``resume``; return the renewal that is under way."""
        known = lease in self._kept or lease in self._suspended
        renewing = self.drop(lease)
        if known:
            self._suspended.add(lease)
        return renewing

    def resume(self, lease: Lease) -> None:
        """Renew *lease* again if it was before ``suspend``, and its holder still has it."""
        if lease in self._suspended:
            self._suspended.discard(lease)
            self.keep(lease)

    def forget(self, lease: Lease) -> None:
        """Let a suspended lease not be resumed; one that is renewed again stays so."""
        self._suspended.discard(lease)

    def kept(self) -> list[Lease]:
        """Return all leases being renewed."""
        return list(self._kept)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._kept:
                self._act(loop.time())
                self._changed.clear()
                wake_at = min((kept.wake_at for kept in self._kept.values()), default=0.0)
                self._looks_at = max(wake_at, loop.time() + _SHORTEST_PAUSE_S)
                with anyio.move_on_after(self._looks_at - loop.time()):
                    await self._changed.wait()
                self._note_stall(loop.time() - self._looks_at)
        except ClientClosed:
            pass  # the client is being closed; leases end by themselves
        finally:
            self._running = False

    def _note_stall(self, late_s: float) -> None:
        """Say that the event loop stood still, if that was long enough to miss renewals."""
        shortest_ms = min((lease.vt_ms for lease in self._kept), default=0)
        if late_s > max(_STALL_S, shortest_ms / 1000 * _RENEW_AFTER):
            logger.warning(
                "the event loop was blocked, or the process stopped, for more than %.1f s: leases "
                "could not be renewed; run what blocks by asyncio.to_thread", late_s,
            )  # fmt: skip

    def _act(self, now: float) -> None:
        for kept in list(self._kept.values()):
            if now >= kept.give_up_at:
                logger.warning("lease of %r could not be renewed in time", kept.lease)
                self._lose(kept)
            # What is due soon goes along: one call for all.
            elif not kept.renewing and now >= kept.renew_at - kept.lease.vt_ms / 10_000:
                kept.renewing = self._transport.submit(kept.lease.renewal())
                kept.renewing.add_done_callback(partial(self._renewed, kept, now))

    def _renewed(self, kept: _Kept, started: float, done: asyncio.Future[bool]) -> None:
        kept.renewing = None
        if self._kept.get(kept.lease) is not kept or done.cancelled():
            return  # settled meanwhile
        length_s = kept.lease.vt_ms / 1000
        error = done.exception()
        if error is None:
            # Counted from before the request, so that our idea of its end is never too late.
            kept.lease.expires_at = started + length_s
            kept.renew_at = started + length_s * _RENEW_AFTER
        elif isinstance(error, LeaseLost):
            logger.warning("%s", error)
            self._lose(kept)
        else:
            logger.warning("lease not renewed yet, trying again: %s", error)
            kept.renew_at = asyncio.get_running_loop().time() + length_s * _TRY_AGAIN_AFTER
        self._changed.set()

    def _lose(self, kept: _Kept) -> None:
        lease = kept.lease
        self._kept.pop(lease, None)
        if kept.renewing is not None:
            # It may still reach the server; a release must not be overtaken by it.
            self._late[lease] = kept.renewing
            kept.renewing.add_done_callback(lambda _: self._late.pop(lease, None))
        lease.lost()
