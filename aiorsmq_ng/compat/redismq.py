"""RedisMQ's verbs on RSMQ queues: push, pop, ack, recover, inspect."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, NamedTuple, overload

from .._common.durations import epoch_ms
from ..client import RSMQ
from ..delivery import Delivery
from ..errors import InvalidValue, LeaseLost, QueueNotFound
from ..queue import Queue

#: A duration in seconds, or as a timedelta.
Seconds = int | float | timedelta

#: The longest wait of one receive; a longer pop waits several times.
_LONGEST_WAIT_S = 9_999_999
#: Limit of records of expired leases: messages popped here that were not acknowledged and are back
#: in the queue. About 300 bytes each.
_REMEMBERED = 100_000

#: A message: id, body.
Row = tuple[str, bytes]
#: A message out of one of several queues: key of the queue, id, body.
KeyedRow = tuple[str, str, bytes]
#: A delivered message: id, body, last delivery (epoch ms), ms since then, deliveries.
PendingRow = tuple[str, bytes, int, int, int]


class Counts(NamedTuple):
    """How many messages wait to be popped, and how many wait to be acknowledged."""

    undelivered: int
    delivered: int


class ReliableQueue:
    """A queue whose messages stay until they are acknowledged, with the verbs of RedisMQ.

    It is an ordinary RSMQ queue, which other clients may use at the same time. A popped message is
    under a lease of *vt*. (RedisMQ has none: choose one longer than the processing of any message.)
    When it ends, the message can be popped again as if it had been recovered. The queue must exist
    (``QueueNotFound``), unless *create* allows this object to create it.

    Args:
        rsmq: the client.
        key: name of the queue.
        vt: lease in seconds of what this object pops and recovers.
        create: create a missing queue with the first ``push``, or with a ``pop`` that blocks; until
            then it counts as empty.
    """

    def __init__(self, rsmq: RSMQ, key: str, *, vt: Seconds = 3600, create: bool = False) -> None:
        self.rsmq = rsmq
        #: The queue, with all its other verbs.
        self.queue: Queue = rsmq.queue(key)
        #: The lease of what is popped or recovered here, in seconds.
        self.vt = _seconds("vt", vt)
        #: True if a missing queue is created when needed.
        self.create = create
        #: What was popped or recovered here and is not acknowledged, by id, to extend or release
        #: it; without the bodies, which the caller has.
        self.held: dict[str, Delivery] = {}

    @property
    def key(self) -> str:
        """The queue's name."""
        return self.queue.name

    async def push(self, *bodies: object) -> list[str]:
        """Store messages in order, all or none, and return their ids. One round trip.

        Args:
            bodies: one or more bodies, each as for ``Queue.send``.
        """
        try:
            return list(await self.queue.send_many(bodies))
        except QueueNotFound as error:
            _check_may_create(self, error)
        await _create(self)
        return list(await self.queue.send_many(bodies))

    async def pop(self, count: int = 1, block: Seconds | None = None) -> list[Row]:
        """Deliver up to *count* messages: their ids and bodies.

        *block* is how long to wait for the first one; ``None`` does not wait, ``math.inf`` waits
        for ever. One round trip if there is something. Cancelled, nothing stays delivered.

        Args:
            count: how many messages at most.
            block: seconds to wait for the first message; ``None`` and 0 do not wait, ``math.inf``
                waits for ever.
        """
        return [(id, body) for _, id, body in await self.pop_any([self], count, block)]

    @staticmethod
    async def pop_any(
        queues: Sequence[ReliableQueue], count: int = 1, block: Seconds | None = None
    ) -> list[KeyedRow]:
        """Deliver up to *count* messages: all that the first queue has, then the second, and so on.

        Each comes with the key of its queue, whose ``ack`` takes it. The queues must be of one
        client; their longest *vt* holds for all. Otherwise as ``pop``.

        Args:
            queues: objects of one client, in the order in which they are served.
            count: how many messages at most.
            block: seconds to wait for the first message; ``None`` and 0 do not wait, ``math.inf``
                waits for ever.
        """
        by_key = {queue.key: queue for queue in queues}
        rsmq = _common_client(queues)
        vt_s = max(queue.vt for queue in queues)
        wait_s = 0 if block is None else _seconds("block", block)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        present = list(by_key)
        while present:
            try:
                found = await rsmq.receive_many(
                    [by_key[key].queue for key in present],
                    count,
                    vt=vt_s,
                    wait=min(wait_s, _LONGEST_WAIT_S),
                )
            except QueueNotFound as error:
                missing = by_key[error.queue]
                _check_may_create(missing, error)
                if wait_s > 0:
                    await _create(missing)
                else:
                    present.remove(missing.key)
            else:
                if found or loop.time() >= until:
                    return [(d.queue, *_take(by_key[d.queue].held, d)) for d in found]
            wait_s = max(0, until - loop.time())
        return []

    async def ack(self, *ids: str) -> list[str]:
        """Delete messages that are done; return the ids that were really acknowledged.

        What this instance popped or recovered is acknowledged by its receipt: an id that another
        consumer has popped or recovered since is missing from the result, and stays with that
        consumer. An id delivered elsewhere is acknowledged on behalf of its holder, as in RedisMQ.
        Ids of messages that are gone or were not delivered are missing. Ids of either kind share a
        round trip.

        Args:
            ids: ids of popped or recovered messages.
        """
        asked = list(dict.fromkeys(ids))
        held = [self.held[id] for id in asked if id in self.held]
        # First, because this call refuses invalid ids.
        done = set(
            await self.queue.delete_many(
                [id for id in asked if id not in self.held], only_leased=True
            )
        )
        outcomes = await asyncio.gather(*(d.ack() for d in held), return_exceptions=True)
        failures: list[BaseException] = []
        for delivery, outcome in zip(held, outcomes, strict=True):
            if outcome is None:
                done.add(delivery.id)
            elif not isinstance(outcome, LeaseLost):
                failures.append(outcome)
                continue
            elif not outcome.gone:
                # Kept, so that a second ack is not taken for one on behalf of the new holder.
                continue
            self.held.pop(delivery.id, None)
        if failures:
            raise failures[0]
        return [id for id in asked if id in done]

    async def recover(self, count: int, elapsed_ms: int) -> list[Row]:
        """Deliver up to *count* messages again that were delivered *elapsed_ms* ago or earlier.

        The one with the oldest delivery first, none twice. Their deliveries count one more, their
        last delivery is now, they go to the end of the delivered ones, and their former holder can
        no longer acknowledge them. Cancelled, what was taken can be popped at once.

        Args:
            count: how many messages at most.
            elapsed_ms: milliseconds since the last delivery, at least.
        """
        if isinstance(elapsed_ms, bool) or not isinstance(elapsed_ms, int):
            raise InvalidValue(f"elapsed_ms must be a whole number, not {elapsed_ms!r}")
        idle = timedelta(milliseconds=elapsed_ms)
        try:
            found = await self.queue.recover(count, idle, vt=self.vt)
        except QueueNotFound as error:
            _check_may_create(self, error)
            return []
        return [_take(self.held, delivery) for delivery in found]

    @overload
    async def inspect(
        self, start: int, count: int, pending: Literal[False] = False
    ) -> list[Row]: ...
    @overload
    async def inspect(self, start: int, count: int, pending: Literal[True]) -> list[PendingRow]: ...
    async def inspect(
        self, start: int, count: int, pending: bool = False
    ) -> list[Row] | list[PendingRow]:
        """Look at messages that wait to be popped, or with *pending* at delivered ones.

        A negative *start* counts from the end; one before the first or after the last message
        gives nothing. Delivered ones are in the order in which their leases end, which is that of
        their last deliveries as long as all have the same *vt*.

        Args:
            start: how many to skip; a negative one counts from the end.
            count: how many messages at most.
            pending: show delivered messages instead of waiting ones.
        """
        try:
            if pending:
                held = await self.queue.pending(start, count)
                if _in_range(start, count, len(held)):
                    return [
                        (m.id, m.body, epoch_ms(m.delivered_at), round(m.idle * 1000), m.deliveries)
                        for m in held
                    ]
            else:
                ready = await self.queue.peek(start, count)
                if _in_range(start, count, len(ready)):
                    return [(m.id, m.body) for m in ready]
        except QueueNotFound as error:
            _check_may_create(self, error)
        return []

    async def info(self) -> Counts:
        """Count the messages; beyond 4096 hidden ones, the delivered count is an upper bound."""
        try:
            found = await self.queue.attributes()
        except QueueNotFound as error:
            _check_may_create(self, error)
            return Counts(0, 0)
        return Counts(found.msgs - found.leased, found.leased)

    def __repr__(self) -> str:
        return f"<ReliableQueue {self.key!r}, {len(self.held)} messages popped here>"


async def _create(queue: ReliableQueue) -> None:
    # RSMQ stores whole seconds; messages popped here have the exact lease.
    vt = math.ceil(queue.vt)
    await queue.rsmq.create_queue(queue.key, vt=vt, maxsize=-1, exist_ok=True)


def _check_may_create(queue: ReliableQueue, error: QueueNotFound) -> None:
    """Raise ``QueueNotFound`` unless a missing queue counts as empty."""
    if not queue.create:
        hint = "create it with create_queue(), or pass create=True to ReliableQueue"
        raise QueueNotFound(error.queue, error.ns, hint) from None


def _take(held: dict[str, Delivery], delivery: Delivery) -> Row:
    """Record the receipt of a delivery, and return the id and body for the caller."""
    row = (delivery.id, delivery.body)
    delivery.body = b""
    held.pop(delivery.id, None)
    held[delivery.id] = delivery
    now = asyncio.get_running_loop().time()
    while len(held) > _REMEMBERED:
        oldest = next(iter(held.values()))
        if oldest.lease.expires_at > now:
            break
        del held[oldest.id]
    return row


def _seconds(what: str, value: Seconds) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"{what} must be a number of seconds or a timedelta, not {value!r}")
    return value


def _common_client(queues: Sequence[ReliableQueue]) -> RSMQ:
    if not queues:
        raise InvalidValue("no queue given", code="missingParameter")
    rsmq = queues[0].rsmq
    if any(queue.rsmq is not rsmq for queue in queues):
        raise InvalidValue("queues that are popped together must be of one client")
    return rsmq


def _in_range(start: int, count: int, found: int) -> bool:
    """Return True if *start* is inside the queue, judged by the size of the page.

    Counted from the end, a page that starts before the first message is shorter than asked for.
    """
    return start >= 0 or found == min(count, -start)
