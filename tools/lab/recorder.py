"""A queue whose calls are recorded in a history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from aiorsmq_ng._protocol.argument_checks import Seconds
from aiorsmq_ng.delivery import Delivery
from aiorsmq_ng.errors import DurabilityUnmet, LeaseLost, RSMQError, Unavailable
from aiorsmq_ng.models import Message
from aiorsmq_ng.queue import Queue

from .history import History, How


class RecordedQueue:
    """Calls a queue on behalf of *holder* and records what came of it.

    Bodies are their own keys. An error of the library is recorded and ends the call with ``None``
    or ``False``; another exception is recorded as escaped, and raised. A cancellation is recorded
    as an unknown outcome, and raised.
    """

    def __init__(self, queue: Queue, history: History, holder: str = "") -> None:
        self.queue = queue
        self.history = history
        self.holder = holder

    async def send(self, key: str, *, delay: Seconds | None = None) -> str | None:
        """Send *key* as a body; return the id if the send was confirmed."""
        history = self.history
        history.sending(key)
        try:
            id = await self.queue.send(key, delay=delay)
        except RSMQError as error:
            stored_perhaps = isinstance(error, DurabilityUnmet) or (
                isinstance(error, Unavailable) and error.executed is None
            )
            (history.unknown if stored_perhaps else history.failed)(key, type(error).__name__)
            return None
        except BaseException as error:
            history.unknown(key, type(error).__name__)
            self._escaped(error)
            raise
        history.acked(key, id)
        return id

    async def receive(self, *, vt: Seconds | None = None, wait: Seconds = 0) -> Delivery | None:
        """Receive a message; ``None`` if there is none or if the call failed."""
        history = self.history
        begun = history.clock()
        call = history.receiving(self.holder)
        try:
            delivery = await self.queue.receive(vt=vt, wait=wait)
        except RSMQError as error:
            self._missed(call, error)
            return None
        except BaseException as error:
            history.unclaimed(call, type(error).__name__)
            self._escaped(error)
            raise
        if delivery is None:
            history.nothing(call, waited=bool(wait))
            return None
        history.received(
            call,
            delivery.id,
            delivery.rc,
            delivery.body.decode(errors="replace"),
            holder=self.holder,
            begun=begun,
            vt=delivery.lease.vt,
        )
        return delivery

    async def pop(self) -> Message | None:
        """Pop a message; ``None`` if there is none or if the call failed."""
        history = self.history
        call = history.popping(self.holder)
        try:
            message = await self.queue.pop()
        except RSMQError as error:
            self._missed(call, error)
            return None
        except BaseException as error:
            history.unclaimed(call, type(error).__name__)
            self._escaped(error)
            raise
        if message is None:
            history.nothing(call)
        else:
            history.popped(call, message.id, message.body.decode(errors="replace"))
        return message

    async def ack(self, delivery: Delivery) -> bool:
        """Ack. Return True if that was confirmed."""
        return await self._settle(delivery, "ack", delivery.ack())

    async def release(self, delivery: Delivery, delay: Seconds = 0) -> bool:
        """Release. Return True if that was confirmed."""
        return await self._settle(delivery, "release", delivery.release(delay))

    async def reject(self, delivery: Delivery, reason: str | None = None) -> bool:
        """Reject. Return True if that was confirmed."""
        return await self._settle(delivery, "reject", delivery.reject(reason))

    async def extend(self, delivery: Delivery, vt: Seconds) -> bool:
        """Extend the lease. Return True if that was confirmed."""
        begun = self.history.clock()
        try:
            await delivery.extend(vt)
        except RSMQError:
            return False
        except BaseException as error:
            self._escaped(error)
            raise
        vt_s = delivery.lease.vt
        self.history.extended(delivery.id, delivery.rc, begun=begun, vt=vt_s)
        return True

    async def _settle(self, delivery: Delivery, how: How, call: Awaitable[None]) -> bool:
        history, id, rc = self.history, delivery.id, delivery.rc
        begun = history.clock()
        history.settling(id, rc, how)
        try:
            await call
        except LeaseLost:
            history.lost(id, rc, how, begun=begun)
            return False
        except RSMQError:
            return False
        except BaseException as error:
            self._escaped(error)
            raise
        history.settled(id, rc, how, begun=begun)
        return True

    def _missed(self, call: str, error: RSMQError) -> None:
        if isinstance(error, Unavailable) and error.executed is None:
            self.history.unclaimed(call, type(error).__name__)
        else:
            self.history.nothing(call)

    def _escaped(self, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            self.history.escaped(error)
