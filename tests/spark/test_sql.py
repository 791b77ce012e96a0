"""Queues in SQL."""

import pytest
from pyspark.errors import AnalysisException


@pytest.fixture
def names(bench):
    return f"url '{bench.url}', namespace '{bench.ns}', queue '{bench.name}'"


@pytest.fixture
def view(spark):
    yield "messages"
    spark.catalog.dropTempView("messages")


def test_queue_is_queried_as_a_temporary_view(spark, bench, names, view):
    bench.fill_numbers(5)

    spark.sql(f"CREATE TEMPORARY VIEW {view} USING rsmq OPTIONS ({names})")
    rows = spark.sql(f"SELECT sum(cast(body AS int)) AS sum, max(queue) AS queue FROM {view}")

    assert rows.collect() == [(10, "jobs")]
    assert bench.size == 5


def test_view_is_one_snapshot_until_it_is_replaced(spark, bench, names, view):
    create = f"CREATE OR REPLACE TEMPORARY VIEW {view} USING rsmq OPTIONS ({names})"
    count = f"SELECT count(*) FROM {view}"
    bench.fill_numbers(5)
    spark.sql(create)
    before = spark.sql(count).collect()
    bench.fill_numbers(3)

    same = spark.sql(count).collect()
    spark.sql(create)
    after = spark.sql(count).collect()

    assert (before, same, after) == ([(5,)], [(5,)], [(8,)])


def test_messages_are_sent_by_inserting_into_a_view_of_the_columns_to_send(
    spark, bench, names, view
):
    spark.sql(f"CREATE TEMPORARY VIEW {view} (body STRING) USING rsmq OPTIONS ({names})")

    spark.sql(f"INSERT INTO {view} SELECT string(id) FROM range(3)")

    assert sorted(bench.bodies()) == [b"0", b"1", b"2"]


def test_table_is_refused_with_what_to_write_instead(spark, names):
    with pytest.raises(AnalysisException, match=r"cannot be a table .* CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE refused USING rsmq OPTIONS ({names})")

    assert not spark.catalog.tableExists("refused")


def test_table_with_columns_says_at_its_use_that_it_has_no_queue(spark, names):
    """Spark does not ask the source when it creates such a table."""
    spark.sql(f"CREATE TABLE empty (body STRING) USING rsmq OPTIONS ({names})")
    try:
        with pytest.raises(Exception, match=r"'queue' is missing.* CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM empty").collect()
    finally:
        spark.sql("DROP TABLE empty")
