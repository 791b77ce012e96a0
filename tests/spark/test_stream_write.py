"""Writing a stream into a queue: every epoch once."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from aiorsmq_ng import InvalidValue
from aiorsmq_ng._protocol.operations.spark import bulk_send
from aiorsmq_ng.spark.options import WriteOptions, parse
from aiorsmq_ng.spark.writers import Outcome, StreamSink

SCHEMA = StructType([StructField("body", StringType())])


@pytest.fixture
def copy(spark, bench, other, tmp_path):
    """Copy one queue into another."""

    def run(**options):
        given = {**other.options, **options}
        query = (
            bench.stream(spark, maxMessagesPerTrigger="100")
            .select("body")
            .writeStream.format("rsmq")
            .options(**given)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        return query

    return run


@pytest.mark.parametrize("delivery", ["staged", "direct"])
def test_stream_sends_every_row_of_every_epoch(copy, bench, other, delivery):
    bench.fill_numbers(250)

    copy(delivery=delivery)

    assert sorted(map(int, other.bodies())) == list(range(250))
    assert bench.size == 0
    assert "staged" not in other.side_keys()


@pytest.fixture
def sink(other):
    return StreamSink(parse(WriteOptions, other.options), SCHEMA, overwrite=False)


def staged(other, attempt, *bodies):
    ids = [b"%022d" % n for n in range(len(bodies))]
    rows = bulk_send.Rows(ids, [-1] * len(bodies), list(bodies))
    other.run(bulk_send.stage(other.keys, attempt, rows, before=0, ttl_s=60, oversize="fail"))
    return Outcome("query", {"out": rows.count}, {"out": attempt})


def test_epoch_committed_twice_is_sent_once(sink, other):
    sink.commit([staged(other, "a", b"1", b"2")], 0)

    sink.commit([staged(other, "b", b"1", b"2")], 0)

    assert other.bodies() == [b"1", b"2"]
    assert other.side_keys() == ["epochs"]


def test_commit_that_was_interrupted_is_finished_with_what_it_had_begun(sink, other, monkeypatch):
    outcome = staged(other, "a", *[b"%d" % n for n in range(1500)])
    real, calls = bulk_send.move_staged, []

    def dies(*args, **named):
        calls.append(args)
        if len(calls) == 2:
            raise RuntimeError("the driver dies here")
        return real(*args, **named)

    monkeypatch.setattr(bulk_send, "move_staged", dies)
    with pytest.raises(RuntimeError):
        sink.commit([outcome], 3)
    assert other.size == 1000

    sink.commit([staged(other, "b", *[b"%d" % n for n in range(1500)])], 3)

    assert sorted(map(int, other.bodies())) == list(range(1500))
    assert other.side_keys() == ["epochs"]


def test_aborted_epoch_leaves_nothing(sink, other):
    sink.abort([staged(other, "a", b"1"), None], 0)

    assert (other.size, other.side_keys()) == (0, [])


def test_next_epoch_is_sent(sink, other):
    sink.commit([staged(other, "a", b"1")], 0)
    sink.commit([staged(other, "b", b"2")], 1)

    assert other.bodies() == [b"1", b"2"]


def test_stream_takes_no_name_of_a_job(other):
    """With a new checkpoint its epochs would be taken for those that were sent under that name."""
    with pytest.raises(InvalidValue, match="'jobId' is for batches"):
        StreamSink(parse(WriteOptions, {**other.options, "jobId": "x"}), SCHEMA, overwrite=False)


def test_rows_for_several_queues_are_committed_together(spark, bench, other, tmp_path):
    bench.fill(b"a", b"b")
    frame = bench.stream(spark).selectExpr("body", "if(body = 'a', 'out', 'jobs') AS queue")

    query = frame.writeStream.format("rsmq").options(**other.options)
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)

    assert (bench.bodies(), other.bodies()) == ([b"b"], [b"a"])
