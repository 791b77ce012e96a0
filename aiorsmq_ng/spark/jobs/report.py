"""Report on the traffic in an archive."""

# pyright: reportMissingImports=false
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidValue
from .report_page import render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Columns that are read from an archive.
_COLUMNS = (
    "id", "queue", "body", "sent_at", "first_received_at", "receive_count", "archived_at",
)  # fmt: skip
#: Number of most often received messages shown.
TOP = 20
#: Lengths of a bar of the arrivals (seconds), and how many bars there are at most.
_STEPS = (
    1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400,
)  # fmt: skip
_BARS = 100
_MINUTE = "yyyy-MM-dd HH:mm"
_SECOND = "yyyy-MM-dd HH:mm:ss"


def report(
    spark: SparkSession, source: str | DataFrame, page: str | Path | None = None
) -> dict[str, Any]:
    """Return statistics of the queues in an archive; with *page*, also write them there as HTML.

    Durations are seconds, times those of the session's time zone. *waited* is from sending to the
    first receive, *kept* from sending to archiving. The receive of the archive itself is not
    counted: a message that no consumer received before it was archived has no receives and did not
    wait.
    """
    frame = spark.read.parquet(source) if isinstance(source, str) else source
    missing = [name for name in _COLUMNS if name not in frame.columns]
    if missing:
        raise InvalidValue(f"this is no archive: it has no column {', '.join(missing)}")
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    frame = frame.withColumn("receives", frame["receive_count"] - 1).persist()
    try:
        about = _about(frame, zone)
        found = {
            "source": source if isinstance(source, str) else "a DataFrame",
            **about,
            "queues": _queues(frame),
            "arrivals": _arrivals(frame, about["step_s"], zone),
            "receives": _receives(frame),
            "poison": _poison(frame),
        }
    finally:
        frame.unpersist()
    if page is not None:
        Path(page).write_text(render(found), encoding="utf-8")
    return found


def _about(frame: DataFrame, zone: str) -> dict[str, Any]:
    """Return the period of the messages, the time zone, and when this report was made."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    first, last = f.min("sent_at"), f.max("sent_at")
    row = frame.agg(
        f.date_format(first, _SECOND).alias("first_sent"),
        f.date_format(last, _SECOND).alias("last_sent"),
        (f.unix_timestamp(last) - f.unix_timestamp(first)).alias("seconds"),
        f.date_format(f.current_timestamp(), _SECOND).alias("created"),
    ).collect()[0]
    step = next((s for s in _STEPS if (row.seconds or 0) / s < _BARS), _STEPS[-1])
    return {
        "first_sent": row.first_sent,
        "last_sent": row.last_sent,
        "time_zone": zone,
        "created": row.created,
        "step_s": step,
    }


def _queues(frame: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    waited = _waited()
    kept = f.col("archived_at").cast("double") - f.col("sent_at").cast("double")

    def percentile(of: Any, share: int, digits: int) -> Any:
        return f.round(f.percentile_approx(of, f.lit(share / 100)), digits)

    table = frame.groupBy("queue").agg(
        f.count("*").alias("messages"),
        f.sum(f.octet_length("body")).alias("bytes"),
        f.date_format(f.min("sent_at"), _MINUTE).alias("first_sent"),
        f.date_format(f.max("sent_at"), _MINUTE).alias("last_sent"),
        *(percentile(waited, p, 3).alias(f"waited_p{p}") for p in (50, 95, 99)),
        *(percentile(kept, p, 1).alias(f"kept_p{p}") for p in (50, 95, 99)),
        f.sum((f.col("receives") == 0).cast("int")).alias("never_received"),
        f.sum((f.col("receives") > 1).cast("int")).alias("received_again"),
        f.max("receives").alias("most_receives"),
    )
    return [row.asDict() for row in table.orderBy("queue").collect()]


def _arrivals(frame: DataFrame, step_s: int, zone: str) -> list[dict[str, Any]]:
    """Count messages per queue and step; steps begin at full hours and days of the zone."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    local_s = f.unix_timestamp(f.from_utc_timestamp("sent_at", zone))
    begin = f.floor(local_s / step_s) * step_s
    at = f.date_format(f.to_utc_timestamp(f.timestamp_seconds(begin), zone), _SECOND).alias("at")
    table = frame.where("sent_at IS NOT NULL").groupBy(at, "queue").count()
    rows = table.withColumnRenamed("count", "messages").orderBy("at", "queue").collect()
    return [row.asDict() for row in rows]


def _receives(frame: DataFrame) -> list[dict[str, Any]]:
    table = frame.groupBy("receives").count().withColumnRenamed("count", "messages")
    return [row.asDict() for row in table.orderBy("receives").collect()]


def _poison(frame: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    table = frame.where("receives > 1").orderBy(f.desc("receives"), "id").limit(TOP)
    columns = (
        *("id", "queue", "receives"),
        f.octet_length("body").alias("bytes"),
        f.date_format("sent_at", _SECOND).alias("sent_at"),
        f.round(_waited(), 3).alias("waited"),
        f.date_format("archived_at", _SECOND).alias("archived_at"),
    )
    return [row.asDict() for row in table.select(*columns).collect()]


def _waited() -> Any:
    """Return seconds from sending to the first receive by a consumer; null if there was none."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    first = f.when(f.col("receives") > 0, f.col("first_received_at").cast("double"))
    return first - f.col("sent_at").cast("double")
