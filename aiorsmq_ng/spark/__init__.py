"""Queues as a source and a sink of Spark: ``spark.read.format("rsmq")`` and its three siblings.

Needs the extra ``spark``. Spark finds the format by itself where this package is installed.
"""

from .checkpoint import finalize, release
from .source import RSMQDataSource, register

__all__ = ["RSMQDataSource", "finalize", "register", "release"]
