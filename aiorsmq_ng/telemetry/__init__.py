"""Telemetry: metrics and traces of clients and workers, off unless a client is given an outlet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .environment import outlet_class
from .hooks import (
    After,
    ClientCall,
    Handled,
    HandledOutcome,
    ObservedClient,
    ObservedWorker,
    OperationType,
    Process,
    Receive,
    Telemetry,
)

if TYPE_CHECKING:
    from .opentelemetry_metrics import OpenTelemetryMetrics
    from .opentelemetry_traces import OpenTelemetryTraces
    from .prometheus import PrometheusMetrics

__all__ = [
    "After",
    "ClientCall",
    "Handled",
    "HandledOutcome",
    "ObservedClient",
    "ObservedWorker",
    "OpenTelemetryMetrics",
    "OpenTelemetryTraces",
    "OperationType",
    "Process",
    "PrometheusMetrics",
    "Receive",
    "Telemetry",
]

_OUTLETS = {
    "PrometheusMetrics": "prometheus",
    "OpenTelemetryMetrics": "otel",
    "OpenTelemetryTraces": "otel-traces",
}

# The classes need extras. Hidden from type checkers, to whom it would mean that every name exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _OUTLETS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return outlet_class(_OUTLETS[name])
