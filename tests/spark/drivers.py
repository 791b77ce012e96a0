"""Spark programs that tests start, and that die where they are told to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from aiorsmq_ng.spark import RSMQDataSource
from aiorsmq_ng.spark.options import WriteOptions, parse
from aiorsmq_ng.spark.sink import BatchSink

GIVEN = json.loads(os.environ["DRIVER"])
FOLDER = Path(GIVEN["folder"])


def session(**settings: str) -> SparkSession:
    builder = SparkSession.builder
    for name, value in {**GIVEN["spark"], **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class StumblingSink(BatchSink):
    """Fails once, when part of a partition is sent."""

    def write(self, iterator):
        def stumbling():
            for batch in iterator:
                for at in range(0, batch.num_rows, 100):
                    if batch.column("body")[at].as_py() == "2000" and not self.flag.exists():
                        self.flag.touch()
                        raise RuntimeError("stumbled")
                    yield batch.slice(at, 100)

        return super().write(stumbling())


class StumblingSource(RSMQDataSource):
    """The source with that sink. Defined here, so that it reaches Spark's processes by value."""

    @classmethod
    def name(cls):
        return "stumbling"

    def writer(self, schema, overwrite):
        flag = Path(self.options.pop("flag"))
        sink = StumblingSink(parse(WriteOptions, self.options), schema, overwrite)
        sink.flag = flag
        return sink


def retry() -> None:
    """Write from tasks of which one fails once, when part of its rows are sent."""
    spark = session(**{"spark.master": "local[2,4]"})
    spark.dataSource.register(StumblingSource)
    frame = spark.range(0, 3000, 1, 2).selectExpr("cast(id AS string) AS body")
    options = {**GIVEN["options"], "sendSize": "100", "flag": str(FOLDER / "failed")}
    frame.write.format("stumbling").options(**options).mode("append").save()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
