"""Metrics for OpenTelemetry: the outlet for its API. The SDK is that of the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from .hooks import OPERATION_TYPES
from .instruments import ATTRIBUTES, Instrument, Process, instruments
from .measurements import Measurements, Update, without_zero

#: The conventions that the names are of.
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class OpenTelemetryMetrics(Measurements):
    """Counts what clients and workers do, by the API of OpenTelemetry.

    Names and attributes are those of its conventions for messaging, where there are any, and begin
    with ``rsmq`` where there are none. Give all clients of a process one outlet: gauges of two
    would be reported twice.

    Args:
        meter_provider: the provider; by default the global one.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        self._meter = get_meter("aiorsmq_ng", version("aiorsmq-ng"), meter_provider, SCHEMA)
        super().__init__(self._update)
        for instrument in instruments(Process):
            if instrument.kind == "gauge":
                self._meter.create_observable_gauge(
                    instrument.otel, [self._reader(instrument)], instrument.unit, instrument.help
                )

    def _update(self, instrument: Instrument) -> Update:
        known: dict[tuple[str, ...], dict[str, str]] = {}
        change: Callable[[float, dict[str, str]], object]
        if instrument.kind == "counter":
            change = self._meter.create_counter(
                instrument.otel, instrument.unit, instrument.help
            ).add
        else:
            change = self._meter.create_histogram(
                instrument.otel,
                instrument.unit,
                instrument.help,
                explicit_bucket_boundaries_advisory=instrument.buckets,
            ).record

        def update(value: float, values: tuple[str, ...]) -> None:
            attributes = known.get(values)
            if attributes is None:
                attributes = known[values] = attributes_of(instrument, values)
            change(value, attributes)

        return without_zero(update) if instrument.kind == "counter" else update

    def _reader(self, instrument: Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            for found, labels, value in self.gauges():
                if found is instrument:
                    yield Observation(value, attributes_of(instrument, labels))

        return read


def attributes_of(instrument: Instrument, values: tuple[str, ...]) -> dict[str, str]:
    """Return the attributes for the values of an instrument's labels; empty ones are left out."""
    attributes = {"messaging.system": "rsmq"}
    for label, value in zip(instrument.labels, values, strict=True):
        if value:
            attributes[ATTRIBUTES[label]] = value
        if label == "operation" and (type_ := OPERATION_TYPES.get(value)):
            attributes["messaging.operation.type"] = type_
    if instrument is Process.handler_duration:
        attributes["messaging.operation.name"] = "process"
        attributes["messaging.operation.type"] = "process"
    return attributes
