"""Tools for tests of programs that use queues: clients that clean up, a clock, a fault proxy.

The pytest fixtures are in ``aiorsmq_ng.testing.plugin``, which pytest loads through its entry
point. Names are imported on first use, because pytest imports this package in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import TimeMachine
    from .fault_proxy import FaultProxy, ProxiedConnection
    from .intercepts import Intercept, operation
    from .servers import PrivateServer
    from .temporary_clients import temporary_client, unique_namespace

_HOME = {
    "FaultProxy": "fault_proxy",
    "Intercept": "intercepts",
    "PrivateServer": "servers",
    "ProxiedConnection": "fault_proxy",
    "TimeMachine": "clock",
    "operation": "intercepts",
    "temporary_client": "temporary_clients",
    "unique_namespace": "temporary_clients",
}
__all__ = [
    "FaultProxy",
    "Intercept",
    "PrivateServer",
    "ProxiedConnection",
    "TimeMachine",
    "operation",
    "temporary_client",
    "unique_namespace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOME[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
