"""A clock for tests: makes time pass for stored messages without waiting."""

from __future__ import annotations

from .._protocol import argument_checks
from .._protocol.argument_checks import Seconds
from .._protocol.operations import shift_time
from .._runtime.queue_context import context_of
from ..client import RSMQ
from ..errors import InvalidValue, QueueNotFound
from ..queue import Queue


class TimeMachine:
    """Shifts the stored times of the messages of a namespace: visibility and last delivery.

    It changes what is stored, so it has the same effect on any server and for every client of the
    namespace. Nothing else is shifted: ``wait=``, timeouts and sleeps take their full time, and
    stored times such as ``Message.sent`` and ``Message.fr`` do not change.

    Args:
        rsmq: the client whose queues are shifted.
        others: further clients of this process, for example the program's own if the test uses
            another one; the leases that they renew do not end either.
    """

    def __init__(self, rsmq: RSMQ, *others: RSMQ) -> None:
        self._rsmq = rsmq
        self._clients = (rsmq, *others)

    async def pass_time(self, seconds: Seconds, *queues: str | Queue, stalled: bool = False) -> int:
        """Let *seconds* pass for *queues*, by default all; return how many messages became ready.

        Delays, leases and retries that end within that time end now, and waiting receives wake up.
        A message whose lease ends so is a suspect, and the idle time of leased messages grows.
        A lease that is being renewed (``async with message``, prefetched messages) does not end,
        just as it would not if the time had really passed. With *stalled* it does, as if the
        process had been suspended for that time.

        One round trip per queue, atomic for each. ``QueueNotFound`` if a queue given by name does
        not exist.

        Args:
            seconds: how much time passes.
            queues: queues or their names; all of the namespace if none is given.
            stalled: let leases end that the client would have renewed.
        """
        by_ms = argument_checks.seconds_to_ms("time to pass", seconds)
        # A handle costs nothing and needs no queue.
        context = context_of(self._rsmq.queue("any"))
        given = dict.fromkeys(q if isinstance(q, str) else q.name for q in queues)
        ready = 0
        for name in given or await self._rsmq.list_queues():
            try:
                keys = context_of(self._rsmq.queue(name)).keys
            except InvalidValue:
                # Other clients allow more names.
                keys = context.keys.namespace.queue(name)
            stay = () if stalled else self._kept(name)
            try:
                ready += await context.transport.run(shift_time.shift(keys, by_ms=by_ms, stay=stay))
            except QueueNotFound:
                if given:
                    raise
                # Listed, but deleted since, or left incomplete by another client.
        return ready

    def _kept(self, queue: str) -> list[str]:
        """Return the ids of the messages of *queue* whose leases are being renewed."""
        return [
            lease.id
            for client in self._clients
            if client.ns == self._rsmq.ns
            for lease in context_of(client.queue("any")).keeper.kept()
            if lease.queue == queue
        ]

    def __repr__(self) -> str:
        return f"<TimeMachine of namespace {self._rsmq.ns!r}>"
