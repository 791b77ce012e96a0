"""A message under lease, and what its holder may do with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import anyio

from ._protocol import limits, messages
from ._protocol.keys import QueueKeys
from ._protocol.messages import How
from ._protocol.operation import Operation
from ._protocol.values import Leased, Receipt, Received
from ._runtime.context import QueueContext
from .errors import ClientClosed, InvalidValue, RSMQError, WrongContext
from .models import DeadLetter, Message

logger = logging.getLogger("aiorsmq_ng.delivery")

#: How a delivery was settled.
Outcome = Literal["acked", "released", "rejected", "forwarded"]

#: Characters of an error that are kept as the reason of a rejection.
_REASON_LENGTH = 500


class Named(Protocol):
    """Anything with a queue's name, such as a Queue."""

    @property
    def name(self) -> str:
        """The queue's name."""
        ...


class Delivery(Message):
    """A leased message with its receipt (``id``, ``rc``, ``fr``).

    Every verb is fenced inside its script: if somebody, any RSMQ client, has received the message
    since, nothing changes and ``LeaseLost`` is raised. ``async with delivery`` renews the lease
    while inside, acks at the end, and releases if the block raises.
    """

    __slots__ = (
        "_excused",
        "_strikes",
        "expires_at",
        "lease_lost",
        "on_lost",
        "origin",
        "outcome",
        "vt_ms",
    )

    def __init__(self, leased: Leased, origin: QueueContext, expires_at: float) -> None:
        self.id, self.body, self.rc, self.fr, _, self.vt_ms, self._strikes, self._excused = leased
        self.origin = origin
        #: How its holder settled it; none as long as that has not happened.
        self.outcome: Outcome | None = None
        #: When the lease of ``vt_ms`` ends on the event loop's clock.
        self.expires_at = expires_at
        #: True once the lease is lost, or could not be renewed in time.
        self.lease_lost = False
        #: Called when that happens.
        self.on_lost: Callable[[], object] | None = None

    @classmethod
    def of(cls, received: Received, origins: Mapping[str, QueueContext]) -> list[Self]:
        """Return the deliveries that a receive brought; *origins* are by queue name."""
        # Counted from before the request, so that our idea of a lease's end is never too late.
        return [
            cls(leased, origins[leased.keys.queue], received.asked_at + leased.vt_ms / 1000)
            for leased in received.messages
        ]

    @classmethod
    def proven(cls, receipt: Receipt, origin: QueueContext, vt_ms: int) -> Self:
        """Return the delivery that *receipt* proves; its body is not known."""
        leased = Leased(receipt.id, b"", receipt.rc, receipt.fr, origin.keys, vt_ms)
        return cls(leased, origin, asyncio.get_running_loop().time() + vt_ms / 1000)

    @property
    def queue(self) -> str:
        """Name of the queue it was received from."""
        return self.origin.keys.queue

    @property
    def attempt(self) -> int:
        """Number of this delivery, without those given back before anybody began to work on them.

        The retry policy counts these; ``rc`` counts all.
        """
        return self.rc - self._excused

    @property
    def strikes(self) -> int:
        """Deliveries in a row before this one that vanished with their holders."""
        return self._strikes

    @property
    def suspect(self) -> bool:
        """Whether the delivery before this one vanished with its holder.

        The message may be what kills processes, so it came alone; nothing else should be held in
        this process while it is worked on. A ``Worker`` sees to that.
        """
        return self._strikes > 0

    @property
    def receipt(self) -> Receipt:
        """The proof of this delivery."""
        return tuple.__new__(Receipt, (self.id, self.rc, self.fr))

    async def ack(self) -> None:
        """Delete the message: it is done."""
        await self._settle(messages.ack(self.origin.keys, self.receipt), "acked")

    @staticmethod
    async def ack_all(origin: QueueContext, batch: Sequence[Delivery]) -> list[Delivery]:
        """Ack deliveries of one queue by one call; return those that were still their holder's."""
        keeper = origin.keeper
        origin.transport.check()
        for delivery in batch:
            keeper.suspend(delivery)
        operation = messages.ack_many(origin.keys, [delivery.receipt for delivery in batch])
        try:
            outcomes = await origin.transport.see_through(operation)
        except RSMQError:
            for delivery in batch:
                keeper.resume(delivery)
            raise
        finally:
            for delivery in batch:
                keeper.forget(delivery)
        acked = [delivery for delivery, done in zip(batch, outcomes, strict=True) if done]
        for delivery in acked:
            delivery.outcome = "acked"
        return acked

    async def extend(self, vt: limits.Seconds) -> None:
        """Hold the message for *vt* from now on."""
        vt_ms = limits.seconds_to_ms("vt", vt)
        # Counted from before the request, so that our idea of its end is never too late.
        started = asyncio.get_running_loop().time()
        operation = self._visibility(vt_ms, "" if vt_ms else "r")
        after = self._suspend(operation)
        try:
            await self.origin.transport.submit(operation, after=after)
            self.vt_ms = vt_ms
            self.expires_at = started + vt_ms / 1000
        finally:
            self.origin.keeper.resume(self)

    async def release(self, delay: limits.Seconds = 0, *, unseen: bool = False) -> None:
        """Give the message back; it is visible again after *delay*.

        With *unseen* no work on it has begun, and the delivery does not count for
        ``max_receives``.
        """
        how: How = "u" if unseen else "r"
        await self._settle(self._visibility(limits.seconds_to_ms("delay", delay), how), "released")

    async def reject(self, reason: str | None = None) -> None:
        """Move the message to the dead-letter queue, with body, ``rc`` and ``fr``.

        The dead-letter queue is an ordinary queue; it is created if it does not exist. The reason
        can be read there with ``Queue.reason(id)`` for 14 days, its first 1000 characters.
        """
        origin = self.origin
        target = self._target(origin.dead_letter)
        await self._settle(
            messages.reject(
                origin.keys,
                self.receipt,
                target,
                reason=reason or "",
                channel=origin.channel(target),
            ),
            "rejected",
        )
        origin.letters.tell(DeadLetter(self, self.queue, target.queue, reason or ""))

    async def forward(self, queue: str | Named, *, delay: limits.Seconds | None = None) -> None:
        """Move the message to another queue, where it starts anew with no receives."""
        origin = self.origin
        target = self._target(queue if isinstance(queue, str) else queue.name)
        await self._settle(
            messages.forward(
                origin.keys,
                self.receipt,
                target,
                delay_ms=limits.optional_ms("delay", delay),
                channel=origin.channel(target),
            ),
            "forwarded",
        )

    def give_back(self, delay: limits.Seconds = 0, *, how: How = "u") -> asyncio.Future[Any]:
        """Start to release the message; it goes on whatever happens to the caller.

        Also while the client is being closed. By default no work on it has begun, and the
        delivery does not count. If its holder did begin, *how* is ``"r"``; if that one is gone
        without a word, ``""``: it vanished.
        """
        self.origin.transport.check()
        operation = self._visibility(limits.seconds_to_ms("delay", delay), how)
        after = self.origin.keeper.drop(self)
        return self.origin.transport.submit(operation, after=after, closing=True)

    def renewal(self) -> Operation[bool]:
        """Return the operation that renews the lease."""
        return self._visibility(self.vt_ms)

    def lost(self) -> None:
        """Take note that the lease is lost, or will be before it can be renewed."""
        self.lease_lost = True
        if self.on_lost is not None:
            self.on_lost()

    @property
    def expired_s(self) -> float:
        """For how many seconds the lease has been over, by this process's clock; 0 if it holds.

        A lease of no length is never over.
        """
        over_s = asyncio.get_running_loop().time() - self.expires_at
        return over_s if over_s > 0 and self.vt_ms > 0 else 0.0

    @property
    def settled(self) -> bool:
        """Tell whether it was acked, released, rejected or forwarded."""
        return self.outcome is not None

    async def __aenter__(self) -> Self:
        self.origin.transport.check()
        self.origin.keeper.keep(self)
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if isinstance(error, GeneratorExit):
            # The coroutine is thrown away, by the garbage collector perhaps: it cannot wait, and
            # the thread may be any.
            self.origin.transport.call_soon(self._abandon)
            return
        try:
            if not self.settled:
                await self._conclude(error)
        finally:
            # Whatever came of it: nobody works on the message any more.
            self.origin.keeper.drop(self)

    def _abandon(self) -> None:
        if not self.settled:
            give_back([self])
        self.origin.keeper.drop(self)

    async def fail(self, error: BaseException) -> None:
        """Do what the retry policy says about a message whose handling raised *error*.

        Without a policy, or if the handling was cancelled, it is visible again at once.
        """
        retry = self.origin.retry
        if retry is None or not isinstance(error, Exception):
            await self.release()
        elif retry.gives_up(self.attempt):
            await self.reject(f"{type(error).__name__}: {error}"[:_REASON_LENGTH])
        else:
            await self.release(retry.delay(self.attempt))

    async def _conclude(self, error: BaseException | None) -> None:
        if error is None:
            await self.ack()
            return
        # Once begun, it goes on whatever happens to this task.
        with anyio.CancelScope(shield=True):
            try:
                await self.fail(error)
            except RSMQError as failure:
                logger.warning("message %s was not given back: %s", self.id, failure)

    def _visibility(self, vt_ms: int, how: How = "") -> Operation[bool]:
        keys = self.origin.keys
        return messages.visibility(
            keys, self.id, vt_ms=vt_ms, receipt=self.receipt, channel=keys.wake, how=how
        )

    def _target(self, name: str) -> QueueKeys:
        target = self.origin.sibling(name)
        if target.queue == self.queue:
            raise InvalidValue(f"message {self.id} is in queue {name!r} already; use release()")
        return target

    async def _settle(self, operation: Operation[Any], outcome: Outcome) -> None:
        """Run *operation*, which ends the lease, even if the caller is cancelled meanwhile."""
        keeper = self.origin.keeper
        try:
            await self.origin.transport.see_through(operation, after=self._suspend(operation))
        except RSMQError:
            keeper.resume(self)
            raise
        finally:
            keeper.forget(self)
        self.outcome = outcome

    def _suspend(self, operation: Operation[Any]) -> asyncio.Future[Any] | None:
        """Stop renewing for now, and return what *operation* has to follow.

        A change of visibility follows a renewal that is under way: one that overtook it would
        hide the message again. What takes the message out of the queue need not wait.
        """
        self.origin.transport.check()
        renewing = self.origin.keeper.suspend(self)
        return renewing if operation.script.name == "visibility" else None


def give_back(deliveries: Iterable[Delivery]) -> list[asyncio.Future[Any]]:
    """Start to release messages; a client that has ended renews no leases, so they end, too."""
    going = []
    for delivery in deliveries:
        with suppress(ClientClosed, WrongContext):
            going.append(delivery.give_back())
    return going


def fresh(deliveries: list[Delivery]) -> list[Delivery]:
    """Return those whose leases hold; give back those with which it is too late to begin.

    After a stall nothing has noticed yet that leases have ended: the task that renews them was
    stalled, too. Somebody else may be at work on these messages.
    """
    now = asyncio.get_running_loop().time()
    # Nearly always all of them hold, and this is asked three times for each message of a worker.
    if not any(d.lease_lost or d.expires_at < now for d in deliveries):
        return deliveries
    held: list[Delivery] = []
    late: list[Delivery] = []
    over_s = 0.0
    for delivery in deliveries:
        expired_s = delivery.expired_s
        (late if delivery.lease_lost or expired_s else held).append(delivery)
        over_s = max(over_s, expired_s)
    if over_s:
        logger.warning(
            "the event loop was blocked for more than %.1f s: work on %d messages of queue %r is "
            "not begun, their leases have ended; run what blocks by asyncio.to_thread",
            over_s, len(late), late[0].queue,
        )  # fmt: skip
    give_back(late)
    return held
