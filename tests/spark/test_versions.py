"""Versions of PySpark, and what it shows of errors."""

import re
import tomllib

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from aiorsmq_ng import NotSupported
from aiorsmq_ng.spark import pyspark_versions, source

from .conftest import ROOT


@pytest.mark.parametrize("version", ["4.0.1", "4.1.4"])
def test_stream_source_is_refused_where_spark_does_not_tell_what_is_finished(version):
    with pytest.raises(NotSupported, match=f"needs PySpark 4.2 or later, this is {version}"):
        pyspark_versions.require_stream_source(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.0", "5.0.0.dev1"])
def test_stream_source_is_there_in_later_versions(version):
    pyspark_versions.require_stream_source(version)


def test_version_that_lacks_something_says_so_in_the_reader_and_not_before(monkeypatch):
    """Spark hides what ``streamReader`` raises."""

    def lacks():
        raise NotSupported("too old")

    monkeypatch.setattr(pyspark_versions, "require_stream_source", lacks)
    rsmq = source.RSMQDataSource({"queue": "jobs"})

    reader = rsmq.streamReader(rsmq.schema())

    for call in (reader.initialOffset, reader.latestOffset):
        with pytest.raises(NotSupported, match="too old"):
            call()


def test_wrong_option_of_a_stream_is_shown_when_it_is_loaded(spark, bench):
    with pytest.raises(AnalysisException, match="did you mean 'fetchSize'"):
        bench.stream(spark, fetchSise="10")
    with pytest.raises(AnalysisException, match="'leaseMs' is a whole number from 1000"):
        bench.stream(spark, leaseMs="soon")


def test_option_of_another_use_is_shown_by_the_query(spark, bench, tmp_path):
    rows = bench.stream(spark, visibility="hidden")

    with pytest.raises(StreamingQueryException, match="'visibility' is one of read, not of"):
        query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query.start().awaitTermination()


def test_reference_lists_the_versions_that_are_tested_and_installed():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (bound,) = (d for d in extra["optional-dependencies"]["spark"] if d.startswith("pyspark"))
    table = (ROOT / "docs" / "reference" / "spark.md").read_text()
    listed = re.findall(r"^\| \d\.\d \(tested with (.*?)\)", table, re.MULTILINE)
    played = re.search(r'"pyspark", \[(.*?)\]', (ROOT / "noxfile.py").read_text())[1]

    versions = [v for each in listed for v in each.split(" and ")]
    assert sorted(versions) == sorted(re.findall(r"[\d.]+", played))
    assert bound.startswith(f"pyspark>={min(versions)},")
