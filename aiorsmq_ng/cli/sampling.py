"""Looking at all queues at once, and what two looks tell about the time between them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiorsmq_ng

from .output import Record

#: How many looks the curve of a queue remembers.
HISTORY = 60
#: Queues that are asked at the same time.
_AT_ONCE = 64


async def all_stats(
    rsmq: aiorsmq_ng.RSMQ,
    names: Sequence[str] | None = None,
    damaged: Callable[[str], None] = lambda _: None,
) -> dict[str, aiorsmq_ng.QueueStats]:
    """Return the stats of *names*, by default of all queues; those deleted meanwhile are left out.

    A queue that was named must exist. Of the others, *damaged* is told those that are none.
    """
    wanted = await rsmq.list_queues() if names is None else names
    limit = asyncio.Semaphore(_AT_ONCE)

    async def look(name: str) -> aiorsmq_ng.QueueStats | None:
        async with limit:
            try:
                return await rsmq.queue(name).stats()
            except (
                aiorsmq_ng.QueueNotFound,
                aiorsmq_ng.QueueCorrupt,
                aiorsmq_ng.InvalidValue,
            ) as error:
                if names is not None:
                    raise
                if not isinstance(error, aiorsmq_ng.QueueNotFound):
                    damaged(name)
                return None  # deleted since, or not one of ours: the others matter more

    looks = await asyncio.gather(*map(look, wanted))
    return {name: stats for name, stats in zip(wanted, looks, strict=True) if stats is not None}


@dataclass(slots=True)
class Trace:
    """What was seen of one queue: the last two looks, and how deep it was before."""

    stats: aiorsmq_ng.QueueStats
    at: float
    before: Trace | None = None
    depths: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def row(self, name: str) -> Record:
        """Return the queue as ``top`` shows it; rates are null until there are two looks."""
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

    def _rates(self) -> Record:
        """Count what came, what left, and what was delivered and neither left nor stayed out.

        Every delivery between two looks ends in one of three ways: its message left the queue, is
        leased still, or came back. So what is left over is the number of messages that came back.
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
    """Looks at all queues again and again."""

    def __init__(self) -> None:
        self.traces: dict[str, Trace] = {}

    async def look(self, rsmq: aiorsmq_ng.RSMQ) -> None:
        """Look once; queues that are gone are forgotten."""
        found = await all_stats(rsmq)
        self.take(found, time.monotonic())

    def take(self, found: dict[str, aiorsmq_ng.QueueStats], at: float) -> None:
        """Take note of what a look at the time *at* has found."""
        traces = {}
        for name, stats in found.items():
            before = self.traces.get(name)
            trace = Trace(stats, at, before)
            if before is not None:
                before.before = None
                trace.depths.extend(before.depths)
            trace.depths.append(stats.attributes.msgs)
            traces[name] = trace
        self.traces = traces

    def rows(self) -> list[Record]:
        """Return the queues as ``top`` shows them."""
        return [trace.row(name) for name, trace in self.traces.items()]
