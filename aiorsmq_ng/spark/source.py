"""The data source itself, and its registration."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ..errors import RSMQError
from . import options as choices

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql import SparkSession

    from .batch_reader import SnapshotReader
    from .pyspark_versions import RefusedReader
    from .stream_reader import ClaimReader
    from .writers import BatchSink, StreamSink


class RSMQDataSource(DataSource):
    """RSMQ queues for Spark, format ``rsmq``.

    ``read`` looks at a queue, ``readStream`` consumes it, ``write`` and ``writeStream`` send.
    Spark makes and copies this object in several processes; it has no connection.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Store the options; refuse those that no use of the source accepts."""
        super().__init__(options)
        choices.check(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rsmq"

    def schema(self) -> StructType:
        """Return the columns for readers that name none."""
        from .arrow_rows import full_schema  # noqa: PLC0415 - Spark imports this module for discovery

        choices.check_queue(self.options)
        return full_schema(
            str(self.options.get("bodyType", "string")).lower(),
            headers=str(self.options.get("includeHeaders", "false")).lower() == "true",
        )

    def reader(self, schema: StructType) -> SnapshotReader:
        """Return a reader of a snapshot."""
        from .batch_reader import SnapshotReader  # noqa: PLC0415

        return SnapshotReader(choices.parse(choices.ReadOptions, self.options), schema)

    def streamReader(self, schema: StructType) -> ClaimReader | RefusedReader:  # noqa: N802
        """Return a reader that consumes the queue."""
        from .pyspark_versions import RefusedReader, require_stream_source  # noqa: PLC0415

        try:
            require_stream_source()
            from .stream_reader import ClaimReader  # noqa: PLC0415

            return ClaimReader(choices.parse(choices.StreamReadOptions, self.options), schema)
        except RSMQError as error:
            return RefusedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Return a writer of a batch."""
        from .writers import BatchSink  # noqa: PLC0415

        options = choices.parse(choices.WriteOptions, self.options)
        return BatchSink(options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        """Return a writer of a stream."""
        from .writers import StreamSink  # noqa: PLC0415

        options = choices.parse(choices.WriteOptions, self.options)
        return StreamSink(options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Register the format with *spark*, if Spark does not find it automatically."""
    spark.dataSource.register(RSMQDataSource)
