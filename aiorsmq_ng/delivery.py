"""A message under lease, and the operations of its holder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import anyio

from ._common.durations import Seconds
from ._protocol import argument_checks
from ._protocol.keys import QueueKeys
from ._protocol.operation import Operation
from ._protocol.operations import messages, recovery
from ._protocol.operations.message_values import Leased, Receipt, Received
from ._protocol.operations.messages import How
from ._protocol.operations.recovery import Recovered
from ._runtime.lease_renewal import Lease
from ._runtime.prefetch import give_back
from ._runtime.queue_context import QueueContext
from ._transport.transport import Transport
from .codec import Codec
from .errors import ClientClosed, InvalidValue, RSMQError
from .models import DeadLetter, Message, RecoverPlace

logger = logging.getLogger("aiorsmq_ng.delivery")

#: How a delivery was settled.
Outcome = Literal["acked", "released", "rejected", "forwarded"]

#: A page without messages.
_NOTHING = Received([], -1)
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

    Every verb is fenced inside its script: if any RSMQ client has received the message since,
    nothing changes and ``LeaseLost`` is raised. ``async with delivery`` renews the lease while
    inside and acks at the end; if the block raises, the retry policy of the queue handle decides.
    """

    __slots__ = ("_block", "_context", "_excused", "_strikes", "lease", "outcome")

    def __init__(self, leased: Leased, context: QueueContext, expires_at: float) -> None:
        self.id, self.rc, self.fr, _ = receipt = leased.receipt
        self.body = leased.body
        self._headers = leased.headers
        self._strikes = leased.strikes
        self._excused = leased.excused
        self._context = context
        #: What this client knows of the lease: ``vt``, ``expires_at``, ``lost``.
        self.lease = Lease(leased.keys, receipt, leased.vt_ms / 1000, expires_at)
        #: How its holder settled it; ``None`` before that.
        self.outcome: Outcome | None = None
        #: The block ``async with``, as telemetry sees it; there is none without telemetry.
        self._block: AbstractContextManager[object]

    @property
    def queue(self) -> str:
        """Name of the queue it was received from."""
        return self.lease.keys.queue

    @property
    def dead_letter(self) -> str:
        """Name of the queue that ``reject`` moves it to."""
        return self._context.dead_letter

    @property
    def attempt(self) -> int:
        """Number of this delivery, without those given back before a handler began to work on them.

        The retry policy counts these; ``rc`` counts all.
        """
        return self.rc - self._excused

    @property
    def strikes(self) -> int:
        """Deliveries in a row before this one that vanished with their holders."""
        return self._strikes

    @property
    def suspect(self) -> bool:
        """True if the delivery before this one vanished with its holder.

        The message may be what kills processes, so it is delivered alone. This process should hold
        no other message while it works on this one; a ``Worker`` does so.
        """
        return self._strikes > 0

    @property
    def receipt(self) -> Receipt:
        """The proof of this delivery."""
        return self.lease.receipt

    @property
    def lease_lost(self) -> bool:
        """True once the lease is lost, or could not be renewed in time."""
        return self.lease.lost

    @property
    def visible_at(self) -> datetime:
        """When the lease ends unless it is renewed, by this process's clock; an aware datetime."""
        left_s = self.lease.expires_at - asyncio.get_running_loop().time()
        return datetime.now(UTC) + timedelta(seconds=left_s)

    async def ack(self) -> None:
        """Delete the message: it is done."""
        await self._settle(messages.ack(self.lease.keys, self.lease.receipt), "acked")

    async def extend(self, vt: Seconds) -> None:
        """Hold the message for *vt* from now on.

        Args:
            vt: seconds from now until the lease ends.
        """
        vt_ms = argument_checks.seconds_to_ms("vt", vt)
        transport, keeper, lease = self._context.transport, self._context.keeper, self.lease
        await _check(transport)
        # Counted from before the request: never later than the end on the server.
        started = asyncio.get_running_loop().time()
        operation = self._visibility(vt_ms, "" if vt_ms else "r")
        # It stays in the lease until it is answered, also if the caller is cancelled: a release
        # has to follow it, or it would hide the message again.
        lease.renewing = extending = transport.submit(operation, after=lease.renewing)
        keeper.pause(lease)

        def answered(_: object) -> None:
            if lease.renewing is extending:
                lease.renewing = None
            if not extending.cancelled() and extending.exception() is None:
                lease.vt = vt_ms / 1000
                lease.expires_at = started + lease.vt
            keeper.resume(lease)

        extending.add_done_callback(answered)
        await asyncio.wait([extending])
        extending.result()

    async def release(self, delay: Seconds = 0, *, unseen: bool = False) -> None:
        """Give the message back; it is visible again after *delay*.

        With *unseen* no work on it has begun, and the delivery does not count for
        ``max_receives``.

        Args:
            delay: seconds until it is visible again.
            unseen: True if no handler has begun to work on it: the delivery then does not count for
                ``max_receives``.
        """
        how: How = "u" if unseen else "r"
        await self._settle(
            self._visibility(argument_checks.seconds_to_ms("delay", delay), how), "released"
        )

    async def reject(self, reason: str | None = None) -> None:
        """Move the message to the dead-letter queue, with body, ``rc`` and ``fr``.

        The dead-letter queue is an ordinary queue; it is created if it does not exist. The reason
        can be read there with ``Queue.reason(id)`` for 14 days, its first 1000 characters.

        Args:
            reason: why, kept for 14 days beside the dead letter; ``None`` for no reason.
        """
        context = self._context
        target = self._target(context.dead_letter)
        await self._settle(
            messages.reject(
                context.keys,
                self.receipt,
                target,
                reason=reason or "",
                channel=context.channel(target),
            ),
            "rejected",
        )
        context.letters.report(DeadLetter(self, self.queue, target.queue, reason or ""))

    async def forward(self, queue: str | Named, *, delay: Seconds | None = None) -> None:
        """Move the message to another queue, where it starts again with no receives.

        Args:
            queue: the queue to move to, by name or handle; it must exist.
            delay: seconds until it is visible there; by default that queue's ``delay``.
        """
        context = self._context
        target = self._target(queue if isinstance(queue, str) else queue.name)
        await self._settle(
            messages.forward(
                context.keys,
                self.receipt,
                target,
                delay_ms=argument_checks.optional_ms("delay", delay),
                channel=context.channel(target),
            ),
            "forwarded",
        )

    def release_nowait(
        self, delay: Seconds = 0, *, unseen: bool = False, vanished: bool = False
    ) -> asyncio.Future[Any]:
        """Start to release the message; the call goes on if the caller is cancelled.

        It also goes on while the client is being closed. The future need not be awaited. *unseen*
        is that of ``release``. *vanished* is for a holder that died: the delivery counts, and the
        next one is a suspect.

        Args:
            delay: seconds until it is visible again.
            unseen: True if no handler has begun to work on it: the delivery then does not count for
                ``max_receives``.
            vanished: True if the holder died: the message becomes a suspect.
        """
        transport = self._context.transport
        transport.check()
        how: How = "u" if unseen else "" if vanished else "r"
        operation = self._visibility(argument_checks.seconds_to_ms("delay", delay), how)
        self._context.keeper.drop(self.lease)
        return transport.submit(operation, after=self.lease.renewing, closing=True)

    def hold(self, on_lost: Callable[[], object] | None = None) -> None:
        """Renew the lease until the message is settled, or ``let_go`` is called.

        For a program that works on messages outside of a block. *on_lost* is called if the lease is
        lost, or cannot be renewed in time.

        Args:
            on_lost: called when the lease is lost or cannot be renewed in time.
        """
        self._context.transport.check()
        self.lease.on_lost = on_lost
        keeper = self._context.keeper
        if not keeper.take_over(self.lease):
            keeper.keep(self.lease)

    def let_go(self) -> None:
        """Stop renewing the lease: the message is visible again when it ends."""
        self._context.keeper.drop(self.lease)

    @property
    def settled(self) -> bool:
        """True if it was acked, released, rejected or forwarded."""
        return self.outcome is not None

    async def settle(self, error: BaseException | None = None) -> None:
        """Settle the message by the outcome of its handling, as the end of a block does.

        Without an *error* it is acked. With one, the queue's retry policy decides when it is
        visible again, or moves it to the dead letters. Without a policy, or if the handling was
        cancelled, it is visible again at once.

        Args:
            error: what the handler raised; ``None`` acks.
        """
        retry = self._context.retry
        if error is None:
            await self.ack()
        elif retry is None or not isinstance(error, Exception):
            await self.release()
        elif retry.gives_up(self.attempt):
            await self.reject(f"{type(error).__name__}: {error}"[:_REASON_LENGTH])
        else:
            await self.release(retry.delay(self.attempt))

    async def __aenter__(self) -> Self:
        await _check(self._context.transport)
        self.hold()
        if (recorder := self._context.recorder) is not None:
            self._block = recorder.processing(self.lease.keys.namespace.name, self.queue, [self])
            self._block.__enter__()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Settle the message by the outcome of the block, unless the block has settled it.

        Without an error it is acked. After an error the retry policy of its queue handle decides:
        a delay, or the dead-letter queue after the last delivery. A handle without a policy
        (``rsmq.queue(name)`` without ``retry``) makes the message visible again at once, without a
        limit. After a cancellation it is visible again at once, too. The error is raised on.
        """
        if self._context.recorder is not None:
            self._block.__exit__(_type, error, _trace)
        if self.settled:
            return
        if isinstance(error, GeneratorExit):
            # The coroutine is closed, perhaps by the garbage collector: it cannot await, and the
            # thread may be any.
            self._context.transport.call_soon(self._abandon)
            return
        try:
            if error is not None:
                await self._fail(error)
            elif (acks := self._context.background_acks) is not None:
                await acks.ack(self)
            else:
                await self.ack()
        finally:
            # After an error, too: the block no longer works on the message.
            if not self.settled:
                self.let_go()

    def _abandon(self) -> None:
        if not self.settled:
            give_back([self])

    async def _fail(self, error: BaseException) -> None:
        # Goes on if this task is cancelled.
        with anyio.CancelScope(shield=True):
            try:
                await self.settle(error)
            except ClientClosed:
                pass  # closing the client has given the message back
            except RSMQError as failure:
                logger.warning(
                    "message %s of queue %r was not given back: %s", self.id, self.queue, failure,
                    extra={
                        "queue": self.queue, "message_id": self.id, "rc": self.rc,
                        "error": str(failure),
                    },
                )  # fmt: skip

    def _decoder(self) -> Codec:
        # Not stored with every delivery: most bodies are read in another way.
        return getattr(self, "_codec", None) or self._context.codec

    def _visibility(self, vt_ms: int, how: How) -> Operation[bool]:
        keys = self.lease.keys
        return messages.visibility(
            keys, self.id, vt_ms=vt_ms, receipt=self.receipt, channel=keys.wake, how=how
        )

    def _target(self, name: str) -> QueueKeys:
        target = self._context.sibling(name)
        if target.queue == self.queue:
            raise InvalidValue(f"message {self.id} is in queue {name!r} already; use release()")
        return target

    async def _settle(self, operation: Operation[Any], outcome: Outcome) -> None:
        """Run *operation*, which ends the lease, even if the caller is cancelled meanwhile.

        A change of visibility waits for a renewal in flight: one that came after it would hide the
        message again. An operation that removes the message need not wait.
        """
        transport, keeper, lease = self._context.transport, self._context.keeper, self.lease
        await _check(transport)
        keeper.pause(lease)
        after = lease.renewing if operation.kind.changes_visibility else None
        try:
            await transport.see_through(operation, after=after)
            self.outcome = outcome
            keeper.drop(lease)
        except RSMQError:
            raise  # its holder still has it, and may try again
        except BaseException:
            keeper.drop(lease)  # the operation goes on without the caller
            raise
        finally:
            keeper.resume(lease)


async def _check(transport: Transport) -> None:
    """Raise for a caller in another event loop; start a client that was never opened."""
    transport.check()
    if not transport.is_started:
        await transport.start()


def from_reply(received: Received, contexts: Mapping[str, QueueContext]) -> list[Delivery]:
    """Return the deliveries of a receive; *contexts* are by queue name."""
    # Counted from before the request: never later than the end on the server.
    return [
        Delivery(leased, contexts[leased.keys.queue], received.asked_at + leased.vt_ms / 1000)
        for leased in received.messages
    ]


def from_receipt(receipt: Receipt, context: QueueContext, vt_ms: int) -> Delivery:
    """Return the delivery that *receipt* proves; its body is not known."""
    id, rc, fr, proof = receipt
    leased = Leased(id, b"", rc, fr, context.keys, vt_ms, proof=proof)
    return Delivery(leased, context, asyncio.get_running_loop().time() + vt_ms / 1000)


def check_deliveries(keys: QueueKeys, deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return *deliveries* for ``ack_many`` if all of them are deliveries of the queue of *keys*."""
    batch = list(deliveries)
    for delivery in batch:
        own = delivery.lease.keys if isinstance(delivery, Delivery) else None
        if own is not keys and own != keys:
            raise InvalidValue(f"ack_many of queue {keys.queue!r} takes deliveries of that queue")
    return batch


async def ack_many(context: QueueContext, batch: Sequence[Delivery]) -> list[Delivery]:
    """Ack deliveries of one queue by one call; return those whose leases were not lost."""
    keeper, transport = context.keeper, context.transport
    await _check(transport)
    leases = [delivery.lease for delivery in batch]
    operation = messages.ack_many(context.keys, [lease.receipt for lease in leases])
    keeper.pause(*leases)
    try:
        outcomes = await transport.see_through(operation)
        keeper.drop(*leases)
    except RSMQError:
        raise  # their holder still has them, and may try again
    except BaseException:
        keeper.drop(*leases)  # the operation goes on without the caller
        raise
    finally:
        keeper.resume(*leases)
    acked = [delivery for delivery, lost in zip(batch, outcomes, strict=True) if lost is None]
    for delivery in acked:
        delivery.outcome = "acked"
    return acked


async def recover_page(
    context: QueueContext,
    count: int,
    idle: Seconds,
    *,
    vt: Seconds | None,
    after: RecoverPlace | None,
) -> tuple[list[Delivery], RecoverPlace]:
    """Take over messages by one atomic call; return them, and where the next page begins."""
    operation = recovery.recover(
        context.receive_spec,
        argument_checks.check_count(count),
        idle_ms=argument_checks.seconds_to_ms("idle", idle),
        vt_ms=argument_checks.optional_ms("vt", vt),
        after=None if after is None else Recovered(_NOTHING, after.at, after.started_ms),
    )
    page = await context.transport.run(operation)
    found = from_reply(page.received, {context.keys.queue: context})
    return found, RecoverPlace(page.next_at, page.started_ms)


async def recover(
    context: QueueContext, count: int, idle: Seconds, vt: Seconds | None
) -> list[Delivery]:
    """Take over up to *count* messages; cancelled, what was taken is made visible again."""
    found: list[Delivery] = []
    place: RecoverPlace | None = None
    try:
        while True:
            left = count - len(found)
            page, place = await recover_page(context, left, idle, vt=vt, after=place)
            found += page
            if place.at is None or len(found) >= count:
                return found
    except BaseException:
        for delivery in found:
            delivery.release_nowait(unseen=True)
        raise
