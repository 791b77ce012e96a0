"""Writing a table into a queue: every row once, whatever has to run again."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from aiorsmq_ng.spark.options import WriteOptions, parse
from aiorsmq_ng.spark.writers import BatchSink

from .stumbling import StumblingSource


def numbers(spark, count, partitions=2):
    return spark.range(0, count, 1, partitions).selectExpr("cast(id AS string) AS body")


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_write_sends_every_row(spark, bench, delivery):
    bench.write(numbers(spark, 2500), delivery=delivery, sendSize="400")

    assert sorted(map(int, bench.bodies())) == list(range(2500))
    assert bench.redis.hget(bench.keys.hash, "totalsent") == b"2500"
    assert "staged" not in bench.side_keys()


def test_rows_of_a_partition_keep_their_order(spark, bench):
    bench.write(numbers(spark, 1000, partitions=1), sendSize="100")

    assert [int(m.body) for m in bench.receive(1000)] == list(range(1000))


def test_rows_name_queue_delay_and_id(spark, bench, other):
    frame = spark.sql(
        """
        SELECT * FROM VALUES ('a', 'out', 600, CAST(NULL AS string)),
          ('b', NULL, NULL, 'gy00000000xxxxxxxxxxxxxxxxxxxxxx') AS t(body, queue, delay, id)
        """
    )

    bench.write(frame)

    assert (bench.bodies(), other.bodies()) == ([b"b"], [b"a"])
    assert bench.redis.zrange(bench.keys.zset, 0, -1) == [b"gy00000000xxxxxxxxxxxxxxxxxxxxxx"]
    assert other.receive() == []


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_column_names_the_queue_without_an_option(spark, bench, other, delivery):
    rows = spark.createDataFrame([("a", "jobs"), ("b", "out")], "body string, queue string")

    for _ in range(2):  # the second one sends nothing: its record is found
        bench.write(rows, queue="", delivery=delivery, jobId="nightly")

    assert (bench.bodies(), other.bodies()) == ([b"a"], [b"b"])


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_id_as_long_as_the_random_part_of_one_is_kept(spark, bench, delivery):
    bench.write(spark.sql("SELECT 'x' AS body, repeat('k', 22) AS id"), delivery=delivery)

    assert bench.redis.zrange(bench.keys.zset, 0, -1) == [b"k" * 22]


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_job_that_runs_again_sends_nothing_twice(spark, bench, delivery):
    for _ in range(2):
        bench.write(numbers(spark, 100), jobId="nightly", delivery=delivery)
        bench.receive(10)

    assert bench.size == 100


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Equal in length and CRC-32.
        pytest.param(["uejgtcuo"], ["iiwucoup"], id="checksum"),
        pytest.param(["a\0b", "c"], ["a", "b\0c"], id="bounds"),
        pytest.param(["a", "b", "c"], ["a", "b"], id="fewer"),
    ],
)
def test_job_that_runs_again_with_other_rows_is_refused(spark, bench, before, after):
    def write(bodies):
        rows = spark.createDataFrame([(body,) for body in bodies], "body string").coalesce(1)
        bench.write(rows, jobId="nightly")

    write(before)
    with pytest.raises(Exception, match="RowsDiffer"):
        write(after)

    assert bench.bodies() == [body.encode() for body in before]


def test_rows_that_run_again_in_lots_of_another_size_are_the_same(spark, bench):
    rows = spark.range(100, numPartitions=1).selectExpr("CAST(id AS STRING) AS body")
    for size in ("30", "7"):
        bench.write(rows, jobId="nightly", sendSize=size)

    assert bench.size == 100


def test_task_that_fails_and_is_tried_again_sends_each_row_once(spark, bench, tmp_path):
    spark.dataSource.register(StumblingSource)
    options = {**bench.options, "sendSize": "100", "flag": str(tmp_path / "failed")}

    numbers(spark, 3000).write.format("stumbling").options(**options).mode("append").save()

    assert sorted(map(int, bench.bodies())) == list(range(3000))
    assert (tmp_path / "failed").exists()


def test_body_as_bytes_and_codec(spark, bench):
    bench.write(spark.sql("SELECT X'FF00' AS body"), codec="base64")

    assert bench.bodies() == [b"/wA="]


def test_row_too_long_fails_the_job(spark, other):
    with pytest.raises(Exception, match="body of 2000 bytes exceeds the maxsize of 1024 bytes"):
        other.write(spark.sql("SELECT repeat('x', 2000) AS body"))


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_row_too_long_is_dropped_if_asked(spark, other, delivery):
    frame = spark.sql("SELECT repeat('x', n) AS body FROM VALUES (10), (2000), (20) AS t(n)")

    other.write(frame, onOversize="drop", delivery=delivery)

    assert sorted(map(len, other.bodies())) == [10, 20]


def test_staged_job_that_fails_sends_nothing(spark, bench):
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "if(id = 99, raise_error('no'), cast(id AS string)) AS body"
    )

    with pytest.raises(Exception, match="no"):
        bench.write(frame, delivery="staged", sendSize="10")

    assert bench.size == 0


def test_missing_queue_is_made_if_asked(spark, bench):
    bench.write(numbers(spark, 3), queue="fresh", createQueue="true")

    assert bench.redis.zcard(f"{bench.ns}:fresh") == 3
    assert bench.redis.sismember(f"{bench.ns}:QUEUES", "fresh")


@pytest.mark.parametrize(
    ("select", "options", "mode", "sentence"),
    [
        ("'x' AS body", {"queue": "nowhere"}, "append", "queue 'nowhere' does not exist"),
        (
            "'x' AS boody",
            {},
            "append",
            "column 'boody' is none of body, queue, delay, id, headers; ",
        ),
        ("'x' AS body, 'short' AS id", {}, "append", "message id 'short' is not allowed"),
        ("'x' AS body, -1 AS delay", {}, "append", "delay must be between 0 and"),
        ("cast(NULL AS string) AS body", {}, "append", "a row has no body"),
        ("'x' AS body", {"queue": ""}, "append", "neither an option 'queue' nor a column 'queue'"),
        ("'x' AS body, '' AS queue", {"queue": ""}, "append", "a row has no queue; give option"),
        ("'x' AS body", {}, "overwrite", "a queue is not overwritten"),
        ("'{' AS body", {"codec": "json"}, "append", "body is not JSON"),
    ],
)
def test_wrong_input_reaches_the_user_as_one_sentence(
    spark, bench, select, options, mode, sentence
):
    given = {**bench.options, **options}

    with pytest.raises(Exception) as caught:  # noqa: PT011
        spark.sql(f"SELECT {select}").write.format("rsmq").options(**given).mode(mode).save()
    assert sentence in str(caught.value)
    assert bench.size == 0


class Attempts:
    """Two attempts of one task that run at the same time, as speculation has them."""

    def __init__(self, monkeypatch, options):
        context = SimpleNamespace(get=lambda: SimpleNamespace(partitionId=lambda: 7))
        monkeypatch.setattr("aiorsmq_ng.spark.writers.TaskContext", context)
        schema = StructType([StructField("body", StringType())])
        self.sink = BatchSink(parse(WriteOptions, options), schema, overwrite=False)
        self.half, self.over = threading.Event(), threading.Event()

    def slow(self):
        """Send half, wait until the other one is done, send the rest."""
        yield from BATCHES[:3]
        self.half.set()
        assert self.over.wait(60)
        yield from BATCHES[3:]

    def fast(self):
        assert self.half.wait(60)
        yield from BATCHES

    def run(self):
        """Return what came of the slow one and of the fast one."""
        with ThreadPoolExecutor(2) as pool:
            copies = [pickle.loads(pickle.dumps(self.sink)) for _ in range(2)]
            slow = pool.submit(copies[0].write, self.slow())
            fast = pool.submit(copies[1].write, self.fast())
            fast.add_done_callback(lambda _: self.over.set())
            return slow.result(60), fast.result(60)


BATCHES = [
    pa.RecordBatch.from_pydict({"body": [str(n) for n in range(at, at + 100)]})
    for at in range(0, 600, 100)
]


def test_two_attempts_of_one_task_at_once_send_each_row_once(bench, monkeypatch):
    attempts = Attempts(monkeypatch, {**bench.options, "sendSize": "70"})

    slow, fast = attempts.run()

    assert sorted(map(int, bench.bodies())) == list(range(600))
    assert slow.rows["jobs"] + fast.rows["jobs"] == 600
    assert min(slow.rows["jobs"], fast.rows["jobs"]) > 0


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_rows_that_were_dropped_are_reported(other, monkeypatch, caplog, delivery):
    given = {**other.options, "onOversize": "drop", "sendSize": "2", "delivery": delivery}
    attempts = Attempts(monkeypatch, given)
    rows = pa.RecordBatch.from_pydict({"body": ["x" * n for n in (1, 2000, 3, 2000, 2000)]})

    attempts.sink.commit([attempts.sink.write(iter([rows])), None])

    assert sorted(map(len, other.bodies())) == [1, 3]
    assert caplog.messages == ["3 rows for queue 'out' exceed its maxsize and were dropped"]


def test_of_two_staged_attempts_the_one_that_spark_commits_is_sent(bench, monkeypatch):
    attempts = Attempts(monkeypatch, {**bench.options, "sendSize": "70", "delivery": "staged"})

    slow, fast = attempts.run()
    assert bench.size == 0
    attempts.sink.commit([fast])
    attempts.sink.abort([slow])

    assert sorted(map(int, bench.bodies())) == list(range(600))
    assert "staged" not in bench.side_keys()
