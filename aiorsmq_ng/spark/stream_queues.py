"""The queues of one streaming query: which they are, and what each contributes to a batch.

Every queue has claims and an offset of its own. Rules:

1. Queues are asked in parallel, and a batch waits for the slow ones for ``PATIENCE_S`` only. What
   is claimed later goes into a later batch. So a node that is down does not stop the others.
2. A queue that cannot be reached is passed over, and is tried again. If no queue can be reached,
   or the query is to end when all is consumed, that is an error.
3. Calls to one namespace use a few connections at most, so that calls that wait for a node leave
   connections for the other nodes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from .._common.tasks import retrieve_exception
from .._protocol.operations.queues import exists
from .._protocol.operations.spark.claims import Backlog
from ..errors import ClaimLost, InvalidValue, QueueCorrupt, QueueNotFound, RSMQError, Unavailable
from .fair_shares import divide
from .offsets import Offset, StreamOffset, qualified_name
from .options import MAX_CONNECTIONS, StreamReadOptions
from .queue_selection import matching_queues, named_queues
from .stream_claims import CLOSE_S, Calls, ClaimSlice, Limits, StreamClaims, StreamMetrics
from .stream_pacing import StreamPacing

if TYPE_CHECKING:
    from .._protocol.keys import QueueKeys
    from .._protocol.operation import Operation

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.spark")

#: Messages that one task reads, unless an option sets the number. It is the same on every machine,
#: because a batch that runs again must have the same partitions.
TASK_MESSAGES = 50_000
#: How long a batch waits for the queues that have not answered yet.
PATIENCE_S = 2.0
#: Pause for each queue after a question that found nothing.
IDLE_S = 0.002
#: Pause before a batch that is held back is considered again.
PACING_S = 0.05
#: Calls in flight to one namespace.
CALLS_PER_NAMESPACE = 4


def connections(options: StreamReadOptions) -> int:
    """Return how many connections a query needs, so that no namespace takes those of another."""
    return max(MAX_CONNECTIONS, CALLS_PER_NAMESPACE * len(options.shards.namespaces))


class NamespaceCalls:
    """Runs operations on one namespace, a few at a time."""

    def __init__(self, transport: Calls) -> None:
        self._transport = transport
        self._places = asyncio.Semaphore(CALLS_PER_NAMESPACE)

    async def run(self, operation: Operation[R]) -> R:
        """Run *operation* and return its result."""
        async with self._places:
            return await self._transport.run(operation)


class StreamQueues:
    """Holds the queues of one query, in the process that Spark runs for that query."""

    def __init__(self, options: StreamReadOptions, transport: Calls) -> None:
        self._options = options
        self._calls = {n: NamespaceCalls(transport) for n in options.shards.namespaces}
        self._transport = transport
        #: The queues by name: those that are selected, and those that only the checkpoint has.
        self._queues: dict[str, StreamClaims] = {}
        self._selected: set[str] = set()
        #: Queues that the checkpoint has and the options do not, and that are acknowledged.
        self._finished: set[str] = set()
        #: Steps that did not end within the patience of their batch, by kind and queue.
        self._steps: dict[tuple[str, str], asyncio.Task[Any]] = {}
        #: Queues that cannot be reached, and queues that are missing or damaged.
        self._away: dict[str, Unavailable] = {}
        self._set_aside: set[str] = set()
        #: Queues that did not exist: one that does now has nothing of what it had.
        self._dropped: set[str] = set()
        self._reported: set[str] = set()
        self._next_discovery = 0.0
        #: Namespaces whose queues the last discovery could not list.
        self._unlisted: dict[str, Unavailable] = {}
        #: True if the query ends when what is ready now is consumed.
        self._ends = False
        self._batch = 0
        self._pacing = StreamPacing(options)
        self._metrics = StreamMetrics()

    async def stop_at_now(self) -> None:
        """From now on, claim only messages that are ready at this moment."""
        await self._discover()
        for outage in self._unlisted.values():
            raise outage
        self._ends = True
        await self._on_each(self._selected_queues(), StreamClaims.stop_at_now, "stop", wait=True)
        self._raise_outage()

    async def backlog(self) -> Backlog:
        """Count the messages in all queues that answer."""
        await self._discover()
        found = await self._on_each(self._selected_queues(), StreamClaims.backlog, "backlog")
        now = max((one.now_ms for one in found.values()), default=0)
        return Backlog(
            now,
            sum(one.visible for one in found.values()),
            sum(one.hidden for one in found.values()),
            max((one.oldest_age_ms for one in found.values()), default=0),
        )

    @property
    def metrics(self) -> StreamMetrics:
        """What this process has done in all queues."""
        return self._metrics

    async def latest(self, start: StreamOffset, limit: int) -> StreamOffset:
        """Claim up to *limit* messages after *start*; return *start* if there are none."""
        self._check(start)
        await self._discover()
        await self._finish_others(start)
        queues = self._selected_queues()
        limit = await self._admitted(start, limit)
        if not limit:
            return start
        latest = await self._claim(queues, start, limit)
        if self._ends and not latest:
            # The query would end, so this is the last chance of those that are slow.
            latest = await self._claim(queues, start, limit, wait=True)
        if not latest:
            names = {qualified_name(queue.keys) for queue in self._selected_queues()}
            if self._ends or (names and self._away.keys() >= names):
                self._raise_outage()
            if not self._ends:
                # Spark asks again at once, and every question costs a call per queue.
                await asyncio.sleep(min(0.5, IDLE_S * (len(names) - 1)))
            return start
        self._batch += 1
        self._pacing.began(sum(offset.count for offset in latest.values()))
        gone = self._finished | self._dropped
        kept = {name: offset for name, offset in start.offsets.items() if name not in gone}
        self._dropped -= latest.keys()
        return StreamOffset({**kept, **latest})

    async def plan(self, start: StreamOffset, end: StreamOffset) -> list[list[ClaimSlice]]:
        """Divide what was claimed after *start* up to *end* into tasks.

        After a restart the tasks are the same.
        """
        self._check(start)
        self._check(end)
        found: list[ClaimSlice] = []
        for name, offset in sorted(end.offsets.items()):
            before = start.offsets.get(name) or Offset.first(offset.keys)
            if (before.ledger, before.claim) == (offset.ledger, offset.claim):
                continue
            queue = self._queue(offset.keys)
            try:
                found += await self._after_others(name, queue.plan(before, offset))
                queue.offer(offset)
            except RSMQError as error:
                if not await self._is_missing(offset.keys, error):
                    raise
                self._drop(name, error)
        options = self._options
        most = options.max_records_per_partition or TASK_MESSAGES
        return divide_slices(found, most, options.min_partitions)

    async def commit(self, end: StreamOffset) -> None:
        """Acknowledge everything up to *end*."""
        self._check(end)
        gone = self._finished | self._dropped
        names = sorted(end.offsets.keys() - gone)
        queues = [self._queue(end.offsets[name].keys) for name in names]

        async def commit(queue: StreamClaims) -> None:
            await queue.commit(end.offsets[qualified_name(queue.keys)])

        await self._on_each(queues, commit, "commit")
        if names and self._away.keys() >= set(names):
            self._raise_outage()

    async def aclose(self) -> None:
        """Stop renewing, and give back what Spark does not know."""
        if self._steps:
            await asyncio.wait(self._steps.values(), timeout=CLOSE_S)
        closings = (queue.aclose() for queue in self._queues.values())
        await asyncio.gather(*closings, return_exceptions=True)

    async def _admitted(self, start: StreamOffset, limit: int) -> int:
        """Return how many messages the next batch may have; 0 if Spark shall ask again later."""
        if not self._pacing.is_active:
            return limit
        while True:
            waiting = (await self.backlog()).visible if self._pacing.needs_backlog else 0
            admitted = self._pacing.admit(waiting, limit, ends=self._ends)
            if admitted:
                return admitted
            await self._finish(start)
            await asyncio.sleep(PACING_S)
            if not self._ends:
                return 0
            # Spark would take an answer without messages for the end of the query.

    async def _finish(self, start: StreamOffset) -> None:
        """Acknowledge what Spark has finished, without a claim."""
        if self._options.ack_on != "start":
            return

        async def finish(queue: StreamClaims) -> None:
            if offset := start.offsets.get(qualified_name(queue.keys)):
                await queue.finish(offset)

        await self._on_each(self._selected_queues(), finish, "finish")

    async def _claim(
        self,
        queues: list[StreamClaims],
        start: StreamOffset,
        limit: int,
        *,
        wait: bool = False,
    ) -> dict[str, Offset]:
        """Claim in all *queues*; return the offsets of those that have something new."""
        offsets = {}
        for queue in queues:
            name = qualified_name(queue.keys)
            known = None if name in self._dropped else start.offsets.get(name)
            offsets[name] = known or Offset.first(queue.keys)
        if self._options.is_single:
            given, waiting, ready = dict.fromkeys(offsets, limit), {}, {}
        else:
            found = await self._on_each(queues, StreamClaims.backlog, "backlog", wait=wait)
            waiting = {name: backlog.visible for name, backlog in found.items()}
            ready = self._ready(offsets)
            others = {name: size for name, size in waiting.items() if name not in ready}
            shares = divide(limit - sum(ready.values()), others, self._batch)
            given = self._left(limit, offsets) | ready | shares
        limits = self._limits(given)

        async def claim(queue: StreamClaims) -> Offset:
            name = qualified_name(queue.keys)
            offset = offsets[name]
            if name in given:
                return await queue.latest(offset, limits[name])
            if self._options.ack_on == "start":
                await queue.finish(offset)
            return offset

        # Queues that were not counted are late, and are not asked for more.
        single = self._options.is_single
        counted = [
            q for q in self._selected_queues() if single or qualified_name(q.keys) in waiting
        ]
        reached = await self._on_each(counted, claim, "claim", wait=wait)
        latest = {name: offset for name, offset in reached.items() if offset != offsets[name]}
        for name, offset in latest.items():
            self._queues[name].offer(offset)
        if single:
            more = {name: limit for name, o in latest.items() if self._queues[name].is_full(o)}
        else:
            rest = {
                name: size - (latest[name].count if name in latest and name not in ready else 0)
                for name, size in waiting.items()
            }
            more = divide(limit, rest, self._batch + 1)
        self._claim_ahead(latest, more)
        return latest

    def _left(self, limit: int, offsets: Mapping[str, Offset]) -> dict[str, int]:
        """Return equal shares for queues that may have claims of an earlier run.

        Those that Spark does not know are given back when the queue is claimed from, and are not in
        its backlog before.
        """
        return {
            name: max(1, limit // len(offsets))
            for name, offset in offsets.items()
            if (offset.ledger or self._options.ledger)
            and (queue := self._queues.get(name))
            and not queue.is_attached
        }

    def _ready(self, offsets: Mapping[str, Offset]) -> dict[str, int]:
        """Return the sizes of claims that are made already, or are being made."""
        sizes = {
            name: queue.ready_after(offset)
            for name, offset in offsets.items()
            if (queue := self._queues.get(name))
        }
        return {name: size for name, size in sizes.items() if size is not None}

    def _limits(self, given: Mapping[str, int]) -> dict[str, Limits]:
        """Return the limits of claims of *given* messages; bytes are divided in proportion.

        A queue that gets nothing has limits of one message: its call acknowledges.
        """
        most, total = self._options.max_bytes_per_trigger, max(1, sum(given.values()))
        return {
            name: Limits(
                max(1, given.get(name, 0)),
                max(1, most * given.get(name, 0) // total) if most else 0,
            )
            for name in self._queues
        }

    def _claim_ahead(self, latest: Mapping[str, Offset], more: Mapping[str, int]) -> None:
        """Start the claims of the next batch.

        What *more* gives to queues that have nothing in this batch stays free for them.
        """
        if self._pacing.is_active:
            return
        limits = self._limits(more)
        for name in more.keys() & latest.keys():
            self._queues[name].claim_ahead(latest[name], limits[name])

    async def _finish_others(self, start: StreamOffset) -> None:
        """Acknowledge what the checkpoint has of queues that are not selected any more."""
        others = start.offsets.keys() - self._selected - self._finished - self._dropped

        async def finish(queue: StreamClaims) -> None:
            await queue.finish(start.offsets[qualified_name(queue.keys)])

        queues = [self._queue(start.offsets[name].keys) for name in sorted(others)]
        self._finished |= (await self._on_each(queues, finish, "finish")).keys()

    async def _on_each(
        self,
        queues: Iterable[StreamClaims],
        step: Callable[[StreamClaims], Coroutine[Any, Any, R]],
        kind: str,
        *,
        wait: bool = False,
    ) -> dict[str, R]:
        """Take a step in all *queues*; return the results of those that end in time.

        A step that did not end in time is continued, not repeated, by the next one of its *kind*.
        An error that concerns one queue only is noted; others are raised.
        """
        tasks: dict[str, asyncio.Task[R]] = {}
        for queue in queues:
            name = qualified_name(queue.keys)
            if (task := self._steps.pop((kind, name), None)) is None:
                work = step(queue) if kind == "backlog" else self._after_others(name, step(queue))
                task = asyncio.create_task(work)
                # The result of one that is late may never be asked for.
                task.add_done_callback(retrieve_exception)
            tasks[name] = task
        if not tasks:
            return {}
        patience = None if wait or len(self._selected) == 1 else PATIENCE_S
        try:
            await asyncio.wait(tasks.values(), timeout=patience)
        finally:
            self._steps |= {(kind, name): t for name, t in tasks.items() if not t.done()}
        results: dict[str, R] = {}
        for name, task in tasks.items():
            if task.done():
                try:
                    results[name] = task.result()
                    self._away.pop(name, None)
                except RSMQError as error:
                    await self._note(name, error)
        return results

    async def _after_others(self, name: str, work: Coroutine[Any, Any, R]) -> R:
        """Run *work* on a queue when the late steps of that queue have ended."""
        others = [t for (kind, of), t in self._steps.items() if of == name and kind != "backlog"]
        if others:
            await asyncio.wait(others)
        return await work

    async def _note(self, name: str, error: RSMQError) -> None:
        """Note the error of one queue, or raise it if the query cannot go on."""
        queue = self._queues.get(name)
        if isinstance(error, Unavailable) and not self._options.is_single:
            if name not in self._away:
                logger.warning("queue %s cannot be reached; the others go on: %s", name, error)
                self._metrics.outages += 1
            self._away[name] = error
        elif queue is not None and await self._is_missing(queue.keys, error):
            self._drop(name, error)
        elif isinstance(error, QueueCorrupt) and self._options.skips_missing:
            self._report(name, "%s; it is left out until it is mended", error)
            self._set_aside.add(name)
        else:
            raise error

    async def _is_missing(self, keys: QueueKeys, error: RSMQError) -> bool:
        """Return True if *error* came because a queue does not exist, and that is allowed."""
        if not self._options.skips_missing:
            return False
        if isinstance(error, QueueNotFound):
            return True
        # A client may delete a queue with all that belongs to it.
        lost = isinstance(error, ClaimLost) or isinstance(error.__cause__, ClaimLost)
        return lost and not await self._calls[keys.namespace].run(exists(keys))

    def _drop(self, name: str, error: RSMQError) -> None:
        """Leave out a queue that does not exist. If it is created, it begins as a new one."""
        self._report(name, "%s; the other queues are read", error)
        self._set_aside.add(name)
        self._dropped.add(name)
        if queue := self._queues.pop(name, None):
            self._steps["close", name] = asyncio.create_task(queue.aclose())

    def _report(self, name: str, text: str, error: RSMQError) -> None:
        if name not in self._reported:
            logger.warning(text, error)
        self._reported.add(name)

    def _raise_outage(self) -> None:
        for error in self._away.values():
            raise error

    async def _discover(self) -> None:
        """Find the queues that are selected, and try those again that were set aside."""
        now = time.monotonic()
        if self._ends or now < self._next_discovery:
            return
        self._next_discovery = now + self._options.discover_every_ms / 1000
        self._set_aside.clear()
        if self._options.queues_pattern:
            found = await self._matching()
        else:
            found = named_queues(self._options)
        for keys in found:
            self._queue(keys)
            self._selected.add(qualified_name(keys))
            self._finished.discard(qualified_name(keys))

    async def _matching(self) -> list[QueueKeys]:
        """Return the queues that the pattern selects, in namespaces that answer."""
        tasks = {
            namespace: asyncio.create_task(matching_queues(calls, self._options, namespace))
            for namespace, calls in self._calls.items()
            if namespace in self._options.shards.namespaces
        }
        self._unlisted.clear()
        known = bool(self._selected)
        await asyncio.wait(tasks.values(), timeout=PATIENCE_S if known else None)
        found: list[QueueKeys] = []
        for namespace, task in tasks.items():
            if not task.done():
                task.cancel()
                continue
            try:
                found += task.result()
            except Unavailable as error:
                logger.warning("namespace %s cannot be reached: %s", namespace.name, error)
                self._unlisted[namespace.name] = error
        if len(self._unlisted) == len(tasks):
            raise next(iter(self._unlisted.values()))
        return found

    def _check(self, offset: StreamOffset) -> None:
        if not self._options.is_single:
            return
        keys = self._options.keys_of(self._options.names[0])
        for name, other in offset.offsets.items():
            if name != qualified_name(keys):
                raise InvalidValue(
                    f"the checkpoint belongs to queue {other.queue!r} in namespace "
                    f"{other.namespace!r}, not to {keys.queue!r} in "
                    f"{keys.namespace.name!r}; use another checkpointLocation"
                )

    def _selected_queues(self) -> list[StreamClaims]:
        names = sorted(self._selected - self._set_aside)
        return [self._queues[name] for name in names if name in self._queues]

    def _queue(self, keys: QueueKeys) -> StreamClaims:
        name = qualified_name(keys)
        if name not in self._queues:
            calls = self._calls.setdefault(keys.namespace, NamespaceCalls(self._transport))
            self._queues[name] = StreamClaims(self._options, keys, calls, self._metrics)
        return self._queues[name]


def divide_slices(found: list[ClaimSlice], most: int, tasks: int) -> list[list[ClaimSlice]]:
    """Divide slices into tasks of up to *most* messages, at least *tasks* of them."""
    total = sum(slice.stop - slice.start for slice in found)
    count = max(1, min(total, max(tasks, -(-total // most))))
    bounds = [total * n // count for n in range(count + 1)]
    return [list(_between(found, low, high)) for low, high in pairwise(bounds) if total]


def _between(found: list[ClaimSlice], low: int, high: int) -> Iterator[ClaimSlice]:
    """Return the messages from number *low* up to *high* of all slices."""
    first = 0
    for slice in found:
        size = slice.stop - slice.start
        start, stop = max(low - first, 0), min(high - first, size)
        if start < stop:
            yield replace(slice, start=slice.start + start, stop=slice.start + stop)
        first += size
