"""Lease renewal: one task per client renews the leases of all messages that it holds.

Theory of operation. A ``Lease`` is plain data: what the client knows of the lease of one message.
The ``LeaseKeeper`` reads and writes leases. It does not depend on deliveries, workers or consumers;
it reports a loss by the callback in the lease. The rules:

1. A lease is registered once, by ``keep``, and removed once: by ``drop`` when the message is
   settled or given up, or by the keeper when the lease is lost.
2. While it is registered and has an owner, it is renewed. A holder that passes a message on inside
   the client passes on the registration with it. ``hand_over`` is for a receiver that may never
   take it up: if that has not called ``take_over`` when a renewal is due, the lease is removed.
3. A holder that sends an operation of its own on the lease brackets it with ``pause`` and
   ``resume``. No renewal is sent in between, and the result of one in flight is ignored.
4. A renewal in flight, or its holder's extension, stays in the lease until its reply arrives, also
   after the lease was lost or dropped, or the holder was cancelled: a release has to follow it, or
   the message would be hidden again.
5. When the client is closed, the messages of all leases that are still registered are released:
   their holders cannot settle them any more. One with an operation of its holder in flight is
   released after that, unless the operation settles it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio

from .._protocol.keys import QueueKeys
from .._protocol.operation import Operation
from .._protocol.operations import messages
from .._protocol.operations.message_values import Receipt
from .._transport.transport import Transport
from ..errors import ClientClosed, LeaseLost, QueueNotFound

logger = logging.getLogger("aiorsmq_ng.leases")

#: A lease is renewed when a third of it is gone, so two renewals may fail before it ends.
_RENEW_AFTER = 1 / 3
#: A renewal that failed is tried again after this part of the lease.
_RETRY_AFTER = 1 / 10
#: A renewal joins others that are due, at most this part of the lease early.
_JOIN_EARLY = 1 / 10
#: Failed renewals cause at most one warning in this time.
_WARN_EVERY_S = 5.0
_SHORTEST_PAUSE_S = 0.02
#: How long the task sleeps if all leases are paused.
_IDLE_S = 1.0
#: The task that renews leases is late by less than this on any busy machine.
_STALL_S = 0.2


class Lease:
    """What this client knows of the lease of one message."""

    __slots__ = (
        "expires_at",
        "keys",
        "lost",
        "on_lost",
        "owned",
        "pauses",
        "receipt",
        "renew_at",
        "renew_from",
        "renewing",
        "vt",
    )

    def __init__(self, keys: QueueKeys, receipt: Receipt, vt: float, expires_at: float) -> None:
        # The queue that the message is in.
        self.keys = keys
        #: The proof of the delivery: ``id``, ``rc``, ``fr``.
        self.receipt = receipt
        #: Length of the lease in seconds.
        self.vt = vt
        #: When it ends on the event loop's clock; never later than on the server's.
        self.expires_at = expires_at
        #: True once it is lost, or could not be renewed in time.
        self.lost = False
        #: Called when that happens.
        self.on_lost: Callable[[], object] | None = None
        # False while it is handed over, and not taken over yet.
        self.owned = True
        # Operations of its holder in flight; the lease is not renewed meanwhile.
        self.pauses = 0
        # When to renew it, the earliest time at which it may join others, the renewal in flight.
        self.renew_at = self.renew_from = 0.0
        self.renewing: asyncio.Future[bool] | None = None

    @property
    def id(self) -> str:
        """Id of the message."""
        return self.receipt.id

    @property
    def queue(self) -> str:
        """Name of the queue that the message is in."""
        return self.keys.queue

    @property
    def ended(self) -> bool:
        """True if it is lost, or over: another client may work on the message."""
        return has_ended(self, asyncio.get_running_loop().time())

    def __repr__(self) -> str:
        return f"<Lease of message {self.id} in queue {self.queue!r}>"


def has_ended(lease: Lease, now: float) -> bool:
    """Return True if *lease* is lost, or over at *now* on the event loop's clock."""
    return lease.lost or (now > lease.expires_at and lease.vt > 0)


def seconds_over(lease: Lease, now: float) -> float:
    """Return how long *lease* is over at *now*; 0 while it holds, or has no length."""
    return max(0.0, now - lease.expires_at) if lease.vt > 0 else 0.0


def lose(lease: Lease) -> None:
    """Mark *lease* as lost, and call its holder's callback; an error of that is logged."""
    lease.lost = True
    if lease.on_lost is not None:
        try:
            lease.on_lost()
        except Exception:
            logger.exception("the callback for the lost %r failed", lease)


class LeaseKeeper:
    """Renews registered leases. Those due together share one script call."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kept: dict[Lease, None] = {}
        self._changed = asyncio.Event()
        self._running = False
        self._closing = False
        #: From when on a failed renewal is logged as a warning again.
        self._warn_from = 0.0
        #: When the task wakes up by itself.
        self._wakes_at = 0.0

    def keep(self, *leases: Lease) -> None:
        """Register leases: renew them from now on. A lease of no length is not renewed.

        While the client is closed, their messages are released instead: ``ClientClosed``.
        """
        if self._closing:
            for lease in leases:
                self._give_back(lease)
            raise ClientClosed
        for lease in leases:
            if lease.vt > 0:
                lease.owned = True
                self._kept[lease] = None
                self._schedule(lease)

    def hand_over(self, lease: Lease) -> None:
        """Stop renewing *lease* until ``take_over``; without one it is removed when it is due."""
        lease.owned = False

    def take_over(self, lease: Lease) -> bool:
        """Renew a lease that is registered already; return False if it is not."""
        lease.owned = True
        return lease in self._kept

    def drop(self, *leases: Lease) -> None:
        """Remove leases: renew them no more. A renewal in flight stays in its lease."""
        for lease in leases:
            self._kept.pop(lease, None)
            lease.on_lost = None

    def pause(self, *leases: Lease) -> None:
        """Send no renewals of leases until ``resume``. One in flight stays in its lease."""
        for lease in leases:
            lease.pauses += 1

    def resume(self, *leases: Lease) -> None:
        """End a pause; a lease that is still registered is renewed again when it is due."""
        for lease in leases:
            lease.pauses -= 1
            if lease.pauses or lease not in self._kept:
                continue
            if self._closing:
                self._give_back(lease)
            elif lease.vt > 0:
                self._schedule(lease)
            else:
                self.drop(lease)

    def close(self) -> None:
        """Release the messages of all registered leases (rule 5)."""
        self._closing = True
        for lease in list(self._kept):
            if not lease.pauses:
                self._give_back(lease)

    def kept(self) -> list[Lease]:
        """Return all leases that are renewed, or paused."""
        return [lease for lease in self._kept if lease.owned]

    def problem(self) -> str | None:
        """Return why registered leases are not renewed; ``None`` if nothing is wrong.

        The task may be late because it had no turn yet: look again before you act on it.
        """
        if not self._kept or self._closing:
            return None
        if not self._running:
            return "the task that renews leases has ended"
        late_s = asyncio.get_running_loop().time() - self._wakes_at
        if late_s > self._stall_s():
            return f"leases have not been renewed: their task is {late_s:.1f} s late"
        return None

    def _schedule(self, lease: Lease) -> None:
        _set_renewal(lease)
        # Most are due later than those kept already.
        if lease.renew_at < self._wakes_at:
            self._changed.set()
        if not self._running:
            self._running = True
            self._wakes_at = asyncio.get_running_loop().time()
            self._transport.spawn(self._run)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._kept:
                self._act(loop.time())
                self._changed.clear()
                wake_at = min(
                    (_wake_at(lease) for lease in self._kept if not lease.pauses),
                    default=loop.time() + _IDLE_S,
                )
                self._wakes_at = max(wake_at, loop.time() + _SHORTEST_PAUSE_S)
                with anyio.move_on_after(self._wakes_at - loop.time()):
                    await self._changed.wait()
                self._note_stall(loop.time() - self._wakes_at)
        except ClientClosed:
            pass  # the client is being closed; leases end by themselves
        finally:
            self._running = False

    def _note_stall(self, late_s: float) -> None:
        """Log that the event loop was blocked, if that was long enough to miss renewals."""
        if late_s > self._stall_s():
            logger.warning(
                "the event loop was blocked, or the process stopped, for more than %.1f s: leases "
                "could not be renewed; run what blocks by asyncio.to_thread", late_s,
                extra={"seconds": late_s},
            )  # fmt: skip

    def _stall_s(self) -> float:
        """Return by how much the task may be late before renewals are missed."""
        shortest_s = min((lease.vt for lease in self._kept), default=0.0)
        return max(_STALL_S, shortest_s * _RENEW_AFTER)

    def _act(self, now: float) -> None:
        for lease in list(self._kept):
            # Renewals that are due soon join: one call for all.
            due = now >= lease.renew_from
            if lease.pauses:
                continue
            if not lease.owned:
                if due:
                    self.drop(lease)
            elif now >= _give_up_at(lease):
                logger.warning(
                    "%r could not be renewed in time", lease,
                    extra={"queue": lease.queue, "message_id": lease.id},
                )  # fmt: skip
                if (observer := self._transport.observer) is not None:
                    observer.lease_lost(lease.keys.namespace.name, lease.queue, lease.receipt)
                self._lose(lease)
            elif due and lease.renewing is None:
                lease.renewing = self._transport.submit(
                    _visibility(lease, vt_ms=round(lease.vt * 1000))
                )
                lease.renewing.add_done_callback(partial(self._renewed, lease, now))

    def _renewed(self, lease: Lease, started: float, done: asyncio.Future[bool]) -> None:
        if lease.renewing is done:
            lease.renewing = None
        if lease not in self._kept or lease.pauses or done.cancelled():
            return  # settled meanwhile, or about to be
        error = done.exception()
        if error is None:
            # Counted from before the request, so that ``expires_at`` is never too late.
            lease.expires_at = started + lease.vt
            _set_renewal(lease)
        elif isinstance(error, LeaseLost | QueueNotFound):
            logger.warning("%s", error, extra={"queue": lease.queue, "message_id": lease.id})
            self._lose(lease)
        else:
            now = asyncio.get_running_loop().time()
            self._log_failure(lease, error, now)
            # Not earlier, or a server that replies with errors would get renewals without a pause.
            lease.renew_at = lease.renew_from = now + lease.vt * _RETRY_AFTER
        self._changed.set()

    def _log_failure(self, lease: Lease, error: BaseException, now: float) -> None:
        """Log a failed renewal: as a warning every few seconds, else at debug level."""
        level = logging.DEBUG
        if now >= self._warn_from:
            level, self._warn_from = logging.WARNING, now + _WARN_EVERY_S
        logger.log(
            level, "%r is not renewed yet, trying again: %s", lease, error,
            extra={"queue": lease.queue, "message_id": lease.id, "error": str(error)},
        )  # fmt: skip

    def _give_back(self, lease: Lease) -> None:
        release = _visibility(lease, vt_ms=0, how="r")
        with suppress(ClientClosed):  # too late: the lease ends by itself
            self._transport.submit(release, after=lease.renewing, closing=True)
        self._lose(lease)

    def _lose(self, lease: Lease) -> None:
        self._kept.pop(lease, None)
        lose(lease)


def _visibility(lease: Lease, *, vt_ms: int, how: messages.How = "") -> Operation[bool]:
    keys, receipt = lease.keys, lease.receipt
    return messages.visibility(
        keys, receipt.id, vt_ms=vt_ms, receipt=receipt, channel=keys.wake, how=how
    )


def _set_renewal(lease: Lease) -> None:
    """Set when to renew it: when the first part of the lease is gone."""
    lease.renew_at = lease.expires_at - lease.vt * (1 - _RENEW_AFTER)
    lease.renew_from = lease.renew_at - lease.vt * _JOIN_EARLY


def _give_up_at(lease: Lease) -> float:
    """Return a time a little before its end, so that its holder can be stopped before that."""
    return lease.expires_at - min(max(1.0, lease.vt / 10), lease.vt / 4)


def _wake_at(lease: Lease) -> float:
    """Return when the lease needs attention: a renewal, or giving it up."""
    give_up_at = _give_up_at(lease)
    return give_up_at if lease.renewing else min(lease.renew_at, give_up_at)
