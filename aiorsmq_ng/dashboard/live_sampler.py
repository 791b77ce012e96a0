"""Live figures: one sampler per process for all open pages; it rests while there is none."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncGenerator
from contextlib import suppress
from math import nan

from msgspec import Struct

from aiorsmq_ng import (
    RSMQ,
    ClientClosed,
    ConsumerInfo,
    InvalidValue,
    QueueStats,
    RSMQError,
    ServerError,
)

from .._common.queue_defaults import DEAD_SUFFIX
from ..broker.tokens import Caller
from ..sampling import Sampler, Trace, all_stats
from .streaming_responses import BEAT_S

#: Seconds between two samples of few queues.
INTERVAL_S = 2.0
#: Most queues that are looked at per second: a thousand of them are sampled every four seconds.
LOOKS_PER_S = 250
#: Seconds after which a sample is given up, and the pages say that the server is away.
LOOK_S = 5.0
#: Points in a chart; ten minutes at the shortest interval.
POINTS = 300
_SPARK = 60
#: A history with a longer gap begins again.
_GAP_S = 60.0
#: A message that waits for longer is trouble.
WAITS_LONG_S = 60.0
COLUMNS = ("at", "ready", "leased", "delayed", "dead", "in_s", "out_s", "oldest_age")


class QueueRow(Struct, kw_only=True):
    """One queue at one moment. Rates are per second, and null until there are two samples."""

    name: str
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    dead: int = 0
    #: Seconds for which the first message has been ready; null if none is.
    oldest_age: float | None = None
    in_s: float | None = None
    out_s: float | None = None
    retries_s: float | None = None
    consumers: int = 0
    #: What needs a look: ``damaged``, ``no consumers``, ``waits long``, ``dead letters``; or empty.
    trouble: str = ""
    #: Number of messages in the last samples.
    depths: list[int] = []


class Totals(Struct, kw_only=True):
    """All queues together."""

    queues: int = 0
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    dead: int = 0
    oldest_age: float | None = None
    in_s: float = 0.0
    out_s: float = 0.0
    #: Number of queues with trouble.
    trouble: int = 0


#: Kinds of trouble, worst first.
TROUBLE = ("damaged", "no consumers", "waits long", "dead letters", "")


def trouble_of(name: str, stats: QueueStats) -> str:
    """Return what needs a look at a queue; no consumers are no trouble of a dead-letter queue."""
    is_dead = name.endswith(DEAD_SUFFIX)
    if stats.ready and not stats.consumers and not is_dead:
        return "no consumers"
    if (stats.oldest_age or 0) > WAITS_LONG_S and not is_dead:
        return "waits long"
    return "dead letters" if stats.dead else ""


def totals_of(rows: list[QueueRow]) -> Totals:
    """Return the sums over *rows*. Dead letters count as such, not as ready ones."""
    work = [row for row in rows if not row.name.endswith(DEAD_SUFFIX)]
    ages = [row.oldest_age for row in work if row.oldest_age is not None]
    return Totals(
        queues=len(rows),
        ready=sum(row.ready for row in work),
        leased=sum(row.leased for row in work),
        delayed=sum(row.delayed for row in work),
        dead=sum(row.dead for row in rows),
        oldest_age=max(ages, default=None),
        in_s=round(sum(row.in_s or 0 for row in work), 1),
        out_s=round(sum(row.out_s or 0 for row in work), 1),
        trouble=sum(bool(row.trouble) for row in rows),
    )


class History:
    """The last points of one queue, column by column."""

    def __init__(self) -> None:
        self._columns = {name: array("d") for name in COLUMNS}

    def add(self, row: QueueRow, at: float) -> None:
        """Add a point; the oldest one goes."""
        times = self._columns["at"]
        if times and at - times[-1] > _GAP_S:
            self.__init__()  # type: ignore[misc]
        for name, column in self._columns.items():
            value = at if name == "at" else getattr(row, name)
            column.append(nan if value is None else value)
            if len(column) > POINTS:
                del column[0]

    def columns(self) -> dict[str, list[float | None]]:
        """Return all points; what was not known is null."""
        return {
            name: [None if value != value else value for value in column]
            for name, column in self._columns.items()
        }


class Watcher:
    """One open page: of all queues, or of one."""

    def __init__(self, queue: str | None) -> None:
        self.queue = queue
        self.news = asyncio.Event()


class LiveSampler:
    """Looks at the queues that open pages show, once for all of them."""

    def __init__(self, rsmq: RSMQ) -> None:
        self._rsmq = rsmq
        self._sampler = Sampler()
        self._histories: dict[str, History] = {}
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._looked_at: dict[str | None, float] = {}
        self.damaged: set[str] = set()
        self.closed = False
        #: Why the last look failed; empty if it did not.
        self.error = ""

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        for watcher in self._watchers:
            watcher.news.set()

    async def look(self, queue: str | None = None) -> None:
        """Make sure that the figures of *queue*, or of all, are not older than an interval."""
        async with self._looking:
            fresh = max(self._looked_at.get(None, 0.0), self._looked_at.get(queue, 0.0))
            if time.monotonic() - fresh > INTERVAL_S:
                await self._sample({queue})

    async def watch(self, watcher: Watcher) -> AsyncGenerator[bool, None]:
        """Yield True after every sample, and False when there was none for a while."""
        self._watchers.add(watcher)
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._run(), name="aiorsmq-ng dashboard sampler")
            while not self.closed:
                try:
                    async with asyncio.timeout(BEAT_S):
                        await watcher.news.wait()
                    watcher.news.clear()
                    yield True
                except TimeoutError:
                    yield False
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    def trace(self, queue: str) -> Trace | None:
        """Return the last sample of a queue."""
        return self._sampler.traces.get(queue)

    def history(self, queue: str) -> History:
        """Return the last points of a queue."""
        return self._histories.get(queue) or History()

    def consumers(self, queue: str) -> tuple[ConsumerInfo, ...]:
        """Return the consumers of a queue."""
        trace = self.trace(queue)
        return trace.stats.consumers if trace else ()

    def names(self) -> list[str]:
        """Return all queues of the last sample."""
        return [*self._sampler.traces, *self.damaged]

    def row(self, name: str) -> QueueRow | None:
        """Return a queue's row; ``None`` if it was not there."""
        if name in self.damaged:
            return QueueRow(name=name, trouble="damaged")
        trace = self.trace(name)
        if trace is None:
            return None
        figures = trace.row(name)
        figures["name"] = figures.pop("queue")
        trouble, depths = trouble_of(name, trace.stats), list(trace.depths)[-_SPARK:]
        return QueueRow(**figures, trouble=trouble, depths=depths)

    def rows(self, caller: Caller) -> list[QueueRow]:
        """Return the rows that *caller* may see, worst first."""
        found = [self.row(name) for name in self.names() if caller.sees_queue(name)]
        rows = [row for row in found if row is not None]
        return sorted(
            rows, key=lambda row: (TROUBLE.index(row.trouble), -(row.oldest_age or 0), row.name)
        )

    async def _run(self) -> None:
        while True:
            started = time.monotonic()
            async with self._looking:
                with suppress(RSMQError, TimeoutError):
                    await self._sample({watcher.queue for watcher in self._watchers})
            for watcher in self._watchers:
                watcher.news.set()
            count = len(self.names()) if any(w.queue is None for w in self._watchers) else 1
            pause_s = max(INTERVAL_S, count / LOOKS_PER_S)
            await asyncio.sleep(max(0.0, started + pause_s - time.monotonic()))

    async def _sample(self, wanted: set[str | None]) -> None:
        """Look at the queues *wanted*; ``None`` among them means all."""
        damaged: set[str] = set()
        try:
            async with asyncio.timeout(LOOK_S):
                if None in wanted:
                    found = await all_stats(self._rsmq, damaged=damaged.add)
                else:
                    found = await self._stats([name for name in wanted if name is not None])
        except ClientClosed:
            self.close()
            raise
        except (RSMQError, TimeoutError) as error:
            status = self._rsmq.server_status
            self.error = str(error) or status.error or "the server does not answer"
            raise
        self.error = ""
        now = time.monotonic()
        if None in wanted:
            self.damaged = damaged
            self._sampler.take(found, now)
        else:
            self._sampler.take(found, now, [name for name in wanted if name is not None])
        self._looked_at = {name: at for name, at in self._looked_at.items() if now - at < _GAP_S}
        self._looked_at |= dict.fromkeys(wanted, now)
        self._remember(found)

    async def _stats(self, names: list[str]) -> dict[str, QueueStats]:
        found: dict[str, QueueStats] = {}
        for name in names:
            with suppress(ServerError, InvalidValue):
                found |= await all_stats(self._rsmq, [name])
        return found

    def _remember(self, found: dict[str, QueueStats]) -> None:
        at = time.time()
        for name in found:
            row = self.row(name)
            if row is not None:
                self._histories.setdefault(name, History()).add(row, at)
        for name in [name for name in self._histories if name not in self._sampler.traces]:
            del self._histories[name]
