"""Help for the tests of programs that use queues: clients that clean up, time that passes, faults.

The fixtures for pytest are in ``aiorsmq_ng.testing.plugin``, which pytest finds by itself.
"""

from .clients import temporary_client, unique_namespace
from .clock import TimeMachine
from .proxy import FaultProxy, ProxiedConnection
from .traps import Trap, operation

__all__ = [
    "FaultProxy",
    "ProxiedConnection",
    "TimeMachine",
    "Trap",
    "operation",
    "temporary_client",
    "unique_namespace",
]
