"""The table of instruments: every metric of this library, for Prometheus and for OpenTelemetry.

Both outlets, the exporter of queues, the page of metrics in the guide, the dashboard for Grafana
and the alert rules are built from this table, or compared with it by tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

#: Bounds of the conventions of OpenTelemetry for durations of calls and of work.
DURATIONS = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25),
    *(0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)  # fmt: skip
#: Messages wait for milliseconds, or for days.
WAITS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)

#: What OpenTelemetry calls a label.
ATTRIBUTES = {
    "namespace": "messaging.rsmq.namespace",
    "queue": "messaging.destination.name",
    "operation": "messaging.operation.name",
    "error": "error.type",
    "outcome": "messaging.rsmq.outcome",
}


class Instrument(NamedTuple):
    """One metric: its names, and how it is measured."""

    #: The name for Prometheus, with the suffix of a counter.
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    #: One sentence.
    help: str
    labels: tuple[str, ...]
    #: The name for OpenTelemetry; empty for metrics that only the exporter of queues has.
    otel: str = ""
    #: Its unit, as OpenTelemetry writes it.
    unit: str = "1"
    buckets: tuple[float, ...] = ()


def _counter(name: str, help: str, labels: str, otel: str = "", unit: str = "1") -> Instrument:
    return Instrument(name, "counter", help, tuple(labels.split()), otel, unit)


def _gauge(name: str, help: str, labels: str, otel: str = "", unit: str = "1") -> Instrument:
    return Instrument(name, "gauge", help, tuple(labels.split()), otel, unit)


class Process:
    """Metrics of a process: what its clients and workers do."""

    calls = _counter(
        "rsmq_client_calls_total",
        "Operations of clients; the error is empty if there was none.",
        "operation error", "rsmq.client.calls", "{call}",
    )  # fmt: skip
    call_duration = Instrument(
        "rsmq_client_call_duration_seconds",
        "histogram",
        "Duration of operations of clients, with retries; a receive that waits makes several.",
        ("operation", "error"),
        "messaging.client.operation.duration", "s", DURATIONS,
    )  # fmt: skip
    sent = _counter(
        "rsmq_client_sent_messages_total",
        "Messages that clients have sent, or have tried to.",
        "namespace queue operation error", "messaging.client.sent.messages", "{message}",
    )  # fmt: skip
    received = _counter(
        "rsmq_client_received_messages_total",
        "Messages that clients have received or popped, redeliveries included.",
        "namespace queue operation", "messaging.client.consumed.messages", "{message}",
    )  # fmt: skip
    settled = _counter(
        "rsmq_client_settled_messages_total",
        "Messages that clients have acked, released, rejected, forwarded or extended.",
        "namespace queue operation", "rsmq.client.settled.messages", "{message}",
    )  # fmt: skip
    retries = _counter(
        "rsmq_client_retries_total",
        "Round trips that were made again.",
        "operation", "rsmq.client.retries", "{retry}",
    )  # fmt: skip
    lease_lost = _counter(
        "rsmq_lease_lost_total",
        "Leases that were lost: their messages are delivered again, or were deleted.",
        "namespace queue", "rsmq.lease.lost", "{lease}",
    )  # fmt: skip
    open = _gauge(
        "rsmq_client_open", "Clients that are open.", "namespace", "rsmq.client.open", "{client}"
    )
    connected = _gauge(
        "rsmq_client_connected",
        "Clients that are open and whose server answers.",
        "namespace", "rsmq.client.connected", "{client}",
    )  # fmt: skip
    handled = _counter(
        "rsmq_worker_handled_total",
        "Messages that workers have handled, by what became of them.",
        "namespace queue outcome", "rsmq.worker.handled.messages", "{message}",
    )  # fmt: skip
    handler_duration = Instrument(
        "rsmq_worker_handler_duration_seconds",
        "histogram",
        "Duration of handlers and of blocks 'async with message'; the error is the class raised.",
        ("namespace", "queue", "error"),
        "messaging.process.duration", "s", DURATIONS,
    )  # fmt: skip
    wait = Instrument(
        "rsmq_worker_wait_seconds",
        "histogram",
        "Time from the send of a message, its delay included, to the start of its first handler.",
        ("namespace", "queue"),
        "rsmq.worker.wait.duration", "s", WAITS,
    )  # fmt: skip
    running = _gauge(
        "rsmq_worker_running", "Handlers that run.",
        "namespace queue", "rsmq.worker.running", "{handler}",
    )  # fmt: skip
    stuck = _gauge(
        "rsmq_worker_stuck", "Handlers that ignore their cancellation.",
        "namespace queue", "rsmq.worker.stuck", "{handler}",
    )  # fmt: skip
    prefetched = _gauge(
        "rsmq_worker_prefetched", "Messages that are leased ahead of their handlers.",
        "namespace queue", "rsmq.worker.prefetched", "{message}",
    )  # fmt: skip


class Queues:
    """Metrics of queues, read from the server by one exporter."""

    messages = _gauge(
        "rsmq_queue_messages", "Messages in a queue.", "namespace queue state", unit="{message}"
    )
    dead = _gauge(
        "rsmq_queue_dead_messages",
        "Messages in the dead-letter queue of a queue; that queue has metrics of its own, too.",
        "namespace queue", unit="{message}",
    )  # fmt: skip
    oldest_age = _gauge(
        "rsmq_queue_oldest_ready_age_seconds",
        "Time for which the message at the head has been ready; 0 if none is.",
        "namespace queue", unit="s",
    )  # fmt: skip
    sent = _counter(
        "rsmq_queue_sent_total",
        "Messages that were sent to a queue by all clients; 0 again if it is created again.",
        "namespace queue", unit="{message}",
    )  # fmt: skip
    received = _counter(
        "rsmq_queue_received_total",
        "Deliveries of a queue to all clients, redeliveries included; resets as that of sends.",
        "namespace queue", unit="{message}",
    )  # fmt: skip
    consumers = _gauge(
        "rsmq_queue_consumers",
        "Workers and consumers of this library that read a queue; other clients are not seen.",
        "namespace queue", unit="{consumer}",
    )  # fmt: skip
    damaged = _gauge(
        "rsmq_queue_damaged", "1 for a queue that cannot be read; see rsmqctl doctor.",
        "namespace queue",
    )  # fmt: skip
    left_out = _gauge(
        "rsmq_queues_left_out", "Queues beyond the limit of the exporter.", "namespace"
    )
    up = _gauge("rsmq_up", "1 if the server answered the exporter, 0 if it did not.", "namespace")
    sampled = _gauge(
        "rsmq_sample_timestamp_seconds", "When the exporter last read the queues.", "namespace",
        unit="s",
    )  # fmt: skip
    duration = _gauge(
        "rsmq_scrape_duration_seconds", "How long the exporter took to read the queues.",
        "namespace", unit="s",
    )  # fmt: skip
    build = _gauge("rsmq_build_info", "Always 1; the label has the version.", "version")


#: States of messages, as a label.
STATES = ("ready", "leased", "delayed")


def instruments(view: type) -> Iterator[Instrument]:
    """Yield the instruments of ``Process`` or ``Queues``, in their order."""
    for value in vars(view).values():
        if isinstance(value, Instrument):
            yield value
