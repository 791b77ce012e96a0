"""The laboratory of this repository: histories and their checker, simulation, groups of servers.

Its parts are for the tests and the storms of this library; none of them is in the wheel. What
users' tests need is ``aiorsmq_ng.testing``. ``README.md`` beside this file shows how to use them.
"""

from .checker import Verdict, Violation, check
from .history import Event, History
from .inventory import Inventory, ResourceSnapshot, StoredQueue
from .recorder import RecordedQueue
from .scenarios import Jobs
from .simulation import Faults, Outcome, SimulatedClient, World, simulate
from .topologies import Cluster, ClusterNode, Replication, SentinelGroup

__all__ = [
    "Cluster",
    "ClusterNode",
    "Event",
    "Faults",
    "History",
    "Inventory",
    "Jobs",
    "Outcome",
    "RecordedQueue",
    "Replication",
    "ResourceSnapshot",
    "SentinelGroup",
    "SimulatedClient",
    "StoredQueue",
    "Verdict",
    "Violation",
    "World",
    "check",
    "simulate",
]
