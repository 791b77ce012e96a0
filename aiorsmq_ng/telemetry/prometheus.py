"""Metrics for Prometheus: the outlet for ``prometheus_client``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .instruments import Instrument, Process, instruments
from .measurements import Measurements, Update, without_zero

#: The outlet of each registry, so that every client of a process may be given one of its own.
_outlets: WeakKeyDictionary[CollectorRegistry, PrometheusMetrics] = WeakKeyDictionary()


class PrometheusMetrics(Measurements):
    """Counts what clients and workers do, in a registry of ``prometheus_client``.

    Outlets of one registry are one object: clients may share it, or be given one each.

    Args:
        registry: the registry; by default that which ``prometheus_client`` exposes.
    """

    def __new__(cls, registry: CollectorRegistry = REGISTRY) -> PrometheusMetrics:
        """Return the outlet of *registry*."""
        found = _outlets.get(registry)
        if found is None:
            found = _outlets[registry] = super().__new__(cls)
            Measurements.__init__(found, lambda instrument: _update(instrument, registry))
            registry.register(_Gauges(found))
        return found

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        del registry  # used by __new__, once for each


class _Gauges(Collector):
    """Reads the gauges when the registry is read."""

    def __init__(self, outlet: PrometheusMetrics) -> None:
        self._outlet = outlet

    def describe(self) -> Iterator[Metric]:
        yield from _families().values()

    def collect(self) -> Iterator[Metric]:
        families = _families()
        for instrument, labels, value in self._outlet.gauges():
            families[instrument.name].add_metric(labels, value)
        yield from families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        one.name: GaugeMetricFamily(one.name, one.help, labels=one.labels)
        for one in instruments(Process)
        if one.kind == "gauge"
    }


def _update(instrument: Instrument, registry: CollectorRegistry) -> Update:
    """Register a counter or a histogram; return what changes it."""
    name, text, labels = instrument.name, instrument.help, instrument.labels
    if instrument.kind == "counter":
        counter = Counter(name, text, labels, registry=registry)
        add: dict[tuple[str, ...], Callable[[float], None]] = {}

        def count(value: float, values: tuple[str, ...]) -> None:
            child = add.get(values)
            if child is None:
                child = add[values] = counter.labels(*values).inc
            child(value)

        return without_zero(count)
    histogram = Histogram(name, text, labels, registry=registry, buckets=instrument.buckets)
    note: dict[tuple[str, ...], Callable[[float], None]] = {}

    def observe(value: float, values: tuple[str, ...]) -> None:
        child = note.get(values)
        if child is None:
            child = note[values] = histogram.labels(*values).observe
        child(value)

    return observe
