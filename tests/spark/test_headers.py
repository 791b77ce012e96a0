"""Headers of messages are a column of maps, for reading and for writing."""

import pytest

from aiorsmq_ng._common.message_headers import decode_headers
from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng.spark import jobs

from .conftest import Bench

HEADERS = {"a": {"n": "0", "tenant": "acme"}, "b": None, "c": {"n": "2"}}
TEXTS = (b'{"n":"0","tenant":"acme"}', b"", b'{"n":"2"}')


@pytest.fixture
def filled(bench):
    """The queue, with three messages sent by another client; the second one has no headers."""
    send = messages.send(
        bench.keys, [b"a", b"b", b"c"], delay_ms=0, channel=bench.keys.wake, headers=TEXTS
    )
    bench.run(send)
    return bench


def headers_of(rows):
    return {row.body: row.headers for row in rows}


def received(bench):
    return {m.body.decode(): decode_headers(m.headers) or None for m in bench.receive(10)}


def frame(spark):
    """The rows to send; the last one has headers that are empty."""
    rows = [*HEADERS.items(), ("d", {})]
    return spark.createDataFrame(rows, "body string, headers map<string,string>")


def test_read_has_headers_if_they_are_asked_for(spark, filled):
    assert "headers" not in filled.read(spark).columns
    assert headers_of(filled.read(spark, includeHeaders="true").collect()) == HEADERS
    schema = "headers map<string,string>, body string"
    named = spark.read.format("rsmq").schema(schema).options(**filled.options).load()
    assert headers_of(named.collect()) == HEADERS


def test_ids_that_end_as_if_there_were_headers_have_none(spark, bench):
    bench.write(spark.sql("SELECT 'x' AS body, repeat('hd', 16) AS id"))

    assert headers_of(bench.read(spark, includeHeaders="true").collect()) == {"x": None}


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_stream_has_headers(spark, filled, tmp_path, mode):
    given = {"claimMode": mode, "ledger": "etl", "fetchSize": "2", "includeHeaders": "true"}
    rows = []
    query = (
        filled.stream(spark, **given)
        .writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)

    assert headers_of(rows) == HEADERS
    assert filled.size == 0


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_rows_are_sent_with_their_headers(spark, bench, delivery):
    for _ in range(2):  # the second one sends nothing
        bench.write(frame(spark).coalesce(1), delivery=delivery, jobId="nightly", sendSize="2")

    assert received(bench) == {**HEADERS, "d": None}


def test_stream_copies_headers_to_another_queue(spark, filled, other, tmp_path):
    query = (
        filled.stream(spark, includeHeaders="true")
        .select("body", "headers")
        .writeStream.format("rsmq")
        .options(**other.options, checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)

    assert received(other) == HEADERS
    assert filled.size == 0


def test_job_that_runs_again_with_other_headers_is_refused(spark, bench):
    bench.write(frame(spark).coalesce(1), jobId="nightly")
    changed = frame(spark).coalesce(1).selectExpr("body", "map('n', body) AS headers")

    with pytest.raises(Exception, match="RowsDiffer"):
        bench.write(changed, jobId="nightly")

    assert received(bench) == {**HEADERS, "d": None}


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("'x' AS body, 'n' AS headers", "column 'headers' is map<string,string>, not string"),
        ("'x' AS body, map('n', 1) AS headers", "not map<string,int>"),
        ("'x' AS body, map('n', NULL) AS headers", "not map<string,void>"),
        ("'x' AS body, map('a b', '1') AS headers", "header name 'a b' is not allowed"),
        (
            "'x' AS body, map('n', CAST(NULL AS STRING)) AS headers",
            "header 'n' must be a text",
        ),
        (
            "'x' AS body, map('n', '1') AS headers, repeat('k', 32) AS id",
            "end in 'hd'; leave out the id or the headers",
        ),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_with_the_reason(spark, bench, columns, text):
    with pytest.raises(Exception, match=text):
        bench.write(spark.sql(f"SELECT {columns}"))

    assert bench.size == 0


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_server_that_refuses_headers_fails_the_job(spark, bench, delivery):
    bench.redis.execute_command(
        *("ACL", "SETUSER", bench.ns, "on", ">secret", "allkeys", "allchannels"),
        *("+@all", "-hlen"),
    )
    url = bench.url.replace("://", f"://{bench.ns}:secret@")

    with pytest.raises(Exception, match="headers cannot be stored"):
        bench.write(frame(spark), url=url, delivery=delivery)

    assert bench.size == 0
    bench.redis.execute_command("ACL", "DELUSER", bench.ns)


@pytest.mark.parametrize("keep_ids", [False, True])
def test_archive_and_replay_keep_headers_also_beside_files_without_them(
    spark, filled, ns, server_url, tmp_path, keep_ids
):
    lake, again = str(tmp_path / "lake"), Bench(server_url, ns, "again")
    options = {"url": filled.url, "namespace": filled.ns}
    first = Bench(server_url, ns, "a-first-one")
    first.fill(b"old")
    # As archives were before there were headers.
    old = {**options, "includeHeaders": "false"}
    jobs.archive(spark, ["a-first-one"], lake, options=old)
    assert headers_of(jobs.read_archive(spark, lake).collect()) == {"old": None}

    jobs.archive(spark, ["jobs"], lake, options=options)
    assert headers_of(jobs.read_archive(spark, lake).collect()) == {**HEADERS, "old": None}
    sent = jobs.replay(spark, lake, queue="again", keep_ids=keep_ids, options=options)

    assert sent["rows"] == 4
    assert received(again) == {**HEADERS, "old": None}
