"""Archives queues as Parquet, exactly once, partitioned by queue and day."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

#: Callback for every batch: queue, number of the batch, rows.
Progress = Callable[[str, int, int], None]
#: Spark's error if a busy machine takes longer than ten seconds to start Python, and the limit of
#: starts of a query.
_LATE = "Python worker failed to connect back"
_STARTS = 3


def archive(
    spark: SparkSession,
    queues: Sequence[str],
    target: str,
    *,
    options: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    every: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Drain *queues* into Parquet files under *target*; return the rows per queue.

    Files are in ``queue=.../date=.../batch=...``, the day being that of sending. A batch that runs
    again replaces its own files, so any reader of Parquet sees every message once. Checkpoints
    are kept in *checkpoint* (by default ``_checkpoints`` in *target*) and belong to the files.
    Archives what is ready now and ends; with *every*, such as ``"1 minute"``, it does not end.
    """
    rows = dict.fromkeys(queues, 0)
    for queue in rows:
        reader = spark.readStream.format("rsmq").options(**(options or {}))
        frame = reader.option("queue", queue).load().drop("visible_at", "queue")
        writer = frame.writeStream.foreachBatch(_writer(queue, target, rows, progress))
        place = f"{checkpoint or f'{target}/_checkpoints'}/{queue}"
        writer = writer.option("checkpointLocation", place).queryName(f"archive {queue}")
        if every:
            writer.trigger(processingTime=every).start()
        else:
            # One after the other: concurrent queries would only take turns.
            _run(writer.trigger(availableNow=True))
    if every:
        spark.streams.awaitAnyTermination()
    return {"target": target, "rows": sum(rows.values()), "queues": rows}


def read_archive(spark: SparkSession, target: str) -> DataFrame:
    """Return what was archived under *target*."""
    return spark.read.option("basePath", target).parquet(f"{target}/queue=*")


def _run(writer: DataStreamWriter) -> None:
    """Run a query to its end. Start it again, from its checkpoint, if Python started too late."""
    for left in reversed(range(_STARTS)):
        try:
            writer.start().awaitTermination()
            return
        except Exception as error:
            if not left or _LATE not in str(error):
                raise


def _writer(
    queue: str, target: str, rows: dict[str, int], progress: Progress | None
) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, number: int) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415

        context = frame.sparkSession.sparkContext
        # The same for all runs from one checkpoint, and for no other.
        query = str(context.getLocalProperty("sql.streaming.queryId"))
        kept = frame.withColumns(
            {
                "archived_at": f.current_timestamp(),
                "queue": f.lit(queue),
                "date": f.to_date("sent_at"),
                "batch": f.lit(f"{query[:8]}-{number:06d}"),
            }
        ).persist()
        try:
            count = kept.count()
            (
                kept.write.mode("overwrite")
                .option("partitionOverwriteMode", "dynamic")
                .partitionBy("queue", "date", "batch")
                .parquet(target)
            )
        finally:
            kept.unpersist()
        rows[queue] += count
        if progress is not None:
            progress(queue, number, count)

    return write
