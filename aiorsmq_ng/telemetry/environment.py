"""The outlets of clients that are given none: those that the environment names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module

from ..errors import InvalidValue
from .hooks import Telemetry

#: Environment variable with the names of outlets, separated by commas.
VARIABLE = "RSMQ_TELEMETRY"
#: Name of an outlet -> its module and class, the extra that it needs, and what that installs.
_OUTLETS = {
    "prometheus": ("prometheus", "PrometheusMetrics", "metrics", "prometheus_client"),
    "otel": ("opentelemetry_metrics", "OpenTelemetryMetrics", "otel", "opentelemetry"),
    "otel-traces": ("opentelemetry_traces", "OpenTelemetryTraces", "otel", "opentelemetry"),
}


def from_environment() -> Sequence[Telemetry]:
    """Return the outlets that ``RSMQ_TELEMETRY`` names; ``InvalidValue`` for an unknown name.

    The clients of a process share them.
    """
    names = os.environ.get(VARIABLE)
    return [_outlet(name.strip()) for name in names.split(",")] if names else ()


def outlet_class(name: str) -> type[Telemetry]:
    """Return the class of the outlet *name*; ``InvalidValue`` if its extra is not installed."""
    module, title, extra, package = _OUTLETS[name]
    try:
        found: type[Telemetry] = getattr(import_module(f".{module}", __package__), title)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        hint = f'{title} needs the extra "{extra}": pip install "aiorsmq-ng[{extra}]"'
        raise InvalidValue(hint) from None
    return found


@cache
def _outlet(name: str) -> Telemetry:
    if name not in _OUTLETS:
        known = ", ".join(_OUTLETS)
        raise InvalidValue(f"{VARIABLE} names outlets of telemetry ({known}), and not {name!r}")
    return outlet_class(name)()
