"""Report on the traffic in an archive: tables, and plots on one page."""

# pyright: reportMissingImports=false
from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Columns that are read from an archive.
_COLUMNS = (
    "id", "queue", "body", "sent_at", "first_received_at", "receive_count", "archived_at",
)  # fmt: skip
#: Number of most often received messages shown.
TOP = 20
_COLOURS = ("#33658a", "#f26419", "#6a994e", "#86629c", "#bc4749", "#52796f")


def report(
    spark: SparkSession, source: str | DataFrame, page: str | Path | None = None
) -> dict[str, Any]:
    """Return statistics of the queues in an archive; with *page*, also write them there as HTML.

    Times are seconds. *waited* is from sending to the first receive, *kept* from sending to
    archiving. The receive of the archive itself is not counted: a message that no consumer received
    before it was archived has no receives and did not wait.
    """
    frame = spark.read.parquet(source) if isinstance(source, str) else source
    missing = [name for name in _COLUMNS if name not in frame.columns]
    if missing:
        raise InvalidValue(f"this is no archive: it has no column {', '.join(missing)}")
    frame = frame.withColumn("receives", frame["receive_count"] - 1).persist()
    try:
        found = {
            "queues": _queues(frame),
            "arrivals": _arrivals(frame),
            "receives": _rows(frame.groupBy("receives").count().orderBy("receives"), "messages"),
            "poison": _poison(frame),
        }
    finally:
        frame.unpersist()
    if page is not None:
        Path(page).write_text(render(found), encoding="utf-8")
    return found


def render(found: dict[str, Any]) -> str:
    """Return the page for what :func:`report` found."""
    parts = [
        _section("Queues", _table(found["queues"])),
        _section("Arrivals by hour", _plot_arrivals(found["arrivals"])),
        _section("Waiting for the first receive", _plot_waits(found["queues"])),
        _section("How often messages were received", _plot_receives(found["receives"])),
        _section(f"Most often received (up to {TOP})", _table(found["poison"])),
    ]
    return _PAGE.format(body="\n".join(parts))


def _queues(frame: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    first = f.when(f.col("receives") > 0, f.col("first_received_at").cast("double"))
    waited = first - f.col("sent_at").cast("double")
    kept = f.col("archived_at").cast("double") - f.col("sent_at").cast("double")

    def percentile(of: Any, share: int, digits: int) -> Any:
        return f.round(f.percentile_approx(of, f.lit(share / 100)), digits)

    def minute(of: Any) -> Any:
        return f.date_format(of, "yyyy-MM-dd HH:mm")

    table = frame.groupBy("queue").agg(
        f.count("*").alias("messages"),
        f.sum(f.octet_length("body")).alias("bytes"),
        minute(f.min("sent_at")).alias("first_sent"),
        minute(f.max("sent_at")).alias("last_sent"),
        *(percentile(waited, p, 3).alias(f"waited_p{p}") for p in (50, 95, 99)),
        *(percentile(kept, p, 1).alias(f"kept_p{p}") for p in (50, 95, 99)),
        f.sum((f.col("receives") == 0).cast("int")).alias("never_received"),
        f.sum((f.col("receives") > 1).cast("int")).alias("received_again"),
        f.max("receives").alias("most_receives"),
    )
    return [row.asDict() for row in table.orderBy("queue").collect()]


def _arrivals(frame: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    hour = f.date_trunc("hour", "sent_at").cast("string").alias("hour")
    table = frame.where("sent_at IS NOT NULL").groupBy("queue", hour).count()
    return _rows(table.orderBy("hour", "queue"), "messages")


def _poison(frame: DataFrame) -> list[dict[str, Any]]:
    from pyspark.sql import functions as f  # noqa: PLC0415

    table = frame.where("receives > 1").orderBy(f.desc("receives"), "id").limit(TOP)
    columns = ("id", "queue", "receives", f.col("sent_at").cast("string").alias("sent_at"))
    return [row.asDict() for row in table.select(*columns).collect()]


def _rows(frame: DataFrame, counted: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.withColumnRenamed("count", counted).collect()]


def _plot_arrivals(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return _NOTHING
    hours = sorted({row["hour"] for row in rows})
    figure, axes = _figure()
    below = [0] * len(hours)
    for number, queue in enumerate(sorted({row["queue"] for row in rows})):
        counts = {row["hour"]: row["messages"] for row in rows if row["queue"] == queue}
        heights = [counts.get(hour, 0) for hour in hours]
        axes.bar(hours, heights, bottom=below, label=_label(queue), color=_colour(number))
        below = [low + height for low, height in zip(below, heights, strict=True)]
    step = -(-len(hours) // 12)
    axes.set_xticks(range(0, len(hours), step), [h[5:16] for h in hours[::step]], rotation=30)
    axes.set_ylabel("messages")
    axes.legend()
    return _image(figure, "messages per hour and queue")


def _plot_waits(rows: Sequence[dict[str, Any]]) -> str:
    rows = [row for row in rows if row["waited_p50"] is not None]
    if not rows:
        return _NOTHING
    figure, axes = _figure()
    for number, share in enumerate((50, 95, 99)):
        places = [at + (number - 1) * 0.25 for at in range(len(rows))]
        heights = [max(row[f"waited_p{share}"], 0.0) for row in rows]
        axes.bar(places, heights, 0.22, label=f"p{share}", color=_colour(number))
    axes.set_xticks(range(len(rows)), [_label(row["queue"]) for row in rows])
    axes.set_yscale("symlog", linthresh=0.01)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("seconds")
    axes.legend()
    return _image(figure, "waiting time percentiles per queue")


def _plot_receives(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return _NOTHING
    figure, axes = _figure()
    axes.bar(
        [str(row["receives"]) for row in rows],
        [row["messages"] for row in rows],
        color=_colour(0),
    )
    # Not "log": a bar of one message would have no height.
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("receives, without that of the archive")
    axes.set_ylabel("messages")
    return _image(figure, "messages by number of receives")


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - only pages need it

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _image(figure: Any, text: str) -> str:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)
    data = base64.b64encode(drawn.getvalue()).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/png;base64,{data}">'


def _label(name: str) -> str:
    """Return *name* for a plot: no formula between ``$``, and not hidden because of a ``_``."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    plain = shown.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return _NOTHING
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in rows[0])
    lines = (
        "<tr>" + "".join(f"<td>{html.escape(_shown(v))}</td>" for v in row.values()) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _section(title: str, content: str) -> str:
    return f"<h2>{html.escape(title)}</h2>\n<div>{content}</div>"


_NOTHING = "<p>nothing</p>"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Queue traffic</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; color: #222; }}
h1, h2 {{ font-weight: 600; }} h2 {{ margin-top: 2rem; font-size: 1.15rem; }}
div {{ overflow-x: auto; }} img {{ max-width: 100%; }}
table {{ border-collapse: collapse; font-size: 12px; }}
th, td {{ padding: .3rem .5rem; text-align: right; white-space: nowrap; }}
th, td {{ border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
th {{ background: #f4f4f4; white-space: normal; vertical-align: bottom; }}
</style></head><body>
<h1>Queue traffic</h1>
<p>Times in seconds. Waited: from sending to the first receive, of messages that consumers received
before they were archived. Kept: from sending to archiving.</p>
{body}
</body></html>
"""
