"""Samples of many queues, and the rates between two samples; for ``rsmqctl top`` and dashboards."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from .client import RSMQ
from .errors import InvalidValue, QueueCorrupt, QueueNotFound
from .models import QueueStats

#: Number of concurrent requests.
_AT_ONCE = 64
#: Number of samples in the sparkline of a queue.
HISTORY = 60


@dataclass(slots=True)
class Trace:
    """History of one queue: the last two samples, and earlier depths."""

    stats: QueueStats
    at: float
    before: Trace | None = None
    depths: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def row(self, name: str) -> dict[str, Any]:
        """Return the queue as a record; rates are null until there are two samples."""
        found = self.stats.attributes
        return {
            "queue": name,
            "ready": found.ready,
            "leased": found.leased,
            "delayed": found.delayed,
            "oldest_age": found.oldest_age,
            **self._rates(),
            "dead": self.stats.dead,
            "consumers": sum(consumer.consumers for consumer in self.stats.consumers),
        }

    def _rates(self) -> dict[str, Any]:
        """Return rates of sends, of messages that left the queue, and of retries.

        Every delivery between two samples ends in one of three ways: its message left the queue,
        is still leased, or came back. So the remainder is the number of messages that came back.
        """
        if self.before is None or self.at <= self.before.at:
            return {"in_s": None, "out_s": None, "retries_s": None}
        now, then = self.stats.attributes, self.before.stats.attributes
        seconds = self.at - self.before.at
        came = now.totalsent - then.totalsent
        left = came - (now.msgs - then.msgs)
        back = now.totalrecv - then.totalrecv - left - (now.leased - then.leased)
        return {
            "in_s": round(max(0, came) / seconds, 1),
            "out_s": round(max(0, left) / seconds, 1),
            "retries_s": round(max(0, back) / seconds, 1),
        }


class Sampler:
    """Takes samples of all queues."""

    def __init__(self) -> None:
        self.traces: dict[str, Trace] = {}

    async def look(self, rsmq: RSMQ) -> None:
        """Take one sample; deleted queues are dropped."""
        found = await all_stats(rsmq)
        self.take(found, time.monotonic())

    def take(
        self, found: dict[str, QueueStats], at: float, asked: Collection[str] | None = None
    ) -> None:
        """Store the sample *found*, taken at the time *at*, of all queues or those *asked* for."""
        traces = {}
        if asked is not None:
            traces = {name: trace for name, trace in self.traces.items() if name not in asked}
        for name, stats in found.items():
            before = self.traces.get(name)
            trace = Trace(stats, at, before)
            if before is not None:
                before.before = None
                trace.depths.extend(before.depths)
            trace.depths.append(stats.attributes.msgs)
            traces[name] = trace
        self.traces = traces

    def rows(self) -> list[dict[str, Any]]:
        """Return a record of each queue."""
        return [trace.row(name) for name, trace in self.traces.items()]


async def all_stats(
    rsmq: RSMQ,
    names: Sequence[str] | None = None,
    damaged: Callable[[str], None] = lambda _: None,
    *,
    all_exist: bool = True,
) -> dict[str, QueueStats]:
    """Return the stats of *names*, by default of all queues; deleted queues are left out.

    With *all_exist*, a queue that was named must exist. The callback *damaged* is given the names
    of damaged queues.
    """
    wanted = await rsmq.list_queues() if names is None else names
    limit = asyncio.Semaphore(_AT_ONCE)

    async def look(name: str) -> QueueStats | None:
        async with limit:
            try:
                return await rsmq.queue(name).stats()
            except (
                QueueNotFound,
                QueueCorrupt,
                InvalidValue,
            ) as error:
                if names is not None and all_exist:
                    raise
                if not isinstance(error, QueueNotFound):
                    damaged(name)
                return None  # deleted since, or damaged: report the others

    looks = await asyncio.gather(*map(look, wanted))
    return {name: stats for name, stats in zip(wanted, looks, strict=True) if stats is not None}
