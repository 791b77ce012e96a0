"""A client of adjust/rmq v5: queues that are shared with Go programs.

``Rmq`` opens the way to Redis and hands out queues; see docs/guides/rmq.md.
"""

from __future__ import annotations

from .batch import RmqBatch
from .bridge import Bridge, BridgeReport
from .client import Rmq
from .consumer import RmqConsumer
from .delivery import RmqDelivery
from .queue import RmqQueue
from .stats import RmqConnectionStats, RmqDamage, RmqQueueStats, RmqStats

__all__ = [
    "Bridge",
    "BridgeReport",
    "Rmq",
    "RmqBatch",
    "RmqConnectionStats",
    "RmqConsumer",
    "RmqDamage",
    "RmqDelivery",
    "RmqQueue",
    "RmqQueueStats",
    "RmqStats",
]
