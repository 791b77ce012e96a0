"""Intake: receives messages of the worker's queues, and starts their handlers.

Theory of operation
-------------------

Rule 1: one call receives from all queues of a namespace, in the order of their handlers or in a
random order by their weights. Each batch handler has calls of its own.

Rule 2: first the messages, then the slot. A group of queues without messages holds no slot.

Rule 3: a *suspect* (the holder of its last delivery vanished) is handled alone. It ends the intake,
which gives back everything that was leased ahead; then running handlers may end; then the suspect
runs, and the intake begins again. Each of these steps takes at most ``alone`` seconds.

Rule 4: a queue of rmq is served beside them, by a consumer of its own (``rmq_intake.py``).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Literal

import anyio

from .._common.tasks import TaskGroup
from .._protocol.argument_checks import MAX_SECONDS
from .._runtime.prefetch import Prefetch, give_back
from .._runtime.queue_context import context_of
from ..client import RSMQ
from ..delivery import Delivery
from ..errors import RSMQError
from .handler_execution import Executions
from .handlers import QueueHandler, RmqHandler
from .rmq_intake import dispatch

logger = logging.getLogger("aiorsmq_ng.worker")

#: How long to wait for give-backs, and for calls in flight before a suspect begins.
_GIVE_BACK_S = 2.0
#: How often a suspect is postponed because of long-running handlers, and the number of suspects for
#: which that is counted.
_MAX_POSTPONED, _POSTPONED_IDS = 3, 1000


class Intake:
    """Leases messages ahead, and starts a handler for each message or batch."""

    def __init__(
        self,
        rsmq: RSMQ,
        handlers: Sequence[QueueHandler],
        executions: Executions,
        *,
        prefetch: int,
        order: Literal["strict", "weighted"],
        alone: float,
        rmq_handlers: Sequence[RmqHandler] = (),
    ) -> None:
        self._rsmq = rsmq
        self._rmq_handlers = rmq_handlers
        self._handlers = {handler.queue.name: handler for handler in handlers}
        self._executions = executions
        self._prefetch = prefetch
        self._order = order
        self._alone = alone
        #: The suspect that is about to run alone.
        self.suspect: Delivery | None = None
        #: How often each suspect was postponed, by message id.
        self.postponed: dict[str, int] = {}
        #: What is leased ahead: one buffer for each group of queues.
        self._ahead: set[Prefetch[Delivery]] = set()

    @property
    def prefetched(self) -> Counter[str]:
        """Messages that are leased ahead, by queue; those of rmq excluded."""
        return Counter(m.queue for prefetch in tuple(self._ahead) for m in prefetch.ahead)

    async def run(self) -> None:
        """Hand out messages until cancelled; then give back those that no handler works on."""
        # One call reaches the queues of one namespace; other namespaces are served concurrently.
        groups: dict[object, list[QueueHandler]] = {}
        for handler in self._handlers.values():
            key = (handler.queue.ns, handler.queue.name if handler.size else "")
            groups.setdefault(key, []).append(handler)
        with ExitStack() as present:
            for handler in self._handlers.values():
                present.enter_context(handler.queue.present())
            await self._dispatch_all(list(groups.values()))

    async def _dispatch_all(self, groups: list[list[QueueHandler]]) -> None:
        try:
            while True:
                async with TaskGroup() as tasks:
                    for group in groups:
                        tasks.start_soon(self._dispatch, group, tasks.cancel_scope)
                    for handler in self._rmq_handlers:
                        tasks.start_soon(dispatch, handler, self._executions, self._prefetch)
                # A suspect arrived: everything that was leased ahead is given back.
                await self._handle_alone()
        finally:
            if (suspect := self.suspect) is not None:
                self.suspect = None
                give_back([suspect])

    async def _dispatch(self, group: list[QueueHandler], scope: anyio.CancelScope) -> None:
        """Start a handler for each message (or batch), as slots become free.

        A suspect cancels *scope*, which ends the whole intake, and is left to be handled alone.
        """
        slots, size, wait = self._executions.slots, group[0].size, group[0].wait
        prefetch = Prefetch(
            lambda count: self._receive(group, count),
            context_of(group[0].queue),
            max(self._prefetch, size),
        )
        self._ahead.add(prefetch)
        async with TaskGroup() as tasks:
            tasks.start_soon(prefetch.fill)
            try:
                while True:
                    batch = await prefetch.take_many(size or 1, wait)
                    if batch[0].suspect:
                        if self.suspect is None:
                            self.suspect = batch.pop()
                        prefetch.put_back(batch)
                        scope.cancel()
                        await anyio.sleep_forever()
                    try:
                        await slots.acquire()
                    except BaseException:
                        prefetch.put_back(batch)
                        raise
                    if prefetch.holds_suspect:
                        # It arrived while the batch waited for a slot: nothing begins beside it.
                        give_back(batch)
                        slots.release()
                    else:
                        self._executions.start(self._handlers[batch[0].queue], batch)
            finally:
                self._ahead.discard(prefetch)
                if giving_back := prefetch.close():
                    self._executions.counters.released += len(giving_back)
                    with anyio.CancelScope(shield=True):
                        await asyncio.wait(giving_back, timeout=_GIVE_BACK_S)

    async def _receive(self, group: list[QueueHandler], count: int) -> list[Delivery]:
        try:
            if self._order == "weighted" and len(group) > 1:
                # Sorting by u ** (1 / weight) draws an order: heavier ones tend to be first.
                drawn = sorted(group, key=lambda h: -(random.random() ** (1 / h.weight)))  # noqa: S311
                queues = [handler.queue for handler in drawn]
                if found := await self._rsmq.gateway.receive_ahead(queues, count):
                    return found
            # There is no message, so the order does not matter: all wait with the same one.
            queues = [handler.queue for handler in group]
            return await self._rsmq.gateway.receive_ahead(queues, count, wait=MAX_SECONDS)
        except RSMQError as error:
            self._executions.counters.note(error)
            raise

    async def _handle_alone(self) -> None:
        """Handle the suspect while the worker holds no other message, if handlers end in time."""
        suspect = self.suspect
        if suspect is None:
            return
        logger.info(
            "message %s of queue %r runs alone: %d deliveries in a row vanished with their holders",
            suspect.id, suspect.queue, suspect.strikes,
            extra={"queue": suspect.queue, "message_id": suspect.id, "rc": suspect.rc},
        )  # fmt: skip
        executions = self._executions
        # A handler that ignores its cancellation blocks only its slot.
        if running := [execution for execution in executions.running if not execution.stuck]:
            await asyncio.wait([execution.task for execution in running], timeout=self._alone)
        times = self.postponed.pop(suspect.id, 0)
        beside = sum(execution in executions.running for execution in running)
        # With several strikes it most likely kills the process, and all handlers that run in it.
        if beside and suspect.strikes > 1 and self._postpone(suspect, beside, times + 1):
            self.suspect = None
            return
        # A cancelled receive may still have taken messages; wait until they are given back.
        await self._rsmq.wait_idle(_GIVE_BACK_S)
        await executions.slots.acquire()
        self.suspect = None
        execution = executions.start(self._handlers[suspect.queue], [suspect])
        await asyncio.wait([execution.task], timeout=self._alone)

    def _postpone(self, suspect: Delivery, beside: int, times: int) -> bool:
        """Put a suspect back because *beside* handlers run; return False after too many times."""
        if times > _MAX_POSTPONED:
            logger.warning(
                "message %s of queue %r runs beside %d handlers that take long: it was put back %d"
                " times, and %d deliveries in a row vanished with their holders",
                suspect.id, suspect.queue, beside, _MAX_POSTPONED, suspect.strikes,
                extra={"queue": suspect.queue, "message_id": suspect.id, "rc": suspect.rc},
            )  # fmt: skip
            return False
        delay = 10 * self._alone
        logger.warning(
            "message %s of queue %r is put back for %g s: %d deliveries in a row vanished with"
            " their holders, and %d handlers that run here take long",
            suspect.id, suspect.queue, delay, suspect.strikes, beside,
            extra={"queue": suspect.queue, "message_id": suspect.id, "rc": suspect.rc},
        )  # fmt: skip
        suspect.release_nowait(delay, unseen=True)
        self.postponed[suspect.id] = times
        if len(self.postponed) > _POSTPONED_IDS:
            # Drop the oldest: another worker has most likely handled it.
            del self.postponed[next(iter(self.postponed))]
        return True
