"""Queues as a source and a sink of Spark: ``spark.read.format("rsmq")`` and its three siblings.

Needs the extra ``spark``. Spark finds the format by itself where this package is installed.
"""

try:
    import pyarrow as _pyarrow  # noqa: F401
    import pyspark as _pyspark  # noqa: F401
except ImportError as missing:
    raise ImportError(
        'the source and sink of Spark need pyspark and pyarrow: pip install "aiorsmq-ng[spark]"'
    ) from missing

from .checkpoint import finalize, release
from .source import RSMQDataSource, register

__all__ = ["RSMQDataSource", "finalize", "register", "release"]
