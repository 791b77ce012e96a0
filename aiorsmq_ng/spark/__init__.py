"""Queues as a source and a sink of Spark: ``spark.read.format("rsmq")`` and its three siblings.

Needs the extra ``spark``. Spark finds the format automatically where this package is installed.
"""

from importlib.util import find_spec

if not (find_spec("pyspark") and find_spec("pyarrow")):
    raise ImportError(
        'the source and sink of Spark need pyspark and pyarrow: pip install "aiorsmq-ng[spark]"'
    )

from .query_cleanup import finalize, release
from .source import RSMQDataSource, register

__all__ = ["RSMQDataSource", "finalize", "register", "release"]
