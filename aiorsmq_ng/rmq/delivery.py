"""A delivery of rmq: a payload that this connection has taken, and its verbs."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Any, Literal, Self

import anyio

from .._protocol.operation import Operation
from .._protocol.operations.rmq import messages
from .._protocol.rmq_keys import RmqKeys
from .._protocol.rmq_payload import Payload, canonical
from .._runtime.background_acks import BackgroundAcks
from ..codec import Codec
from ..errors import ClientClosed, InvalidValue, LeaseLost, RSMQError
from ..models import Message
from .connection import Held

logger = logging.getLogger("aiorsmq_ng.rmq")

#: How a delivery was settled.
RmqOutcome = Literal["acked", "rejected", "pushed", "released"]
_LOST = (
    "it is not in the unacked list of this connection: a cleaner has moved it, or it was settled"
)


class RmqLease:
    """What this process knows of its right to a delivery: it holds while the heartbeat does."""

    __slots__ = ("lost", "on_lost", "queue")

    #: No time of its own: it is not renewed one by one.
    expires_at, vt, over_s = math.inf, 0.0, 0.0

    def __init__(self, queue: str) -> None:
        self.queue = queue
        #: True once the connection is lost, or a settlement found the payload gone.
        self.lost = False
        #: Called when the connection is lost.
        self.on_lost: Callable[[], object] | None = None

    def lose(self) -> None:
        """Mark it as lost, and call its holder's callback; an error of that is logged."""
        if self.lost:
            return
        self.lost = True
        if self.on_lost is not None:
            try:
                self.on_lost()
            except Exception:
                logger.exception("the callback for a lost delivery of %r failed", self.queue)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the deliveries of one consumer and one connection have in common."""

    held: Held
    codec: Codec
    #: The queue that they are pushed to.
    push: RmqKeys | None
    #: Called for each that is settled, or lost.
    on_settled: Callable[[], object]
    #: Return what acks blocks that have ended; ``None`` if each waits for its own ack.
    acks: Callable[[], BackgroundAcks[RmqDelivery] | None]
    #: Begin to give deliveries back in order, with what their consumer has taken after them.
    give_back: Callable[[Sequence[RmqDelivery]], asyncio.Future[None]]


class RmqDelivery(Message):
    """A payload in the unacked list of this connection.

    Every verb is one atomic script: if the payload is no longer in the list, nothing changes and
    ``LeaseLost`` is raised. rmq knows payloads by their bytes alone, so of two equal ones it does
    not matter which is settled. ``async with delivery`` acks at the end; if the block raises, the
    delivery is pushed, which without a push queue rejects it; if it is cancelled, it is given back.
    """

    __slots__ = ("_origin", "headers", "lease", "outcome", "payload")

    #: rmq does not know how often a payload was taken.
    suspect = False
    strikes = 0

    def __init__(self, origin: Origin, payload: bytes, parts: Payload) -> None:
        held = origin.held
        number = next(held.connection.numbers)
        super().__init__(f"{held.connection.name}#{number}", parts.body, 0, 0)
        #: Headers by name, as Go writes it; a list of values each. RSMQ's messages have one text.
        self.headers: dict[str, list[str]] = (  # pyright: ignore[reportIncompatibleMethodOverride]
            parts.headers  # type: ignore[assignment]
        )
        #: The bytes in Redis: headers and body.
        self.payload = payload
        #: What this client knows of its right to the payload: ``lost``.
        self.lease = RmqLease(held.keys.queue)
        #: How its holder settled it; ``None`` before that.
        self.outcome: RmqOutcome | None = None
        self._codec = origin.codec
        self._origin = origin
        held.deliveries.add(self)

    @property
    def queue(self) -> str:
        """Name of the queue it was taken from."""
        return self._origin.held.keys.queue

    @property
    def settled(self) -> bool:
        """True if it was acked, rejected, pushed or released."""
        return self.outcome is not None

    @property
    def lease_lost(self) -> bool:
        """True once the connection has lost it: a cleaner may have given it to another consumer."""
        return self.lease.lost

    def header(self, name: str) -> str | None:
        """Return the first value of a header, in any case of its name; ``None`` if it is missing.

        Args:
            name: name of the header; ``traceparent`` finds ``Traceparent``.
        """
        values = self.headers.get(canonical(name)) or self.headers.get(name)
        return values[0] if values else None

    async def ack(self) -> None:
        """Remove the payload: it is done."""
        await settle([self], "acked")

    async def reject(self, reason: str | None = None) -> None:
        """Move the payload to the rejected list, where it waits for ``return_rejected``.

        Args:
            reason: for the log only: rmq has no place for it.
        """
        if reason:
            logger.warning("delivery %s of queue %r is rejected: %s", self.id, self.queue, reason)
        await settle([self], "rejected")

    async def push(self) -> None:
        """Move the payload to the push queue of its queue; without one, reject it.

        In a cluster, a push queue on another node is reached in two steps: a crash between them
        leaves the payload in both queues.
        """
        await settle([self], "pushed")

    async def release(self) -> None:
        """Give the payload back to the front of its queue: any consumer takes it next."""
        await settle([self], "released")

    async def settle(self, error: BaseException | None = None) -> None:
        """Settle it by the outcome of its handling, as the end of a block does.

        Without an *error* it is acked. After an exception it is pushed, which without a push queue
        rejects it. After a cancellation it is given back.

        Args:
            error: what the handler raised; ``None`` acks.
        """
        if error is None:
            await self.ack()
        elif isinstance(error, Exception):
            await self.push()
        else:
            await settle_block([self], error)

    def release_nowait(self, *, unseen: bool = True) -> asyncio.Future[Any]:
        """Start to give it back; the call goes on if the caller is cancelled.

        Args:
            unseen: no difference: rmq does not count deliveries.
        """
        return self._origin.give_back([self])

    def let_go(self) -> None:
        """Stop working on it; it stays in the unacked list, and is given back at the end."""
        self.lease.on_lost = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Settle it by the outcome of the block, unless the block has settled it.

        The ack of a consumer that settles in the background is not waited for.
        """
        if error is None and self.outcome is None and (acks := self._origin.acks()) is not None:
            await acks.ack(self)
        else:
            await settle_block([self], error)


#: Return what a delivery is part of: the one way to it for other functions of this package.
held_of: Callable[[RmqDelivery], Held] = attrgetter("_origin.held")
_origin_of: Callable[[RmqDelivery], Origin] = attrgetter("_origin")


def number_of(delivery: RmqDelivery) -> int:
    """Return its place in the order of taking, among those of its connection."""
    return int(delivery.id.rpartition("#")[2])


async def settle(batch: Sequence[RmqDelivery], outcome: RmqOutcome) -> list[LeaseLost]:
    """Settle deliveries of one connection and queue by one call; ``LeaseLost`` if it is only one.

    The call goes on if the caller is cancelled. Returns the errors of those that were lost.
    """
    origin = _origin_of(batch[0])
    held, push = origin.held, origin.push
    transport = held.connection.transport
    if outcome == "pushed" and push is None:
        outcome = "rejected"
    for delivery in batch:
        if delivery.outcome is not None:
            raise InvalidValue(f"delivery {delivery.id} is {delivery.outcome} already")
    transport.check()
    settling: asyncio.Future[list[bool]]
    if outcome == "pushed" and push is not None and held.keys.layout.cluster:
        payloads = [delivery.payload for delivery in batch]
        settling = asyncio.ensure_future(_push_across(held, payloads, push))
    else:
        settling = transport.see_through(_operation(batch, outcome))
    try:
        done = await asyncio.shield(settling)
    except asyncio.CancelledError:
        # The caller will not settle them again.
        for delivery in batch:
            delivery.outcome = outcome
        settling.add_done_callback(partial(_note_late, batch, outcome))
        raise
    return _note(batch, outcome, done)


async def settle_block(batch: Sequence[RmqDelivery], error: BaseException | None) -> None:
    """Settle by the outcome of a block what the block has not settled."""
    open_ = [delivery for delivery in batch if not delivery.settled]
    if not open_:
        return
    if isinstance(error, GeneratorExit):
        # The coroutine is closed, perhaps by the garbage collector: it cannot await.
        held_of(open_[0]).connection.transport.call_soon(
            lambda: _origin_of(open_[0]).give_back(open_)
        )
    elif error is None:
        await settle(open_, "acked")
    else:
        # Goes on if this task is cancelled.
        with anyio.CancelScope(shield=True):
            try:
                if isinstance(error, Exception):
                    await settle(open_, "pushed")
                else:
                    await asyncio.wait([_origin_of(open_[0]).give_back(open_)])
            except ClientClosed:
                pass  # closing the client has given it back
            except RSMQError as failure:
                logger.warning("%d deliveries were not settled: %s", len(open_), failure)


def release_nowait(batch: Sequence[RmqDelivery]) -> list[asyncio.Future[Any]]:
    """Start to give deliveries back, by one call for each connection and queue.

    The first of a queue is taken next. A closed client cannot; closing it has given them back.
    """
    calls: dict[int, list[RmqDelivery]] = {}
    for delivery in batch:
        calls.setdefault(id(held_of(delivery)), []).append(delivery)
    futures: list[asyncio.Future[Any]] = []
    for group in calls.values():
        transport = held_of(group[0]).connection.transport
        future = transport.submit(_operation(group, "released"), closing=True)
        for delivery in group:
            delivery.outcome = "released"

        # Also if it failed: what is in the unacked list and not known here is found again.
        future.add_done_callback(partial(_forget, group))
        futures.append(future)
    return futures


def _operation(batch: Sequence[RmqDelivery], outcome: RmqOutcome) -> Operation[list[bool]]:
    origin = _origin_of(batch[0])
    held, push = origin.held, origin.push
    keys, name = held.keys, held.connection.name
    payloads = [delivery.payload for delivery in batch]
    if outcome == "acked":
        return messages.ack(keys, name, payloads)
    if outcome == "released":
        return messages.give_back(keys, name, payloads)
    target = push.ready if outcome == "pushed" and push is not None else keys.rejected
    return messages.move(keys, name, payloads, target)


async def _push_across(held: Held, payloads: Sequence[bytes], push: RmqKeys) -> list[bool]:
    """Push payloads to a queue that may be on another node: stored there first, then removed.

    Only what is still in the unacked list is stored. A crash between the steps leaves it in both
    queues, as Go's own push does.
    """
    transport, name = held.connection.transport, held.connection.name
    found = await transport.run(messages.unacked(held.keys, name, payloads=True))
    there = list(found.payloads)
    mine = []
    for payload in payloads:
        if payload in there:
            there.remove(payload)
            mine.append(payload)
    if mine:
        await transport.see_through(messages.publish(push, mine))
    return await transport.see_through(messages.ack(held.keys, name, payloads))


def _note(
    batch: Sequence[RmqDelivery], outcome: RmqOutcome, done: Sequence[bool]
) -> list[LeaseLost]:
    lost = []
    _forget(batch)
    for delivery, was_there in zip(batch, done, strict=True):
        if was_there:
            delivery.outcome = outcome
        else:
            delivery.lease.lost = True
            lost.append(_lost(delivery))
    if lost and len(batch) == 1:
        raise lost[0]
    return lost


def _note_late(
    batch: Sequence[RmqDelivery], outcome: RmqOutcome, settling: asyncio.Future[list[bool]]
) -> None:
    """Note the outcome of a call whose caller was cancelled."""
    if not settling.cancelled() and settling.exception() is None:
        with suppress(LeaseLost):
            _note(batch, outcome, settling.result())
    else:
        # What is in the unacked list and not known here is found, and delivered again.
        _forget(batch)
        held_of(batch[0]).doubt()


def _lost(delivery: RmqDelivery) -> LeaseLost:
    return LeaseLost(delivery.queue, delivery.id, gone=True, cause=_LOST)


def _forget(batch: Sequence[RmqDelivery], _: object = None) -> None:
    """Count deliveries out: they are settled, or lost."""
    for delivery in batch:
        origin = _origin_of(delivery)
        if delivery in origin.held.deliveries:
            origin.held.deliveries.discard(delivery)
            origin.held.settled([delivery.payload])
            origin.on_settled()


class RmqAcks:
    """How deliveries of rmq are acked in the background: they stay in hand until the reply."""

    def begin(self, message: RmqDelivery) -> None:
        """Call no holder any more if the connection is lost: the work is done."""
        message.lease.on_lost = None

    def lane(self, message: RmqDelivery) -> Hashable:
        """Return the unacked list that it is in."""
        return id(held_of(message))

    def operation(self, batch: Sequence[RmqDelivery]) -> Operation[list[bool]]:
        """Return the operation that acks deliveries of one unacked list."""
        return _operation(batch, "acked")

    def end(self, batch: Sequence[RmqDelivery], acked: Sequence[bool]) -> None:
        """Count them out. One that is in the list after all is found there, and taken again."""
        _forget(batch)
        for delivery, is_acked in zip(batch, acked, strict=True):
            if not is_acked:
                delivery.lease.lost = True
                held_of(delivery).doubt()

    def losses(self, batch: Sequence[RmqDelivery], result: list[bool]) -> list[LeaseLost | None]:
        """Return the errors of deliveries that a cleaner has moved."""
        pairs = zip(batch, result, strict=True)
        return [None if is_acked else _lost(delivery) for delivery, is_acked in pairs]
