"""``onDecodeError=deadletter``: what does not decode goes to the dead-letter queue, once."""

import pytest

from aiorsmq_ng._protocol.operations.spark.claims import DeadLetter
from aiorsmq_ng._protocol.operations.spark.reasons import read_reasons
from aiorsmq_ng.errors import InvalidValue
from aiorsmq_ng.spark import jobs
from aiorsmq_ng.spark.options import StreamReadOptions, parse
from aiorsmq_ng.spark.stream_reader import _lots

from .conftest import Bench
from .stumbling import StumblingSource

BAD = [b"\xff\xfe 1", b"\xc3", b"\xff" * 300]


@pytest.fixture
def drain(spark, bench, tmp_path):
    """Read all there is into Parquet; return the bodies."""

    def run(source="rsmq", **options):
        given = {**bench.options, "onDecodeError": "deadletter", **options}
        if "queues" in options or "queuesPattern" in options:
            del given["queue"]
        stream = spark.readStream.format(source).options(**given).load()
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(row.body for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    return run


def dead_letters(bench, name="jobs-dead"):
    """Return the bodies and the reasons in a dead-letter queue."""
    dead = Bench(bench.url, bench.ns, name)
    ids = [id.decode() for id in dead.redis.zrange(dead.keys.zset, 0, -1)]
    return sorted(dead.bodies()), bench.run(read_reasons(dead.keys, ids)) if ids else []


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_bodies_that_do_not_decode_go_to_the_dead_letter_queue(drain, bench, mode):
    bench.fill(b"1", *BAD, b"2")

    rows = drain(claimMode=mode, ledger="etl", fetchSize="2")

    assert rows == ["1", "2"]
    bodies, reasons = dead_letters(bench)
    assert bodies == sorted(BAD)
    assert all(r.startswith("does not decode with codec=plain (UnicodeDecode") for r in reasons)
    assert (bench.size, bench.redis.hlen(bench.keys.hash)) == (0, 7)
    assert bench.side_keys() == ["group", "ledger"]


def test_reason_names_the_codec_and_the_error(drain, bench):
    bench.fill(b'{"a": 1}', b"not json")

    assert drain(codec="json", deadLetterQueue="spoilt") == ['{"a": 1}']

    bodies, (reason,) = dead_letters(bench, "spoilt")
    assert bodies == [b"not json"]
    assert reason.startswith("does not decode with codec=json (DecodeError: JSON is malformed")


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_task_that_fails_after_its_dead_letters_moves_them_once(
    spark, drain, bench, tmp_path, mode
):
    spark.dataSource.register(StumblingSource)
    bench.fill(b"1", *BAD, b"2")
    flag = tmp_path / "stumbled"

    rows = drain("stumbling", flag=str(flag), claimMode=mode, ledger="etl")

    assert flag.exists()
    assert rows == ["1", "2"]
    assert dead_letters(bench)[0] == sorted(BAD)
    assert bench.size == 0


def test_each_queue_of_a_pattern_has_its_own_and_none_of_them_is_read(drain, bench):
    other = Bench(bench.url, bench.ns, "mails")
    bench.fill(b"1", BAD[0])
    other.fill(b"2", BAD[1])
    dead = Bench(bench.url, bench.ns, "jobs-dead")
    dead.fill(b"was dead before")

    assert drain(queuesPattern=".*") == ["1", "2"]

    assert dead_letters(bench)[0] == sorted([BAD[0], b"was dead before"])
    assert dead_letters(bench, "mails-dead")[0] == [BAD[1]]


def test_archive_goes_on_behind_a_body_that_does_not_decode(spark, bench, tmp_path):
    bench.fill(b"1", BAD[0])
    server = {name: bench.options[name] for name in ("url", "namespace")}

    told = jobs.archive(
        spark, ["jobs"], str(tmp_path / "lake"), options=server | {"onDecodeError": "deadletter"}
    )

    assert told["rows"] == 1
    assert dead_letters(bench)[0] == [BAD[0]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"queue": "jobs", "deadLetterQueue": "x", "onDecodeError": "drop"},
            "needs 'onDecodeError' = 'deadletter'",
        ),
        ({"queue": "jobs", "deadLetterQueue": "jobs"}, "names 'jobs', which the query reads"),
        (
            {"queues": "a,b", "ns": "{x},{y}", "deadLetterQueue": "d"},
            "lie in different namespaces",
        ),
        ({"queuesPattern": "j.*", "ns": "{x},{y}", "deadLetterQueue": "d"}, "needs one namespace"),
        ({"queue": "q" * 160}, "name another in option 'deadLetterQueue'"),
    ],
)
def test_wrong_dead_letter_queue_is_named(options, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        parse(StreamReadOptions, {"onDecodeError": "deadletter", **options})


def test_calls_end_with_the_message_that_reaches_their_bytes():
    letters = [DeadLetter(n, b"%020d" % n, b"x" * 40, "bad") for n in range(7)]

    assert [len(lot) for lot in _lots(letters, 100)] == [3, 3, 1]
    assert [len(lot) for lot in _lots(letters * 100, 2**20)] == [500, 200]
