"""Metrics of queues for Prometheus, read from the server; ``rsmqctl serve metrics`` has them.

One sample serves all scrapers of an interval. It costs one call per queue, and the calls share
round trips and connections. With many queues the interval grows, so that the server is asked for a
limited number of queues per second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import version

from ._common.durations import Seconds, in_seconds
from .client import RSMQ
from .errors import InvalidValue, RSMQError
from .models import QueueStats
from .sampling import all_stats
from .telemetry.instruments import STATES, Instrument, Queues, instruments

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError:
    raise InvalidValue(
        'metrics of queues need the extra "metrics": pip install "aiorsmq-ng[metrics]"'
    ) from None

#: Seconds for which a sample of few queues is used again.
INTERVAL_S = 5.0
#: Most queues that are read per second on average: five thousand of them every twenty seconds.
QUEUES_PER_S = 250
#: Most queues that have metrics; further ones, by name, are counted.
MAX_QUEUES = 10_000
#: Seconds after which a sample is given up; Prometheus gives up after ten by default.
SAMPLE_S = 8.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at all queues has found."""

    up: bool = False
    at: float = 0.0
    duration: float = 0.0
    stats: dict[str, QueueStats] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    left_out: int = 0


class QueueMetrics:
    """Metrics of the queues of a client, for one exporter.

    Args:
        rsmq: the client; it is not closed.
        names: names of queues or patterns, such as ``orders-*``.
        interval: seconds for which a sample is used again; longer for more than 1250 queues.
        beside: a registry whose metrics are on the same page.
    """

    def __init__(
        self,
        rsmq: RSMQ,
        names: Sequence[str] = ("*",),
        *,
        interval: Seconds = INTERVAL_S,
        beside: CollectorRegistry | None = None,
    ) -> None:
        self._rsmq = rsmq
        self._patterns = tuple(names)
        self._interval_s = in_seconds("interval", interval)
        self._beside = beside
        self._sampling = asyncio.Lock()
        self._fresh_until = 0.0
        #: The last sample.
        self.sample = Sample()

    async def page(
        self, accept: str = "", sees: Callable[[str], bool] = lambda _: True
    ) -> tuple[bytes, str]:
        """Return the metrics as text, and its content type; never fails because of the server.

        Args:
            accept: the header of the request, which chooses the format.
            sees: returns True if the metrics of a queue, by its name, may be shown.
        """
        await self.look()
        registry = CollectorRegistry(auto_describe=False)
        found = families(self.sample, self._rsmq, sees)
        if self._beside is not None:
            found += self._beside.collect()
        registry.register(_Families(found))
        encode, content_type = choose_encoder(accept)
        # In a thread: thousands of queues take some milliseconds each hundred.
        return await asyncio.to_thread(encode, registry), content_type

    async def look(self) -> None:
        """Read the queues, unless the last sample can be used again."""
        async with self._sampling:
            if time.monotonic() < self._fresh_until:
                return
            began_at, began = time.time(), time.monotonic()
            found = await self._read()
            took_s = time.monotonic() - began
            self.sample = Sample(found is not None, began_at, took_s, *(found or ({}, (), 0)))
            pause_s = max(self._interval_s, len(self.sample.stats) / QUEUES_PER_S)
            self._fresh_until = began + pause_s

    async def _read(self) -> tuple[dict[str, QueueStats], tuple[str, ...], int] | None:
        """Return stats, damaged queues and how many were left out; ``None`` without an answer."""
        try:
            async with asyncio.timeout(SAMPLE_S):
                listed = await self._rsmq.list_queues()
                names = [name for name in listed if self._wanted(name)]
                damaged: list[str] = []
                stats = await all_stats(
                    self._rsmq, names[:MAX_QUEUES], damaged.append, all_exist=False
                )
        except (RSMQError, TimeoutError):
            return None
        return stats, tuple(damaged), max(0, len(names) - MAX_QUEUES)

    def _wanted(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)


class _Families(Collector):
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def families(
    sample: Sample, rsmq: RSMQ, sees: Callable[[str], bool] = lambda _: True
) -> list[Metric]:
    """Return the metrics of a sample, with the queues that may be seen."""
    made = {
        one: (CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily)(
            one.name.removesuffix("_total"), one.help, labels=one.labels
        )
        for one in instruments(Queues)
    }
    for instrument, labels, value in _values(sample, rsmq, sees):
        made[instrument].add_metric(labels, value)
    made[Queues.build].add_metric((version("aiorsmq-ng"),), 1)
    return [family for family in made.values() if family.samples]


def _values(
    sample: Sample, rsmq: RSMQ, sees: Callable[[str], bool]
) -> Iterator[tuple[Instrument, tuple[str, ...], float]]:
    namespace = rsmq.ns
    yield Queues.up, (namespace,), sample.up
    yield Queues.sampled, (namespace,), sample.at
    yield Queues.duration, (namespace,), sample.duration
    yield Queues.left_out, (namespace,), sample.left_out
    for name in filter(sees, sample.damaged):
        yield Queues.damaged, (namespace, name), 1
    for name, stats in sample.stats.items():
        if sees(name):
            yield from _of_queue((rsmq.queue(name).ns, name), stats)


def _of_queue(
    place: tuple[str, str], stats: QueueStats
) -> Iterator[tuple[Instrument, tuple[str, ...], float]]:
    for state in STATES:
        yield Queues.messages, (*place, state), getattr(stats, state)
    yield Queues.dead, place, stats.dead
    yield Queues.oldest_age, place, stats.oldest_age or 0.0
    yield Queues.sent, place, stats.attributes.totalsent
    yield Queues.received, place, stats.attributes.totalrecv
    yield Queues.consumers, place, sum(one.consumers for one in stats.consumers)
