"""Measurements: which report of a client changes which instrument; the same for both outlets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

from .hooks import ClientCall, Handled, ObservedClient, ObservedWorker, Telemetry
from .hooks import Process as Work
from .instruments import Instrument, Process

#: Adds a value to a counter or a histogram, under the values of its labels.
Update = Callable[[float, tuple[str, ...]], object]
#: Queues that have series of their own; further ones share one. Series are never forgotten.
MAX_QUEUES = 1000
#: The label of further queues.
OTHER = "(other)"
#: What joins topic, consumer and peer in the name of the queue of one peer.
_MARK = "__"


class Measurements(Telemetry):
    """Counts what a client reports. Subclasses make the instruments, and read the gauges."""

    def __init__(self, make: Callable[[Instrument], Update]) -> None:
        self._calls, self._call_duration = make(Process.calls), make(Process.call_duration)
        self._sent, self._received = make(Process.sent), make(Process.received)
        self._settled, self._retries = make(Process.settled), make(Process.retries)
        self._lost, self._handled = make(Process.lease_lost), make(Process.handled)
        self._handler_duration, self._wait = make(Process.handler_duration), make(Process.wait)
        self._clients: WeakSet[ObservedClient] = WeakSet()
        self._workers: set[ObservedWorker] = set()
        self._queues: dict[tuple[str, str], tuple[str, str]] = {}

    def gauges(self) -> Iterator[tuple[Instrument, tuple[str, ...], int]]:
        """Yield the gauges as they are now: instrument, labels, value."""
        clients = list(self._clients)
        up = Counter(client.namespace for client in clients if client.is_open)
        connected = Counter(client.namespace for client in clients if client.is_connected)
        for namespace, number in up.items():
            yield Process.open, (namespace,), number
            yield Process.connected, (namespace,), connected[namespace]
        for instrument, name in (
            (Process.running, "running"),
            (Process.stuck, "stuck"),
            (Process.prefetched, "prefetched"),
        ):
            for labels, number in self._of_workers(name).items():
                yield instrument, labels, number

    def _of_workers(self, name: str) -> Mapping[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for worker in list(self._workers):
            for queue in worker.queues:  # also those of which there is nothing now
                found[self._place(worker.namespace, queue)] += 0
            for queue, number in getattr(worker, name).items():
                found[self._place(worker.namespace, queue)] += number
        return found

    def on_client(self, client: ObservedClient) -> None:
        """Read the gauges of *client* from now on."""
        self._clients.add(client)

    def on_call(self, call: ClientCall) -> Callable[[], object]:
        """Count *call* when it ends."""
        return partial(self._ended, call)

    def _ended(self, call: ClientCall) -> None:
        operation, error = call.operation, call.error or ""
        self._calls(1, (operation, error))
        self._call_duration(call.duration, (operation, error))
        if call.type == "send":
            place = self._place(call.namespace, call.queue)
            self._sent(call.messages, (*place, operation, error))
        elif not error and call.type == "settle":
            place = self._place(call.namespace, call.queue)
            self._settled(call.messages, (*place, operation))
        elif call.type == "receive":
            for queue, number in call.received.items():
                self._received(number, (*self._place(call.namespace, queue), operation))

    def on_retry(self, operation: str, namespace: str, queue: str) -> None:
        """Count a retry of *operation*; not by *namespace* and *queue*."""
        self._retries(1, (operation,))

    @contextmanager
    def on_process(self, process: Work) -> Iterator[None]:
        """Measure *process*, and the waits before it."""
        place = self._place(process.namespace, process.queue)
        for wait in process.waits:
            self._wait(wait, place)
        try:
            yield
        finally:
            self._handler_duration(process.duration, (*place, process.error or ""))

    def on_handled(self, handled: Handled) -> None:
        """Count messages: *handled*."""
        place = self._place(handled.namespace, handled.queue)
        self._handled(handled.count, (*place, handled.outcome))

    def on_lease_lost(self, namespace: str, queue: str) -> None:
        """Count a lost lease in *queue* of *namespace*."""
        self._lost(1, self._place(namespace, queue))

    def on_worker(self, worker: ObservedWorker) -> Callable[[], object]:
        """Read the gauges of *worker* until it ends."""
        self._workers.add(worker)
        return partial(self._workers.discard, worker)

    def _place(self, namespace: str, queue: str) -> tuple[str, str]:
        """Return the labels of a queue. Queues of the peers of one consumer share them."""
        place = self._queues.get((namespace, queue))
        if place is not None:
            return place
        if len(self._queues) >= MAX_QUEUES:
            return (namespace, OTHER)
        parts = queue.split(_MARK)
        label = _MARK.join((*parts[:2], "{peer}")) if len(parts) == 3 and parts[2] else queue
        if label != queue:
            return (namespace, label)
        self._queues[namespace, queue] = place = (namespace, queue)
        return place


def without_zero(update: Update) -> Update:
    """Return an update of a counter that makes no series for nothing."""

    def add(value: float, labels: tuple[str, ...]) -> Any:
        return update(value, labels) if value else None

    return add
