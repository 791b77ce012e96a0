"""The outlets of a client: those of the program, and those that the environment names."""

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


def outlets_of(given: Sequence[Telemetry] | None) -> Sequence[Telemetry]:
    """Return *given*, and the outlets that ``RSMQ_TELEMETRY`` names beside them.

    Of a class that the program has given there is no second one, and an empty list stays empty.
    The clients of a process share outlets that the environment names. ``InvalidValue`` for an
    unknown name, and for what is no list of outlets.
    """
    listed: object = given
    if given is None:
        found: list[Telemetry] = []
    elif not isinstance(listed, list | tuple):
        raise InvalidValue(f"telemetry must be a list of outlets, not {given!r}")
    elif not given:
        return ()
    else:
        found = list(given)
    for one in found:
        if not isinstance(one, Telemetry):
            raise InvalidValue(f"an outlet of telemetry must be a Telemetry object, not {one!r}")
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        outlet = _outlet(name)
        if not any(isinstance(one, type(outlet)) for one in found):
            found.append(outlet)
    return found


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
        raise InvalidValue(f"outlet {name!r} of {VARIABLE} is not known; the outlets are {known}")
    return outlet_class(name)()
