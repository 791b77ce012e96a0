"""Checkpoints on other file systems than the local one."""

import pytest
from pyspark.sql import SparkSession

from aiorsmq_ng import InvalidValue
from aiorsmq_ng.spark import finalize


@pytest.fixture
def elsewhere(spark, tmp_path):
    """A folder under another scheme: Hadoop's view of file systems."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    link = "fs.viewfs.mounttable.lake.link./data"
    settings.set(link, tmp_path.as_uri())
    yield "viewfs://lake/data/checkpoint"
    settings.unset(link)


def test_query_and_finalize_use_a_checkpoint_of_another_file_system(spark, bench, elsewhere):
    bench.fill_numbers(5)
    query = (
        bench.stream(spark)
        .writeStream.format("noop")
        .option("checkpointLocation", elsewhere)
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    assert bench.size == 5

    assert finalize(elsewhere, url=bench.url) == 1
    assert bench.size == 0
    assert finalize(f"{elsewhere}/", url=bench.url) == 0
    assert finalize("viewfs://lake/data/nothing", url=bench.url) == 0


def test_checkpoint_elsewhere_without_a_session_says_what_to_do(monkeypatch):
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)

    with pytest.raises(InvalidValue, match="read by the Spark session of this process"):
        finalize("s3a://lake/checkpoint")
