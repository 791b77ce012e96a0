"""What differs between versions of PySpark."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamReader

from ..errors import NotSupported, RSMQError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import InputPartition

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # PySpark 4.0
    from pyspark.sql.datasource import DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef]
        """Writes a stream by Arrow batches: PySpark 4.0 gives them to writers of this kind."""


__all__ = ["DataSourceStreamArrowWriter", "RefusedReader", "require_stream_source"]

#: The first version that tells a stream source where a query stands, and how much it may read.
STREAM_SOURCE = (4, 2)


def require_stream_source(version: str = pyspark.__version__) -> None:
    """Raise ``NotSupported`` if PySpark is too old to read queues as streams."""
    if tuple(map(int, version.split(".")[:2])) < STREAM_SOURCE:
        needed = ".".join(map(str, STREAM_SOURCE))
        raise NotSupported(
            f"readStream needs PySpark {needed} or later, this is {version}: older ones do not "
            "tell a source which messages a query has finished; spark.read, df.write and "
            "df.writeStream work"
        )


class RefusedReader(DataSourceStreamReader):
    """Raises an error at the first call of a query.

    Spark replaces an error of ``streamReader()`` by an ``UnboundLocalError`` of its own; it shows
    those of a reader's calls.
    """

    def __init__(self, error: RSMQError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self._error

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise the error."""
        raise self._error
