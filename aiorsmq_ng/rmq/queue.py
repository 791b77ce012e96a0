"""A queue of rmq: publish, consume, and look after what failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from .._common.durations import Seconds, at_least_0
from .._protocol.operation import Operation
from .._protocol.operations.rmq import messages, registry
from .._protocol.operations.rmq.messages import SLICE
from .._protocol.rmq_keys import RmqKeys
from .._protocol.rmq_payload import Headers, pack
from .._runtime.background_acks import is_background
from .._transport.transport import Transport
from ..codec import Codec, to_body
from ..errors import InvalidValue, QueueNotFound, SendToken
from .batch import RmqBatch
from .consumer import RmqConsumer
from .delivery import RmqDelivery
from .prefetch import RmqPrefetch
from .rmq_context import RmqContext

if TYPE_CHECKING:
    from .client import Rmq

R = TypeVar("R")

#: Payloads that one call of a purge deletes at most.
_PURGE_SLICE = 1000


class RmqQueue:
    """A handle on one queue of rmq. ``await`` it to list the queue, as Go's OpenQueue does.

    Without that, the first publication or consumer does it. Payloads have no ids, no delays and no
    receive counts; a queue is a list, and what is published first is taken first.
    """

    def __init__(
        self, rmq: Rmq, context: RmqContext, keys: RmqKeys, push: RmqKeys | None = None
    ) -> None:
        #: The client that it is a queue of.
        self.rmq = rmq
        self._context = context
        self._keys = keys
        self._push = push
        self._listed = False

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._keys.queue

    @property
    def codec(self) -> Codec:
        """What turns values into bodies and back."""
        return self._context.codec

    @property
    def push_queue(self) -> str | None:
        """Name of the queue that ``RmqDelivery.push`` moves to; ``None`` if it rejects."""
        return None if self._push is None else self._push.queue

    async def open(self) -> Self:
        """List the queue, and its push queue, in ``rmq::queues``; idempotent."""
        run, layout = self._context.transport.run, self._keys.layout
        if not self._listed:
            await run(registry.add(layout.queues, self.name))
            if self._push is not None:
                await run(registry.add(layout.queues, self._push.queue))
            self._listed = True
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def publish(self, *bodies: object, headers: Headers | None = None) -> None:
        """Append messages in order, all or none. One round trip, shared with others of the moment.

        A publication whose reply is lost is repeated and stored once; ``SendUnknown`` if its
        outcome cannot be learnt in time.

        Args:
            bodies: ``str`` and ``bytes`` as they are; anything else goes through the codec.
            headers: headers of each of them: values by name, a text or a list of texts. Names are
                written as Go does, ``traceparent`` as ``Traceparent``.
        """
        if not bodies:
            return
        codec = self._context.codec
        payloads = pack([to_body(body, codec) for body in bodies], headers)
        if not self._listed:
            await self.open()
        # Not by a method of its own: many publications are a call each.
        await self._context.transport.run(messages.publish(self._keys, payloads))

    async def publish_payloads(self, payloads: Sequence[bytes]) -> None:
        """Append payloads as they are: with rmq's own header, if they have one. All or none.

        Args:
            payloads: payloads as ``drain`` returns them.
        """
        if payloads:
            await self.open()
            await self._run(messages.publish(self._keys, list(payloads)))

    async def resend(self, token: SendToken) -> None:
        """Learn the outcome of a publication that raised ``SendUnknown``; store it if it is not.

        Args:
            token: ``error.token`` of the ``SendUnknown``.
        """
        await self._context.transport.resume(token)

    def consume(
        self,
        *,
        prefetch: int = 100,
        settle: Literal["await", "background"] = "await",
        on_malformed: Callable[[bytes], object] | None = None,
    ) -> RmqConsumer[RmqDelivery]:
        """Return an iterator over deliveries; nothing is taken before the first is asked for.

        A message that arrives is taken at once, without polling. If the connection is lost, the
        iteration goes on under a new name.

        With *settle* ``"background"`` the end of an ``async with`` block does not wait for its ack.
        Acks of blocks that end close together share a call. The error of one is raised by the next
        step of the iteration, or by ``aclose``, so end such a consumer by ``async with`` or
        ``aclose``.

        Args:
            prefetch: how many deliveries are in hand at most: those taken ahead, and those that
                were handed out and whose settlement is not confirmed.
            settle: ``"await"``: a block that ends without an error waits for its ack;
                ``"background"``: it goes on at once.
            on_malformed: called with each payload that was moved to the rejected list because its
                headers cannot be read.
        """
        ahead = self._prefetch(
            prefetch, background=is_background(settle), on_malformed=on_malformed
        )
        return RmqConsumer(ahead, self._context.transport)

    def consume_batches(
        self,
        *,
        size: int,
        wait: Seconds,
        prefetch: int | None = None,
        on_malformed: Callable[[bytes], object] | None = None,
    ) -> RmqConsumer[RmqBatch]:
        """Return an iterator over batches: of *size*, or what came within *wait* after the first.

        Args:
            size: deliveries per batch at most.
            wait: seconds to wait for a full batch after its first delivery.
            prefetch: as for ``consume``; by default twice the size.
            on_malformed: as for ``consume``.
        """
        if size < 1:
            raise InvalidValue(f"size of a batch must be at least 1, not {size!r}")
        prefetch = 2 * size if prefetch is None else prefetch
        if prefetch < size:
            raise InvalidValue(f"prefetch must be at least the size of a batch, {size}")
        wait_s = at_least_0("wait", wait)
        ahead = self._prefetch(prefetch, on_malformed=on_malformed)
        return RmqConsumer(ahead, self._context.transport, size, wait_s)

    def __aiter__(self) -> AsyncIterator[RmqDelivery]:
        return self.consume()

    async def return_rejected(self, count: int | None = None) -> int:
        """Move rejected messages behind all that waits, oldest first; return how many.

        Args:
            count: how many at most; ``None`` for all that are there now.
        """
        if count is None:
            count = (await self.lengths()).rejected
        return await self._return(self._keys.rejected, count)

    async def return_unacked(self, connection: str, count: int | None = None) -> int:
        """Move what a connection has taken behind all that waits; return how many.

        For a connection that is stuck: if it is at work on them after all, they are handled twice.
        ``Rmq.clean`` looks after dead ones.

        Args:
            connection: its name, as in ``stats``.
            count: how many at most, oldest first; ``None`` for all that it has now.
        """
        if count is None:
            count = (await self._run(messages.unacked(self._keys, connection))).length
        return await self._return(self._keys.unacked(connection), count)

    async def purge_ready(self) -> int:
        """Delete the messages that wait now, a thousand at a time; return how many."""
        return await self._purge(self._keys.ready, (await self.lengths()).ready)

    async def purge_rejected(self) -> int:
        """Delete the messages that are rejected now, a thousand at a time; return how many."""
        return await self._purge(self._keys.rejected, (await self.lengths()).rejected)

    async def drain(self, count: int) -> list[bytes]:
        """Take and delete up to *count* messages, oldest first; return their payloads.

        At most once: if the reply is lost or the call is cancelled, so may be the messages.

        Args:
            count: how many at most.
        """
        return await self._run(messages.drain(self._keys, _at_least_1(count)))

    async def destroy(self) -> tuple[int, int]:
        """Delete what waits and what is rejected, and unlist the queue; return how many of each.

        ``QueueNotFound`` if it is not listed. What connections have taken stays with them.
        """
        ready, rejected = await self.purge_ready(), await self.purge_rejected()
        self._listed = False
        if not await self._run(registry.remove(self._keys.layout.queues, self.name)):
            raise QueueNotFound(self.name, "rmq", "open it, or publish to it")
        return ready, rejected

    async def lengths(self) -> messages.Lengths:
        """Return how many messages are ``ready`` and ``rejected``. One round trip."""
        return await self._run(messages.lengths(self._keys))

    def __repr__(self) -> str:
        return f"<RmqQueue {self.name!r}>"

    def _prefetch(self, size: int, **how: Any) -> Callable[[], RmqPrefetch]:
        _at_least_1(size, "prefetch")
        return partial(RmqPrefetch, self._context, self._keys, size, self._push, **how)

    async def _run(self, operation: Operation[R]) -> R:
        return await self._context.transport.run(operation)

    async def _return(self, source: str, count: int) -> int:
        moved = 0
        while moved < count:
            step = await self._run(
                messages.return_oldest(self._keys, source, min(SLICE, count - moved))
            )
            if not step:
                break
            moved += step
        return moved

    async def _purge(self, source: str, count: int) -> int:
        removed = 0
        while removed < count:
            step = await self._run(
                messages.purge(self._keys, source, min(_PURGE_SLICE, count - removed))
            )
            if not step:
                break
            removed += step
        return removed


#: What other modules of this package need of a queue: the one way to it.
keys_of: Callable[[RmqQueue], RmqKeys] = attrgetter("_keys")
transport_of: Callable[[RmqQueue], Transport] = attrgetter("_context.transport")


def _at_least_1(number: int, what: str = "count") -> int:
    if not isinstance(number, int) or number < 1:
        raise InvalidValue(f"{what} must be a whole number of at least 1, not {number!r}")
    return number
