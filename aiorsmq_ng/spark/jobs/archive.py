"""Archives queues as Parquet, exactly once, partitioned by queue and day."""

# pyright: reportMissingImports=false
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..._protocol.operations import queues as protocol
from ...errors import QueueNotFound, RSMQError
from ..options import StreamReadOptions, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

#: Callback for every batch: its number, and its messages.
Progress = Callable[[int, int], None]
#: Spark's error if a busy machine takes longer than ten seconds to start Python, and the limit of
#: starts of a query.
_LATE = "Python worker failed to connect back"
_STARTS = 3
#: Spark's errors if the process that it runs for a source is gone: the first has no text.
_ENDED = re.compile(r"terminated with exception:\s+(Connection reset|Broken pipe)?\s*SQLSTATE")
#: How often the batches that are done are looked for. Spark keeps the last hundred.
_LOOK_S = 0.5


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
    again replaces its own files, so any reader of Parquet sees every message once. The checkpoint
    is kept in *checkpoint* (by default ``_checkpoints`` in *target*) and belongs to the files; a
    later run may name other queues. Archives what is ready now and ends; with *every*, such as
    ``"1 minute"``, it does not end.

    A queue that does not exist is left out, and listed as ``missing``; ``QueueNotFound`` if none
    of them exists.
    """
    names = list(dict.fromkeys(queues))
    given = {
        "onMissingQueue": "skip",
        "includeHeaders": "true",
        **(options or {}),
        "queues": ",".join(names),
    }
    parsed = parse(StreamReadOptions, given)
    missing = _missing(parsed)
    if set(missing) == set(names) or (missing and not parsed.skips_missing):
        raise QueueNotFound(missing[0], parsed.namespace)
    place = checkpoint or f"{target}/_checkpoints"
    frame = spark.readStream.format("rsmq").options(**given).load().drop("visible_at")
    writer = frame.writeStream.foreachBatch(_BatchWriter(target, place))
    writer = writer.option("checkpointLocation", place).queryName(f"archive {target}")
    # Without an end, the loop below ends with an error only.
    trigger: dict[str, Any] = {"processingTime": every} if every else {"availableNow": True}
    batches = _run(writer.trigger(**trigger), progress)
    rows = dict.fromkeys(names, 0) | _rows(spark, target, batches)
    return {
        "target": target,
        "rows": sum(rows.values()),
        "queues": {name: count for name, count in rows.items() if name not in missing},
        "missing": missing,
    }


def read_archive(spark: SparkSession, target: str) -> DataFrame:
    """Return what was archived under *target*; ``headers`` is null in files without it."""
    return read_files(spark, f"{target}/queue=*", target)


def read_files(spark: SparkSession, path: str, base: str | None = None) -> DataFrame:
    """Return Parquet files of messages, of which some may have no column ``headers``."""
    from ..arrow_rows import HEADERS  # noqa: PLC0415 - this module is imported without Spark

    reader = spark.read.options(**({"basePath": base} if base else {}))
    found = reader.parquet(path)
    if "headers" in found.columns:
        return found
    # Spark takes the columns from one file. Files of another column of this name are not read.
    return reader.schema(found.schema.add("headers", HEADERS)).parquet(path)


class _BatchWriter:
    """Writes batches as files. Over Spark Connect, a copy of it runs where the server is."""

    def __init__(self, target: str, checkpoint: str) -> None:
        self._target = target
        self._checkpoint = checkpoint
        self._query = ""

    def __call__(self, frame: DataFrame, number: int) -> None:
        from pyspark.sql import functions as f  # noqa: PLC0415

        if not self._query:
            # The same for all runs from one checkpoint, and for no other.
            stored = frame.sparkSession.read.json(f"{self._checkpoint}/metadata")
            self._query = str(stored.first()["id"])
        dated = frame.withColumns(
            {
                "archived_at": f.current_timestamp(),
                "date": f.to_date("sent_at"),
                "batch": f.lit(_batch_name(self._query, number)),
            }
        )
        (
            dated.write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy("queue", "date", "batch")
            .parquet(self._target)
        )


def _batch_name(query: str, number: int) -> str:
    return f"{query[:8]}-{number:06d}"


def _run(writer: DataStreamWriter, progress: Progress | None = None) -> set[str]:
    """Run a query to its end; return the names of its batches.

    Start it again, from its checkpoint, if Python started too late.
    """
    seen: set[str] = set()
    reported: set[int] = set()
    for left in reversed(range(_STARTS)):
        query = writer.start()
        try:
            ended = False
            while not ended:
                ended = bool(query.awaitTermination(_LOOK_S))
                for one in query.recentProgress:
                    number, rows = one["batchId"], one["numInputRows"]
                    # Over Spark Connect the rows of a batch are not counted.
                    seen.add(_batch_name(str(query.id), number))
                    if rows and number not in reported and progress is not None:
                        progress(number, rows)
                        reported.add(number)
            break
        except Exception as error:
            if _ENDED.search(str(error)):
                raise RSMQError(
                    "the Python process that claims messages for Spark (python_streaming_source_"
                    "runner, on the driver) ended: it was killed, or the machine has no memory "
                    "left; run it again, it resumes from its checkpoint"
                ) from error
            if not left or _LATE not in str(error):
                raise
        finally:
            query.stop()
    return seen


def _rows(spark: SparkSession, target: str, batches: set[str]) -> dict[str, int]:
    """Count the messages per queue of *batches*, from the files."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    if not batches:
        return {}
    try:
        archived = read_archive(spark, target).where(f.col("batch").isin(sorted(batches)))
        counted = archived.groupBy("queue").count().collect()
    except AnalysisException as error:
        # Nothing was archived yet.
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return {}
    return {str(row["queue"]): row["count"] for row in counted}


def _missing(options: StreamReadOptions) -> list[str]:
    """Return the names of the queues that do not exist."""
    with closing(options.own_client()) as client:
        return [
            name for name in options.names if not client.run(protocol.exists(options.keys_of(name)))
        ]
