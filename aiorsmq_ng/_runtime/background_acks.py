"""Background acks: blocks of a consumer, and handlers, end without waiting for their acks.

Theory of operation
-------------------

Rule 1: the end of a block, or of a handler, hands its message over. The work is done by then, so a
crash before the ack reaches the server means one more delivery, never a lost message.

Rule 2: messages handed over in one tick of the event loop are acked by one call.

Rule 3: at most ``WINDOW`` messages are handed over and not answered. The caller that fills the
window waits until half of them are answered.

Rule 4: the message keeps its owner until its ack is answered (``AckRules``): a lease stays
registered, and paused; a delivery of rmq stays in hand. A client that is closed waits for the ack.

Rule 5: an ack that fails is logged, and its error is kept: a consumer raises it in its next step,
or in ``aclose``. The message is delivered again once its lease ends, or it belongs to another
holder.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from .._protocol.operation import Operation
from .._protocol.operations import messages
from .._transport.transport import Transport
from ..errors import ClientClosed, InvalidValue, LeaseLost, RSMQError
from .lease_renewal import Lease, LeaseKeeper

logger = logging.getLogger("aiorsmq_ng.delivery")

#: Messages that are handed over and not answered, at most.
WINDOW = 1000
#: Messages of one call.
MAX_CALL = 100
#: Errors that are kept for the consumer's next steps; further ones are only logged.
MAX_ERRORS = 100


def is_background(settle: str) -> bool:
    """Return True if *settle* asks for acks in the background; ``InvalidValue`` for other words."""
    if settle not in ("await", "background"):
        raise InvalidValue(f"settle must be await or background, not {settle!r}")
    return settle == "background"


class Settleable(Protocol):
    """What acking in the background needs of a message: how its holder settled it."""

    outcome: Any


M = TypeVar("M", bound=Settleable)
M_contra = TypeVar("M_contra", bound=Settleable, contravariant=True)


class AckRules(Protocol[M_contra]):
    """What acks of one kind of message have of their own."""

    def begin(self, message: M_contra) -> None:
        """Note that *message* is handed over."""

    def lane(self, message: M_contra) -> Hashable:
        """Return what the messages of one call have in common."""

    def operation(self, batch: Sequence[M_contra]) -> Operation[Any]:
        """Return the operation that acks *batch*, of one lane."""
        ...

    def losses(self, batch: Sequence[M_contra], result: Any) -> list[LeaseLost | None]:
        """Return for each of *batch* why the operation has not acked it; ``None`` if it has."""
        ...

    def end(self, batch: Sequence[M_contra], acked: Sequence[bool]) -> None:
        """Note the outcome of a call: whether each message of *batch* is acked."""


class BackgroundAcks(Generic[M]):
    """Acks messages without keeping those waiting that worked on them.

    *on_answered* is called with messages, and with True for each that is acked by now.
    """

    def __init__(
        self,
        transport: Transport,
        rules: AckRules[M],
        on_answered: Callable[[Sequence[M], Sequence[bool]], object] = lambda *_: None,
    ) -> None:
        self._transport = transport
        self._rules = rules
        self._on_answered = on_answered
        self._handed_over: list[M] = []
        #: Messages handed over and not answered, those of calls in flight included.
        self._open = 0
        self._answered = asyncio.Event()
        #: Of acks that failed, the oldest first; those that are raised are removed.
        self._errors: deque[RSMQError] = deque()

    async def ack(self, message: M) -> None:
        """Hand *message* over; wait for room if that fills the window.

        A cancellation of the wait does not take the message back.
        """
        self._transport.check()
        if not self._handed_over:
            # Not at once: further blocks may end in this tick.
            asyncio.get_running_loop().call_soon(self.send)
        self._rules.begin(message)
        message.outcome = "acked"
        self._handed_over.append(message)
        self._open += 1
        if len(self._handed_over) >= MAX_CALL:
            self.send()
        if self._open >= WINDOW:
            await self._until_open_at_most(WINDOW // 2)

    def send(self) -> None:
        """Send the acks of all messages handed over so far.

        They may be those of several callers, so the context is none of theirs, but an empty one.
        """
        Context().run(self._send)

    def _send(self) -> None:
        handed_over, self._handed_over = self._handed_over, []
        lane_of = self._rules.lane
        lanes: dict[Hashable, list[M]] = {}
        for message in handed_over:
            lanes.setdefault(lane_of(message), []).append(message)
        for batch in lanes.values():
            try:
                acking = self._transport.see_through(self._rules.operation(batch))
            except ClientClosed as error:
                self._note_failure(batch, error)
            else:
                acking.add_done_callback(partial(self._note_reply, batch))

    async def drain(self) -> None:
        """Send all acks and wait for their replies."""
        self.send()
        await self._until_open_at_most(0)

    def raise_error(self) -> None:
        """Raise the oldest error that was not raised yet, if there is one."""
        if self._errors:
            raise self._errors.popleft()

    def raise_last(self) -> None:
        """Raise the oldest error that was not raised yet, with a note about the others."""
        errors = list(self._errors)
        self._errors.clear()
        if errors:
            if others := errors[1:]:
                errors[0].add_note(f"{len(others)} more: {'; '.join(map(str, others[:9]))}")
            raise errors[0]

    async def _until_open_at_most(self, count: int) -> None:
        while self._open > count:
            self._answered.clear()
            await self._answered.wait()

    def _note_reply(self, batch: list[M], acking: asyncio.Future[Any]) -> None:
        if acking.cancelled():
            self._note_failure(batch, ClientClosed("the client was closed"))
            return
        error = acking.exception()
        if isinstance(error, RSMQError):
            self._note_failure(batch, error)
            return
        losses = self._rules.losses(batch, acking.result())
        self._note(batch, [lost is None for lost in losses])
        for lost in losses:
            if lost is not None:
                logger.warning("%s", lost)
                self._keep(lost)

    def _note_failure(self, batch: list[M], error: RSMQError) -> None:
        self._note(batch, [False] * len(batch))
        logger.warning(
            "%d messages are not acked: %s", len(batch), error,
            extra={"count": len(batch), "error": str(error)},
        )  # fmt: skip
        self._keep(error)

    def _note(self, batch: list[M], acked: list[bool]) -> None:
        self._rules.end(batch, acked)
        for message, is_acked in zip(batch, acked, strict=True):
            if not is_acked:
                message.outcome = None
        self._open -= len(batch)
        self._answered.set()
        self._on_answered(batch, acked)

    def _keep(self, error: RSMQError) -> None:
        if len(self._errors) < MAX_ERRORS:
            self._errors.append(error)


class LeasedMessage(Settleable, Protocol):
    """A message that is held by a lease."""

    lease: Lease


class LeaseAcks:
    """How messages are acked that are held by leases."""

    def __init__(self, keeper: LeaseKeeper) -> None:
        self._keeper = keeper

    def begin(self, message: LeasedMessage) -> None:
        """Send no renewals of its lease until the ack is answered."""
        self._keeper.pause(message.lease)

    def lane(self, message: LeasedMessage) -> Hashable:
        """Return its queue: that of a subscription may change while it is consumed."""
        return message.lease.keys

    def operation(self, batch: Sequence[LeasedMessage]) -> Operation[list[LeaseLost | None]]:
        """Return the operation that acks messages of one queue."""
        return messages.ack_many(batch[0].lease.keys, [message.lease.receipt for message in batch])

    def losses(
        self, batch: Sequence[LeasedMessage], result: list[LeaseLost | None]
    ) -> list[LeaseLost | None]:
        """Return the result of the operation: it has the errors."""
        return result

    def end(self, batch: Sequence[LeasedMessage], acked: Sequence[bool]) -> None:
        """Drop all leases."""
        both = list(zip(batch, acked, strict=True))
        self._keeper.drop(*[message.lease for message, is_acked in both if is_acked])
        # A client that is being closed gives those back that are still registered.
        self._keeper.resume(*[message.lease for message in batch])
        self._keeper.drop(*[message.lease for message, is_acked in both if not is_acked])
