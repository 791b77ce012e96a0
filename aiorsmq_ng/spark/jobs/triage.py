"""Groups dead letters by reason, and redrives chosen ones."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..._protocol.operations import messages
from ..._protocol.operations.spark.reasons import read_reasons
from ..._protocol.shards import check_together
from ..options import ReadOptions, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Limit of dead letters whose reasons are read, because the driver collects them.
MAX_REASONS = 200_000
_CHUNK = 100


def triage(
    spark: SparkSession,
    queue: str,
    *,
    where: str | None = None,
    redrive_to: str | None = None,
    kind: str = "$.type",
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Group the messages of the dead-letter queue *queue* by reason, type and age.

    *kind* is the path of the type in bodies that are JSON. *where* chooses by a condition in SQL
    over the columns of a queue and ``reason``, ``type``, ``age_hours``; with *redrive_to* the
    chosen ones that are not leased are moved to that queue, with rc 0.
    """
    given = {**(options or {}), "queue": queue}
    letters = dead_letters(spark, queue, kind=kind, options=options)
    if where:
        letters = letters.where(where)
    letters = letters.persist()
    try:
        groups = (
            letters.groupBy("reason", "type", "age_hours")
            .count()
            .orderBy("count", ascending=False)
            .collect()
        )
        result: dict[str, Any] = {
            "queue": queue,
            "messages": sum(row["count"] for row in groups),
            "groups": [row.asDict() for row in groups],
        }
        if redrive_to is not None:
            parsed = parse(ReadOptions, given)
            client, target = parsed.client(), parsed.keys_of(redrive_to)
            check_together(parsed.keys, target)
            moved = 0
            ids = (row.id for row in letters.select("id").toLocalIterator())
            for lot in _lots(ids, _CHUNK):
                moved += client.run(
                    messages.redrive(parsed.keys, target, len(lot), ids=lot, channel=target.wake)
                )
            result["redriven"] = moved
    finally:
        letters.unpersist()
    return result


def dead_letters(
    spark: SparkSession,
    queue: str,
    *,
    kind: str = "$.type",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a dead-letter queue as a table, with ``reason``, ``type`` and ``age_hours``."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    given = {"onDecodeError": "null", **(options or {}), "queue": queue}
    frame = spark.read.format("rsmq").options(**given).load()
    parsed = parse(ReadOptions, given)
    client = parsed.client()
    reasons: list[tuple[str, str]] = []
    for ids in _lots((row.id for row in frame.select("id").limit(MAX_REASONS).collect()), 1000):
        said = client.run(read_reasons(parsed.keys, ids))
        reasons += (pair for pair in zip(ids, said, strict=True) if pair[1])
    known = spark.createDataFrame(reasons, "id string, reason string")
    age = (f.unix_timestamp(f.current_timestamp()) - f.unix_timestamp("sent_at")) / 3600
    return frame.join(f.broadcast(known), "id", "left").withColumns(
        {
            "reason": f.coalesce("reason", f.lit("unknown")),
            "type": f.coalesce(f.get_json_object("body", kind), f.lit("unknown")),
            "age_hours": f.floor(age),
        }
    )


def _lots(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    """Divide *ids* into lots for one script call each."""
    rest = iter(ids)
    while lot := list(islice(rest, size)):
        yield lot
