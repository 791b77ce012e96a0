"""The Queue: every operation on one queue."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar, overload

from ._common.message_headers import header_texts
from ._protocol import argument_checks
from ._protocol.argument_checks import Seconds
from ._protocol.keys import QueueKeys
from ._protocol.operation import Operation
from ._protocol.operations import inspection, messages, queues, recovery
from ._protocol.operations.message_values import Dedup, Receipt
from ._runtime.long_poll import LongPoll
from ._runtime.queue_context import QueueContext
from ._runtime.redrive import counted, redrive
from .codec import to_body
from .consumer import Consumer
from .delivery import (
    Delivery,
    Named,
    ack_many,
    check_deliveries,
    from_receipt,
    from_reply,
    recover,
)
from .errors import InvalidValue, NoAttributeSupplied, QueueNotFound, SendToken
from .models import (
    Message,
    PendingMessage,
    QueueAttributes,
    QueueStats,
    ScannedMessage,
    Sent,
)
from .retry import Retry

M = TypeVar("M", bound=Message)

#: Ids or bodies that one delete call carries; more are split.
_DELETE_PAGE = 1000
#: Messages that one round trip of a scan reads at most.
_SCAN_PAGE = 1000


class Queue:
    """A handle on one queue. Making one costs nothing and checks nothing but the name."""

    def __init__(self, context: QueueContext, long_poll: LongPoll) -> None:
        self._context = context
        self._long_poll = long_poll
        self._channel = context.channel(context.keys)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._keys.queue

    @property
    def ns(self) -> str:
        """The namespace that the queue is in."""
        return self._keys.namespace.name

    @property
    def dead_letter(self) -> str:
        """Name of the queue that rejected messages go to."""
        return self._context.dead_letter

    @property
    def retry(self) -> Retry | None:
        """The retry policy for messages whose handling fails; ``None`` if the handle has none."""
        return self._context.retry

    @overload
    async def send(
        self,
        body: object,
        *,
        delay: Seconds | None = None,
        dedup_key: None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str: ...

    @overload
    async def send(
        self,
        body: object,
        *,
        delay: Seconds | None = None,
        dedup_key: str,
        headers: Mapping[str, str] | None = None,
    ) -> Sent: ...

    async def send(
        self,
        body: object,
        *,
        delay: Seconds | None = None,
        dedup_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Store a message and return its id.

        ``str`` and ``bytes`` go on the wire as they are, anything else through the codec. One
        round trip, shared with other sends of the same moment. A send whose reply is lost is
        repeated and stored once; if its outcome cannot be learnt in time, ``SendUnknown`` is
        raised. Cancelled, the message may or may not be stored.

        With *dedup_key* no second message is stored under the same key within
        ``Options.dedup_window``, even if the first is consumed already, until the queue is deleted.
        The id is then a ``Sent``: with ``duplicate`` it is the first message's, and this body was
        not stored. With ``Options.durability`` above ``memory`` a ``Sent`` also has the level
        that was reached.

        Args:
            body: ``str`` and ``bytes`` as they are; anything else goes through the client's codec.
            delay: seconds until the message becomes visible; by default the queue's ``delay``.
            dedup_key: name for this message; a second one with the same key is not stored within
                ``Options.dedup_window``.
            headers: names and texts to travel beside the body, 8 KiB together; see
                ``Message.headers``.
        """
        dedup = None if dedup_key is None else self._context.dedup(dedup_key)
        body = to_body(body, self._context.codec)
        operation = self._sending((body,), delay, dedup, header_texts(headers))
        return (await self._context.transport.run(operation))[0]

    async def resend(self, token: SendToken) -> list[str]:
        """Learn the outcome of a send that raised ``SendUnknown``, storing it if it is not yet.

        Never makes a second copy. Sends that shared a round trip are decided together: those of
        other callers that are not stored yet are stored, too. Returns the ids, one for each body.

        Args:
            token: ``error.token`` of the ``SendUnknown``.
        """
        sent: list[str] = await self._context.resume(token)
        return sent

    async def send_many(
        self,
        bodies: Iterable[object],
        *,
        delay: Seconds | None = None,
        headers: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None = None,
    ) -> list[str]:
        """Store messages in order, all or none, and return their ids. One round trip.

        Args:
            bodies: the bodies, each as for a single one.
            delay: seconds until the message becomes visible; by default the queue's ``delay``.
            headers: headers of all the messages, or a list with those of each.
        """
        if isinstance(bodies, str | bytes | bytearray):
            raise InvalidValue("send_many takes a list of bodies; use send() for a single one")
        codec = self._context.codec
        ready = [body if type(body) is bytes else to_body(body, codec) for body in bodies]
        if not ready:
            return []
        argument_checks.check_count(len(ready))
        operation = self._sending(ready, delay, None, header_texts(headers, len(ready)))
        return await self._context.transport.run(operation)

    async def receive(self, *, vt: Seconds | None = None, wait: Seconds = 0) -> Delivery | None:
        """Lease the next ready message, or return ``None``.

        With *wait*, wait that long for one. Cancelled, a message that was taken already is made
        visible again.

        Args:
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            wait: seconds to wait for a message; 0 returns at once.
        """
        vt_ms = argument_checks.optional_ms("vt", vt)
        wait_s = argument_checks.seconds_to_ms("wait", wait) / 1000
        if self._context.recorder is not None:
            return next(iter(await self.receive_many(1, vt=vt, wait=wait)), None)
        received = await self._long_poll.receive(1, vt_ms, wait_s)
        for leased in received.messages:
            return Delivery(leased, self._context, received.asked_at + leased.vt_ms / 1000)
        return None

    async def receive_many(
        self, count: int, *, vt: Seconds | None = None, wait: Seconds = 0
    ) -> list[Delivery]:
        """Lease up to *count* ready messages by one call; *wait* is for the first of them.

        Args:
            count: how many messages at most.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            wait: seconds to wait for the first message; 0 returns at once.
        """
        argument_checks.check_count(count)
        vt_ms = argument_checks.optional_ms("vt", vt)
        wait_s = argument_checks.seconds_to_ms("wait", wait) / 1000
        receiving = self._receive(count, vt_ms, wait_s)
        return await self._context.receiving((self.name,), count, wait_s, receiving)

    def delivery(
        self, receipt: tuple[str, int, int] | tuple[str, int, int, str], *, vt: Seconds = 30
    ) -> Delivery:
        """Return the delivery that *receipt* (``id``, ``rc``, ``fr``, ``proof``) proves; no I/O.

        For a process that settles a message which another process has received. It has no body. Its
        verbs are fenced as ever, so a receipt that is made up, or not the newest, changes nothing.

        Args:
            receipt: (``id``, ``rc``, ``fr``, ``proof``) of the delivery; ``proof`` is needed
                through a broker only.
            vt: lease in seconds that the receipt was granted, for renewal.
        """
        id, rc, fr, *proof = receipt
        vt_ms = argument_checks.seconds_to_ms("vt", vt)
        whole = Receipt(argument_checks.check_id(id), rc, fr, *proof)
        return from_receipt(whole, self._context, vt_ms)

    @contextmanager
    def present(self) -> Iterator[None]:
        """Announce this client as one more consumer of the queue while the block runs.

        For programs with a receive loop of their own; a ``Consumer`` and a ``Worker`` do it by
        themselves. ``stats`` shows the announcement; nothing else depends on it.
        """
        self._context.presence.enter(self._keys)
        try:
            yield
        finally:
            self._context.presence.leave(self._keys)

    async def pop(self) -> Message | None:
        """Take the next ready message and delete it, or return ``None``.

        At most once: if the reply is lost or the call is cancelled, so may be the message.
        """
        popped = await self.pop_many(1)
        return popped[0] if popped else None

    async def pop_many(self, count: int) -> list[Message]:
        """Take and delete up to *count* ready messages by one call. At most once.

        Args:
            count: how many messages at most.
        """
        operation = messages.pop(self._keys, argument_checks.check_count(count))
        while True:
            popped = await self._context.transport.run(operation)
            if popped.messages or not popped.again:
                return self._readable(popped.messages)

    async def ack_many(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Delete messages that are done, by one call for a thousand; return those really acked.

        Fenced as ``Delivery.ack`` is: what another consumer has received since stays, and is
        missing from the result. All calls begin at once, and go on if the caller is cancelled.

        Args:
            deliveries: deliveries of this queue.
        """
        batch = check_deliveries(self._keys, deliveries)
        pages = [batch[at : at + _DELETE_PAGE] for at in range(0, len(batch), _DELETE_PAGE)]
        acked = await asyncio.gather(*(ack_many(self._context, page) for page in pages))
        return [delivery for page in acked for delivery in page]

    async def delete(self, id: str) -> bool:
        """Delete a message by id, also one that is leased; return True if it was there.

        RSMQ's own, unfenced delete. The holder of a delivery uses ``ack``.

        Args:
            id: id of the message.
        """
        return bool(await self.delete_many([id]))

    async def delete_many(self, ids: Iterable[str], *, only_leased: bool = False) -> list[str]:
        """Delete messages by id, also leased ones; return the ids that were there.

        With *only_leased*, messages that are not leased, or whose lease has ended, stay.

        Args:
            ids: ids of messages.
            only_leased: leave messages that are not leased now.
        """
        if isinstance(ids, str):
            raise InvalidValue("delete_many takes a list of ids; use delete() for a single one")
        unique = list(dict.fromkeys(map(argument_checks.check_id, ids)))
        deleted: list[str] = []
        for at in range(0, len(unique), _DELETE_PAGE):
            page = unique[at : at + _DELETE_PAGE]
            delete = recovery.delete_leased if only_leased else messages.delete
            found = await self._context.transport.run(delete(self._keys, page))
            deleted += found
        return deleted

    async def change_visibility(self, id: str, vt: Seconds) -> bool:
        """Make a message visible in *vt* from now, also a leased one; return True if it was there.

        Args:
            id: id of the message.
            vt: seconds from now until it is visible; 0 is at once.
        """
        operation = messages.visibility(
            self._keys,
            argument_checks.check_id(id),
            vt_ms=(vt_ms := argument_checks.seconds_to_ms("vt", vt)),
            channel=self._keys.wake,
            how="" if vt_ms else "r",
        )
        return await self._context.transport.run(operation)

    async def exists(self) -> bool:
        """Return True if the queue exists. One round trip that writes nothing.

        Needs only the rights to send or receive; works also on a server that is out of memory.
        """
        return await self._context.transport.run(queues.exists(self._keys))

    async def attributes(self) -> QueueAttributes:
        """Describe the queue: stored attributes, counters, messages in each state."""
        return await self._context.transport.run(queues.attributes(self._keys))

    async def stats(self) -> QueueStats:
        """Describe the queue with its dead letters and its living consumers. One round trip."""
        dead = self._context.counted_dead_letters
        return await self._context.transport.run(queues.stats(self._keys, dead))

    async def set_attributes(
        self,
        *,
        vt: Seconds | None = None,
        delay: Seconds | None = None,
        maxsize: int | None = None,
    ) -> QueueAttributes:
        """Change stored attributes (whole seconds, bytes) and describe the queue.

        Args:
            vt: new lease in seconds; ``None`` leaves it.
            delay: new delay in seconds; ``None`` leaves it.
            maxsize: new limit in bytes, -1 for none; ``None`` leaves it.
        """
        if vt is None and delay is None and maxsize is None:
            raise NoAttributeSupplied(self.name)
        operation = queues.set_attributes(self._keys, vt=vt, delay=delay, maxsize=maxsize)
        return await self._context.transport.run(operation)

    async def peek(self, start: int = 0, count: int = 10) -> list[Message]:
        """Read ready messages without leasing them; a negative *start* counts from the end.

        Args:
            start: how many to skip; a negative one counts from the end.
            count: how many messages at most.
        """
        operation = inspection.peek(
            self._keys, argument_checks.check_start(start), argument_checks.check_count(count)
        )
        return self._readable(await self._context.transport.run(operation))

    async def pending(self, start: int = 0, count: int = 10) -> list[PendingMessage]:
        """Read leased messages, in the order in which their leases end.

        A negative *start* counts from the end. Delayed messages lie between leased ones, so a
        long queue is walked in pages of 1000; one page is one round trip.

        Args:
            start: how many to skip; a negative one counts from the end.
            count: how many messages at most.
        """
        argument_checks.check_start(start)
        argument_checks.check_count(count)
        if start < 0:
            # The last -start leased ones, of which the first count are wanted.
            tail = await self._pending_pages(0, start)
            tail.reverse()
            missing = -start - len(tail)
            return tail[: max(0, count - missing)]
        return await self._pending_pages(start, count)

    async def scan(
        self, start: int = 0, count: int | None = None, *, after: ScannedMessage | None = None
    ) -> AsyncIterator[ScannedMessage]:
        """Walk over the messages of every state, in the order in which they become visible.

        Nothing is leased or changed. A negative *start* begins that many before the last ready
        message; *after* goes on behind a message seen before, which need not be there any more.
        One round trip reads up to 1000 messages, or fewer of 1 MiB together. A message that keeps
        its visible-at meanwhile is seen exactly once, also if others change. One that is
        received, released or hidden again may be seen twice, or, if it moved from behind the walk
        to before it, not at all.

        Args:
            start: how many to skip; a negative one begins that many before the last ready message.
            count: how many messages at most; ``None`` for all.
            after: go on behind this message, which need not be there any more.
        """
        left = math.inf if count is None else argument_checks.check_count(count)
        place: inspection.Place | None = (argument_checks.check_start(start),)
        if after is not None:
            place = (repr(after.score), after.id)
        while place is not None and left > 0:
            page = int(min(left, _SCAN_PAGE))
            found = await self._context.transport.run(inspection.scan(self._keys, page, at=place))
            for message in self._readable(found.messages):
                yield message
            left -= len(found.messages)
            place = found.next

    async def find(self, id: str) -> ScannedMessage | None:
        """Read one message of any state without changing it; ``None`` if it is not there.

        One round trip. ``NotSupported`` through a broker.

        Args:
            id: id of the message.
        """
        operation = inspection.find(self._keys, argument_checks.check_id(id))
        page = await self._context.transport.run(operation)
        return next(iter(self._readable(page.messages)), None)

    async def recover(
        self, count: int, idle: Seconds, *, vt: Seconds | None = None
    ) -> list[Delivery]:
        """Take over leased messages whose last delivery is at least *idle* ago, oldest first.

        They become deliveries of this caller with a new lease, and the former holder's receipt is
        stale, even if that holder is alive and renews: choose *idle* longer than any message is
        worked on. A message released with a delay counts as leased, too. One atomic call looks at
        4096 hidden messages; a longer queue takes more, and is in order within each. Cancelled,
        what was taken is made visible again.

        Args:
            count: how many messages at most.
            idle: seconds since the last delivery, at least.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
        """
        return await recover(self._context, argument_checks.check_count(count), idle, vt)

    async def reason(self, id: str) -> str | None:
        """Return why a message was rejected into this queue; ``None`` if that is not known.

        Reasons are kept for 14 days.

        Args:
            id: id of the message.
        """
        operation = inspection.reason(self._keys, argument_checks.check_id(id))
        return await self._context.transport.run(operation)

    async def redrive(
        self,
        source: str | Named | None = None,
        *,
        count: int | None = None,
        where: Callable[[Message], bool] | None = None,
        rate: float | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Move messages from a dead-letter queue back here, where they start with ``rc`` 0.

        *source* is by default this queue's own dead-letter queue; *count* limits how many, *where*
        chooses, *rate* is messages per second at most. Moved in batches of up to 100, each
        atomic: interrupted at any point, every message is in exactly one of the two queues.
        Returns how many were moved. *progress* is called with the size of each batch; a
        cancellation then waits for the batch in flight, so that the sizes add up to what was moved.
        ``QueueNotFound`` if this queue does not exist, or a *source* that was given.

        Args:
            source: queue to take from; by default this queue's own dead-letter queue.
            count: how many at most; ``None`` for all.
            where: takes a message, returns True if it is to be moved.
            rate: messages per second at most.
            progress: called with the size of each batch.
        """
        given = self.dead_letter if source is None else source
        name = given if isinstance(given, str) else given.name
        keys = self._context.sibling(name)
        if keys.queue == self.name:
            raise InvalidValue(f"messages of queue {name!r} cannot be moved into itself")
        if rate is not None and not rate > 0:
            raise InvalidValue(f"rate must be more than 0 messages per second, not {rate!r}")
        most = None if count is None else argument_checks.check_count(count)
        try:
            moved = await redrive(self._context, keys, most, where, rate, progress)
        except QueueNotFound as error:
            if source is not None or error.queue != keys.queue:
                raise
            moved = 0  # no message was ever rejected
        if not moved:
            await self.attributes()  # raises if this queue does not exist
        return moved

    async def purge(
        self, *, leased: bool = False, progress: Callable[[int], None] | None = None
    ) -> int:
        """Remove the messages that are not leased, or with *leased* all; return their number.

        Without *leased* the queue is walked in pages of 1000, each atomic, so other clients go
        on meanwhile. What is sent while it runs may stay. *progress* is called with the size
        of each page, as by ``redrive``.

        Args:
            leased: remove leased messages, too.
            progress: called with the size of each batch.
        """
        transport = self._context.transport
        if leased:
            return await transport.run(queues.purge_all(self._keys))
        removed, at, present = 0, 0, None
        while at >= 0 and (present is None or removed < present):
            page = transport.run(queues.purge(self._keys, at))
            if progress is not None:
                page = counted(page, progress, lambda reply: reply[0])
            count, at, before = await page
            removed += count
            present = before if present is None else present
        return removed

    def consume(
        self,
        *,
        prefetch: int = 1,
        vt: Seconds | None = None,
        settle: Literal["await", "background"] = "await",
    ) -> Consumer:
        """Iterate over messages for ever, waiting when there are none.

        *prefetch* is how many are leased ahead of time; they are refilled when half are gone.
        The leases of those not handed out yet are renewed, and they are given back when the
        iteration ends. An outage of Redis is waited out; other errors end the iteration.

        With *settle* ``"background"`` the end of an ``async with`` block does not wait for its ack.
        Acks of blocks that end at the same time share a call, at most 1000 are unanswered. Delivery
        stays at least once. The error of an ack is raised by the next step of the iteration, or by
        ``aclose``, so end such a consumer by ``async with`` or ``aclose``.

        Args:
            prefetch: how many messages are leased ahead of time.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            settle: ``"await"``: a block that ends without an error waits for its ack;
                ``"background"``: it goes on at once.
        """
        argument_checks.check_count(prefetch, "prefetch")
        vt_ms = argument_checks.renewable_ms("vt of a consumer", vt)
        context = self._context.settling(settle)
        return Consumer(context, lambda n: self._receive(n, vt_ms, math.inf, context), prefetch)

    def __aiter__(self) -> Consumer:
        return self.consume()

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in namespace {self._keys.namespace.name!r}>"

    @property
    def _keys(self) -> QueueKeys:
        return self._context.keys

    def _sending(
        self,
        bodies: Sequence[bytes],
        delay: Seconds | None,
        dedup: Dedup | None,
        headers: Sequence[bytes],
    ) -> Operation[list[str]]:
        return messages.send(
            self._context.keys,
            bodies,
            delay_ms=argument_checks.optional_ms("delay", delay),
            channel=self._channel,
            dedup=dedup,
            headers=headers,
        )

    async def _receive(
        self, count: int, vt_ms: int, wait_s: float, context: QueueContext | None = None
    ) -> list[Delivery]:
        received = await self._long_poll.receive(count, vt_ms, wait_s)
        return from_reply(received, {self.name: context or self._context})

    async def _pending_pages(self, skip: int, count: int) -> list[PendingMessage]:
        found: list[PendingMessage] = []
        at: int | None = 0
        sign = -1 if count < 0 else 1
        while at is not None and len(found) < abs(count):
            left = count - sign * len(found)
            page = await self._context.transport.run(
                inspection.pending(self._keys, skip=skip, count=left, at=at)
            )
            found += self._readable(page.messages)
            at, skip = page.next_at, page.skip
        return found

    def _readable(self, found: list[M]) -> list[M]:
        """Give messages that are not deliveries the client's codec, for ``decode``."""
        codec = self._context.codec
        for message in found:
            message.with_codec(codec)
        return found
