"""Make time pass for stored messages, instead of waiting for it."""

from __future__ import annotations

from contextlib import suppress

from ..client import RSMQ
from ..errors import QueueNotFound
from ..protocol import limits, testing
from ..protocol.limits import Seconds
from ..queue import Queue


class TimeMachine:
    """Moves the messages of a namespace through time.

    It works on what is stored, so every client of the namespace sees it, on any server. Clocks and
    timers are left alone: ``wait=``, timeouts and sleeps last as long as ever, and so do stored
    times such as ``Message.sent`` and ``Message.fr`` stay as they are.

    *others* are further clients in this process whose kept leases are to be honoured, for example
    the program's own when the test has another one.
    """

    def __init__(self, rsmq: RSMQ, *others: RSMQ) -> None:
        self._rsmq = rsmq
        self._clients = (rsmq, *others)

    async def pass_time(
        self, seconds: Seconds, *queues: str | Queue, stalled: bool = False
    ) -> int:
        """Let *seconds* pass for *queues*, by default all; return how many messages became ready.

        What is due within that time (delays, leases, retries) is due now, and whoever waits for it
        wakes up. A lease that a client of this clock renews (``async with message``, prefetched
        messages) does not end, just as it would not if the time had really passed. With *stalled*
        it does: as if the process had been stopped for so long.

        One round trip per queue, each queue atomically. ``QueueNotFound`` for a name that is given
        and not there.
        """
        by_ms = limits.seconds_to_ms("time to pass", seconds)
        origin = self._rsmq.queue("any").origin
        names = dict.fromkeys(q if isinstance(q, str) else q.name for q in queues)
        ready = 0
        for name in names:
            keys = origin.sibling(name)
            stay = () if stalled else self._kept(name)
            ready += await origin.transport.run(testing.shift(keys, by_ms=by_ms, stay=stay))
        if names:
            return ready
        for name in await self._rsmq.list_queues():
            # Keys without the check of the name: other clients allow more.
            keys = origin.keys.namespace.queue(name)
            stay = () if stalled else self._kept(name)
            # Deleted meanwhile, or left half-made by another client.
            with suppress(QueueNotFound):
                ready += await origin.transport.run(testing.shift(keys, by_ms=by_ms, stay=stay))
        return ready

    def _kept(self, queue: str) -> list[str]:
        """Return the ids of the messages in *queue* whose leases are being renewed."""
        return [
            lease.id
            for client in self._clients
            if client.ns == self._rsmq.ns
            for lease in client.queue(queue).origin.keeper.kept()
            if lease.queue == queue
        ]

    def __repr__(self) -> str:
        return f"<TimeMachine for namespace {self._rsmq.ns!r}>"
