"""Gauges of a worker: what is running, stuck and leased ahead, read when telemetry looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from .handler_execution import Executions
from .intake import Intake


class WorkerGauges:
    """What a worker is doing at this moment, by queue."""

    def __init__(
        self,
        namespace: str,
        queues: Sequence[str],
        executions: Executions,
        intake: Callable[[], Intake | None],
    ) -> None:
        self.namespace = namespace
        self.queues = queues
        self._executions = executions
        self._intake = intake

    @property
    def running(self) -> Mapping[str, int]:
        """Handlers running now; those that are stuck excluded."""
        return self._handlers(stuck=False)

    @property
    def stuck(self) -> Mapping[str, int]:
        """Handlers that ignore their cancellation; those left behind included."""
        return self._handlers(stuck=True) + self._executions.left_behind

    @property
    def prefetched(self) -> Mapping[str, int]:
        """Messages that are leased ahead, and no handler works on."""
        intake = self._intake()
        return Counter() if intake is None else intake.prefetched

    def _handlers(self, *, stuck: bool) -> Counter[str]:
        # A copy: outlets may look from another thread.
        running = tuple(self._executions.running)
        return Counter(e.handler.queue.name for e in running if e.stuck is stuck)
