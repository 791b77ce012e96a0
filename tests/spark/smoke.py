"""One small run of every use of the source and the sink, on the PySpark that is installed.

``nox -s spark_versions`` runs it once per version. The table of versions in the reference says what
must work; this exits with 1 if something else does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import Row, SparkSession

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from aiorsmq_ng.testing import PrivateServer  # noqa: E402

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "OFF",
}
ROWS = 100


class Smoke:
    """Queues of one server, and a Spark."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark, self.url, self.folder = spark, url, folder

    def bodies(self, queue: str) -> list[int]:
        reader = self.spark.read.format("rsmq").option("url", self.url)
        return sorted(int(row.body) for row in reader.load(queue).collect())

    def batch_write(self) -> None:
        rows = self.spark.range(ROWS).selectExpr(
            "string(id) AS body", "IF(id % 2 = 0, map('n', string(id)), NULL) AS headers"
        )
        for _ in range(2):  # the second one sends nothing, because of its name
            (
                rows.write.format("rsmq")
                .options(url=self.url, createQueue="true", jobId="smoke")
                .mode("append")
                .save("written")
            )

    def batch_read(self) -> None:
        reader = self.spark.read.format("rsmq").options(url=self.url, includeHeaders="true")
        rows = reader.load("written").orderBy("sent_at", "id").collect()
        self.check_headers(rows)
        assert sorted(int(row.body) for row in rows) == list(range(ROWS))
        assert {(row.queue, row.receive_count) for row in rows} == {("written", 0)}
        assert all(row.sent_at.year >= 2025 for row in rows)

    def check_headers(self, rows: list[Row]) -> None:
        for row in rows:
            assert row.headers == (None if int(row.body) % 2 else {"n": row.body}), row

    def stream_sink(self) -> None:
        lines, checkpoint = self.folder / "lines", str(self.folder / "sink")
        lines.mkdir()
        for number, part in enumerate((range(50), range(50, ROWS))):
            (lines / f"{number}.txt").write_text("".join(f"{n}\n" for n in part))
            query = (
                self.spark.readStream.text(str(lines))
                .selectExpr("value AS body")
                .writeStream.format("rsmq")
                .options(url=self.url, createQueue="true", checkpointLocation=checkpoint)
                .option("queue", "streamed")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        assert self.bodies("streamed") == list(range(ROWS))

    def stream_source(self) -> None:
        out = str(self.folder / "out")
        query = (
            self.spark.readStream.format("rsmq")
            .options(url=self.url, maxMessagesPerTrigger="40", includeHeaders="true")
            .load("written")
            .writeStream.format("parquet")
            .options(path=out, checkpointLocation=str(self.folder / "source"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = self.spark.read.parquet(out).collect()
        self.check_headers(rows)
        assert sorted(int(row.body) for row in rows) == list(range(ROWS))
        assert self.bodies("written") == []

    def errors(self) -> None:
        """See what is shown for a wrong option, and for a table."""
        reader = self.spark.readStream.format("rsmq").option("url", self.url)
        try:
            reader.option("fetchSise", "1").load("written")
            raise AssertionError("a wrong option was accepted")
        except AnalysisException as error:
            assert "did you mean 'fetchSize'" in str(error), error
        try:
            self.spark.sql("CREATE TABLE t USING rsmq OPTIONS (queue 'written')")
            raise AssertionError("a table was created, which would have no options")
        except AnalysisException as error:
            assert "CREATE TEMPORARY VIEW" in str(error), error


def outcome(cell: Callable[[], None]) -> str:
    """Return ``yes``, or ``no`` if the package refuses it on this version, in plain words."""
    try:
        cell()
    except StreamingQueryException as error:
        if "NotSupported: readStream needs PySpark" not in str(error):
            raise
        return "no"
    return "yes"


def documented(version: str) -> list[str]:
    """Return the row of the reference for *version*."""
    minor = ".".join(version.split(".")[:2])
    text = (ROOT / "docs" / "reference" / "spark.md").read_text()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith(f"{minor} "):
            return cells[1:5]
    raise SystemExit(f"the reference does not list PySpark {minor}")


def play(url: str) -> list[str]:
    """Return the outcome of every use."""
    python = sys.executable
    os.environ.update(PYSPARK_PYTHON=python, PYTHONPATH=str(ROOT), SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    with tempfile.TemporaryDirectory() as folder:
        spark = builder.config("spark.sql.warehouse.dir", f"{folder}/tables").getOrCreate()
        smoke = Smoke(spark, url, Path(folder))
        cells = (smoke.batch_write, smoke.batch_read, smoke.stream_sink, smoke.stream_source)
        found = [outcome(cell) for cell in cells]
        smoke.errors()
        spark.stop()
    return found


async def main() -> int:
    async with PrivateServer() as server:
        found = await asyncio.to_thread(play, server.url)
    sys.stdout.write(" | ".join([pyspark.__version__, *found]) + "\n")
    return found != documented(pyspark.__version__)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
