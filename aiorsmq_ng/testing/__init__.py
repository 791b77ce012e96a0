"""Help for the tests of programs that use queues: clients that clean up, time that passes, faults.

The fixtures for pytest are in ``aiorsmq_ng.testing.plugin``, which pytest finds by itself.
"""

from .clients import temporary_client, unique_namespace
from .clock import TimeMachine
from .history import Event, History
from .inventory import Census, Inventory, Stock
from .oracles import Verdict, Violation, check
from .proxy import FaultProxy, ProxiedConnection
from .recorder import RecordedQueue
from .scenarios import Jobs
from .servers import PrivateServer
from .simulation import Faults, Outcome, SimulatedClient, World, simulate
from .topologies import Cluster, ClusterNode, Replication, SentinelGroup
from .traps import Trap, operation

__all__ = [
    "Census",
    "Cluster",
    "ClusterNode",
    "Event",
    "FaultProxy",
    "Faults",
    "History",
    "Inventory",
    "Jobs",
    "Outcome",
    "PrivateServer",
    "ProxiedConnection",
    "RecordedQueue",
    "Replication",
    "SentinelGroup",
    "SimulatedClient",
    "Stock",
    "TimeMachine",
    "Trap",
    "Verdict",
    "Violation",
    "World",
    "check",
    "operation",
    "simulate",
    "temporary_client",
    "unique_namespace",
]
