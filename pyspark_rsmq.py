"""The way by which Spark finds the data source ``rsmq`` without being told.

Spark imports every top-level module called ``pyspark_*`` and looks for ``DefaultSource``.
"""

from aiorsmq_ng.spark.source import RSMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
