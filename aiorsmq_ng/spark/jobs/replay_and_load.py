"""Sends tables to queues: archived messages again, or rows of any other table."""

# pyright: reportMissingImports=false
from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InvalidValue
from .archive import read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When messages become visible. They are stored at once, with delays."""

    #: Messages per second, in order; 0: all at once.
    rate: float = 0.0
    #: Seconds over which they are spread, by a hash of their content; 0: all at once.
    spread: int = 0

    def __post_init__(self) -> None:
        if self.rate < 0 or self.spread < 0 or (self.rate and self.spread):
            raise InvalidValue("give a rate or a spread, of more than 0, or neither")


AT_ONCE = Pace()


def replay(
    spark: SparkSession,
    source: str | DataFrame,
    *,
    queue: str | None = None,
    where: str | None = None,
    pace: Pace = AT_ONCE,
    keep_ids: bool = False,
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Send archived messages again: to *queue*, or each to its original queue.

    *source* is what ``archive`` wrote, the name of a table, or a DataFrame with a column ``body``;
    *where* is a condition in SQL. With *keep_ids* messages get their old ids, and those that are
    still in the queue are left alone. Headers are sent if there is a column of them. All or nothing
    is sent. With ``jobId`` in *options*, a job that runs again sends nothing twice.
    """
    frame = _read(spark, source)
    if where:
        frame = frame.where(where)
    columns = {"body"} | ({"id"} if keep_ids else set()) | ({"queue"} if queue is None else set())
    missing = columns - set(frame.columns)
    if missing:
        raise InvalidValue(f"the source has no column {', '.join(sorted(missing))}")
    names = ["body", *(["id"] if keep_ids else []), *([] if queue else ["queue"])]
    if dict(frame.dtypes).get("headers") == "map<string,string>":
        names.append("headers")
    order = [name for name in ("sent_at", "id") if name in frame.columns] or ["body"]
    paced = _paced(frame, pace, order)
    home = queue
    if home is None:
        first = frame.select("queue").limit(1).collect()
        if not first:
            return {"rows": 0}
        home = str(first[0][0])
    return _send(paced.select(*names, *(["delay"] if pace != AT_ONCE else [])), home, options)


def load(
    frame: DataFrame,
    queue: str,
    *,
    body: str | None = None,
    pace: Pace = AT_ONCE,
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Send the rows of any DataFrame to *queue*, all or none.

    *body* is an expression in SQL; by default the whole row as JSON, or for lines of text (one
    column ``value``) the line itself. Rows without a body are left out.
    """
    expression = body or ("value" if frame.columns == ["value"] else "to_json(struct(*))")
    rows = frame.selectExpr(f"{expression} AS body").where("body IS NOT NULL")
    rows = _paced(rows, pace, ["body"])
    return _send(rows.select("body", *(["delay"] if pace != AT_ONCE else [])), queue, options)


def open_table(
    spark: SparkSession, source: str, format: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return files, a table or a query over JDBC as a DataFrame, for :func:`load`.

    *format* is one of Spark's (``parquet``, ``json``, ``csv``, ``text``, ``jdbc``), or ``table``.
    """
    reader = spark.read.options(**(options or {}))
    if format == "table":
        return reader.table(source)
    if format == "jdbc":
        return reader.format("jdbc").option("dbtable", source).load()
    return reader.format(format).load(source)


def _read(spark: SparkSession, source: str | DataFrame) -> DataFrame:
    if not isinstance(source, str):
        return source
    if "/" not in source and spark.catalog.tableExists(source):
        return spark.table(source)
    return read_files(spark, source)


def _paced(frame: DataFrame, pace: Pace, order: list[str]) -> DataFrame:
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    if pace.rate:
        number = f.row_number().over(Window.orderBy(*order)) - 1
        return frame.withColumn("delay", number / f.lit(pace.rate))
    if pace.spread:
        share = f.pmod(f.xxhash64("body", *order), f.lit(pace.spread * 1000))
        return frame.withColumn("delay", share / f.lit(1000.0))
    return frame


def _send(frame: DataFrame, queue: str, options: Mapping[str, str] | None) -> dict[str, Any]:
    given = {"delivery": "staged", "jobId": uuid.uuid4().hex, **(options or {}), "queue": queue}
    kept = frame.persist()
    try:
        rows = kept.count()
        kept.write.format("rsmq").options(**given).mode("append").save()
    finally:
        kept.unpersist()
    return {"queue": queue, "rows": rows, "jobId": given["jobId"]}
