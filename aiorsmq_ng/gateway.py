"""Calls for programs that serve queues to other programs, as the broker does.

A program that works with queues for itself needs none of them. ``RSMQ.gateway`` has them, so that
``RSMQ`` and ``Queue`` show what their users need. The names are as public as all others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from ._protocol import argument_checks
from ._protocol.argument_checks import Seconds
from ._protocol.operations import messages, presence, queues
from ._runtime.queue_context import context_of
from .delivery import Delivery, recover_page
from .errors import InvalidValue
from .models import RecoverPlace
from .queue import Queue

__all__ = ["Gateway", "PurgedPage", "RecoverPlace"]

#: Most messages that one call moves, so that other clients can go on.
_MOVE_PAGE = 100
#: Lease messages of several queues: names or handles, count, lease, wait in seconds.
_Receive = Callable[
    [Sequence[str | Queue], int, Seconds | None, float], Awaitable[tuple[list[Delivery], int]]
]


class PurgedPage(NamedTuple):
    """One page of a purge."""

    #: How many messages were removed.
    removed: int
    #: Rank at which the next page begins; -1 after the last page.
    next_at: int
    #: How many messages there were before.
    before: int


class Gateway:
    """What a server needs to do for its clients, call by call; had by ``RSMQ.gateway``."""

    def __init__(self, receive: _Receive) -> None:
        self._receive = receive

    async def receive_now(
        self, names: Sequence[str | Queue], count: int, *, vt: Seconds | None = None
    ) -> tuple[list[Delivery], float | None]:
        """Lease what is ready, as ``RSMQ.receive_many`` does, and return when there may be more.

        The second value is in how many seconds a message becomes visible, if none was ready and
        one is delayed or leased. For servers whose clients do the waiting.

        Args:
            names: queues in the order of their priority, by name or handle.
            count: how many messages at most.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
        """
        deliveries, next_visible_ms = await self._receive(names, count, vt, 0)
        wait = not deliveries and next_visible_ms >= 0
        return deliveries, next_visible_ms / 1000 if wait else None

    async def receive_ahead(
        self, names: Sequence[str | Queue], count: int, *, wait: Seconds = 0
    ) -> list[Delivery]:
        """Lease messages ahead of time, as ``RSMQ.receive_many`` does.

        Telemetry does not report it as a receive: nothing has asked for these messages yet.

        Args:
            names: queues in the order of their priority, by name or handle.
            count: how many messages at most.
            wait: seconds to wait for the first message; 0 returns at once.
        """
        wait_s = argument_checks.seconds_to_ms("wait", wait) / 1000
        return (await self._receive(names, count, None, wait_s))[0]

    async def recover_page(
        self,
        queue: Queue,
        count: int,
        idle: Seconds,
        *,
        vt: Seconds | None = None,
        after: RecoverPlace | None = None,
    ) -> tuple[list[Delivery], RecoverPlace]:
        """Take over messages as ``Queue.recover`` does, by one atomic call; return where to go on.

        It gives no sign of life for a peer of a topic: call ``Subscription.keep_alive`` for that.

        Args:
            queue: the queue.
            count: how many messages at most.
            idle: seconds since the last delivery, at least.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            after: the place that the page before returned; its ``at`` is ``None`` when there is no
                next page.
        """
        return await recover_page(context_of(queue), count, idle, vt=vt, after=after)

    async def purge_page(self, queue: Queue, at: int = 0) -> PurgedPage:
        """Remove up to 1000 messages that are not leased, from rank *at* on, by one atomic call.

        ``Queue.purge`` does all pages.

        Args:
            queue: the queue.
            at: rank of the first message: ``next_at`` of the page before, 0 for the first page.
        """
        context = context_of(queue)
        return PurgedPage(*await context.transport.run(queues.purge(context.keys, at)))

    async def move_page(self, source: Queue, target: Queue, ids: Sequence[str]) -> int:
        """Move those of up to 100 messages that are ready to another queue, by one atomic call.

        There they start with ``rc`` 0. Returns how many were moved; leased and delayed ones stay.

        Args:
            source: the queue that they are in.
            target: the queue that they go to; ``QueueNotFound`` if it does not exist.
            ids: ids of messages.
        """
        if not ids:
            return 0
        if len(ids) > _MOVE_PAGE:
            raise InvalidValue(f"move_page takes up to {_MOVE_PAGE} ids, not {len(ids)}")
        if source.name == target.name:
            raise InvalidValue(f"messages of queue {source.name!r} cannot be moved into itself")
        context, chosen = context_of(target), [argument_checks.check_id(id) for id in ids]
        keys, channel = context.sibling(source.name), context.channel(context.keys)
        return await context.transport.run(
            messages.redrive(keys, context.keys, len(chosen), ids=chosen, channel=channel)
        )

    async def announce(
        self, queue: Queue, name: str, consumers: int, holding: Iterable[str] = ()
    ) -> None:
        """Report that the client *name* consumes from a queue, and what it holds.

        ``Queue.stats`` shows it for 35 s; no other call depends on it. For servers, which report on
        behalf of their clients; a consumer in this process uses ``Queue.present``.

        Args:
            queue: the queue.
            name: name of the client.
            consumers: how many consumers it runs; 0 removes it.
            holding: ids of messages that it holds.
        """
        context = context_of(queue)
        await context.transport.run(presence.announce(context.keys, name, consumers, list(holding)))
