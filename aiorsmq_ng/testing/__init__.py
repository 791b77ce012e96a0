"""Help for the tests of programs that use queues: clients that clean up, time that passes, faults.

The fixtures for pytest are in ``aiorsmq_ng.testing.plugin``, which pytest finds by itself.
"""

from .clients import temporary_client, unique_namespace
from .clock import TimeMachine
from .proxy import FaultProxy, ProxiedConnection
from .servers import PrivateServer
from .topologies import Cluster, ClusterNode, Replication, SentinelGroup
from .traps import Trap, operation

__all__ = [
    "Cluster",
    "ClusterNode",
    "FaultProxy",
    "PrivateServer",
    "ProxiedConnection",
    "Replication",
    "SentinelGroup",
    "TimeMachine",
    "Trap",
    "operation",
    "temporary_client",
    "unique_namespace",
]
