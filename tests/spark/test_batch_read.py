"""Reading a queue as a table looks and leaves everything as it is."""

import gzip
from datetime import UTC, datetime

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from aiorsmq_ng._protocol.operations.spark import snapshots
from aiorsmq_ng.spark import batch_reader
from aiorsmq_ng.spark.batch_reader import SnapshotReader, tasks_for
from aiorsmq_ng.spark.options import ReadOptions, parse

SCHEMA = StructType([StructField("body", StringType())])
COLUMNS = ["id", "queue", "body", "sent_at", "visible_at", "first_received_at", "receive_count"]


def test_read_shows_every_message_and_consumes_none(spark, bench):
    bench.fill(b"never", b"twice")
    (first,) = bench.receive(1)

    frame = bench.read(spark)
    rows = {row.body: row for row in frame.collect()}

    assert frame.columns == COLUMNS
    assert set(rows) == {"never", "twice"}
    row = rows[first.body.decode()]
    assert (row.id, row.queue, row.receive_count) == (first.id, "jobs", 1)
    assert row.first_received_at.timestamp() == pytest.approx(first.fr / 1000, abs=0.001)
    assert row.visible_at > row.sent_at
    assert bench.size == 2
    assert bench.redis.hget(bench.keys.hash, f"{first.id}:rc") == b"1"


def test_read_in_partitions_gives_each_message_once(spark, bench):
    bench.fill_numbers(2500)

    frame = bench.read(spark, numPartitions="3", fetchSize="400")

    assert frame.rdd.getNumPartitions() == 3
    assert sorted(int(r.body) for r in frame.collect()) == list(range(2500))


def test_read_of_an_empty_queue_has_no_rows(spark, bench):
    assert bench.read(spark).count() == 0


def test_frame_keeps_its_snapshot_while_the_queue_goes_on(spark, bench):
    bench.fill_numbers(10)
    frame = bench.read(spark)
    assert frame.count() == 10
    bench.fill(b"new")

    assert frame.count() == 10
    assert bench.read(spark).count() == 11


def test_messages_deleted_since_the_snapshot_are_left_out(spark, bench):
    bench.fill_numbers(10)
    frame = bench.read(spark)
    assert frame.count() == 10
    bench.redis.hdel(bench.keys.hash, bench.redis.zrange(bench.keys.zset, 0, 0)[0])

    assert frame.count() == 9


def test_columns_not_asked_for_are_not_fetched(spark, bench):
    bench.fill(b"\xff\xfe not text, and not decoded")

    frame = spark.read.format("rsmq").options(**bench.options).schema("id string").load()

    assert [len(row.id) for row in frame.collect()] == [32]


@pytest.mark.parametrize(
    ("visibility", "expected"),
    [("visible", {"now"}), ("hidden", {"later"}), ("all", {"now", "later"})],
)
def test_visibility_chooses(spark, bench, visibility, expected):
    bench.fill(b"now")
    bench.fill(b"later", delay_ms=600_000)

    assert {r.body for r in bench.read(spark, visibility=visibility).collect()} == expected


def test_time_sent_chooses(spark, bench):
    bench.fill(b"new")
    old = b"0" * 2 + b"zzzzzzzz" + b"x" * 22  # an id that tells no plausible time
    for id in (old, b"gy0000000000" + b"y" * 20):
        bench.redis.zadd(bench.keys.zset, {id: 1})
        bench.redis.hset(bench.keys.hash, id, id)
    rows = {r.body[:2]: r.sent_at for r in bench.read(spark).collect()}
    middle = datetime.now(UTC).replace(year=2025).isoformat()

    after = bench.read(spark, sentAfter=middle).collect()
    before = bench.read(spark, sentBefore=middle).collect()

    assert rows["00"] is None
    assert [r.body for r in after] == ["new"]
    assert [r.body[:2] for r in before] == ["gy"]


def test_bodies_as_bytes(spark, bench):
    bench.fill(b"\xff\x00")

    assert [bytes(r.body) for r in bench.read(spark, bodyType="binary").collect()] == [b"\xff\x00"]


@pytest.mark.parametrize(("choice", "expected"), [("null", {None, "fine"}), ("drop", {"fine"})])
def test_body_that_is_no_text_is_dealt_with_as_asked(spark, bench, choice, expected):
    bench.fill(b"\xff\x00", b"fine")

    assert {r.body for r in bench.read(spark, onDecodeError=choice).collect()} == expected


def test_body_that_is_no_text_fails_with_what_to_do(spark, bench):
    bench.fill(b"fine", b"\xff\x00")

    with pytest.raises(Exception, match=r"does not decode .*bodyType=binary"):
        bench.read(spark).collect()


@pytest.mark.parametrize(
    ("codec", "stored"),
    [
        ("gzip", gzip.compress(b'{"a":1}', mtime=0)),
        ("base64", b"eyJhIjoxfQ=="),
        ("json", b'{"a":1}'),
    ],
)
def test_codec_decodes_and_notices_what_is_none_of_its_own(spark, bench, codec, stored):
    bench.fill(stored, b"{nothing of the kind")

    rows = bench.read(spark, codec=codec, onDecodeError="null").collect()

    assert {r.body for r in rows} == {'{"a":1}', None}


def test_snapshot_expires(spark, bench):
    bench.fill(b"x")
    bench.read(spark, snapshotTtlMs="500000").count()

    (snapshot,) = bench.redis.keys(f"{bench.keys.zset}:ng:snapshot:*")
    assert 0 < bench.redis.ttl(snapshot) <= 500


def test_snapshot_that_is_gone_is_said_to_be(spark, bench):
    bench.fill(b"x")
    frame = bench.read(spark)
    frame.count()
    bench.redis.delete(*bench.redis.keys(f"{bench.keys.zset}:ng:snapshot:*"))

    with pytest.raises(Exception, match="snapshot of queue 'jobs' has expired"):
        frame.count()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"quue": "jobs"}, "option 'quue' is not known; did you mean 'queue'"),
        ({"queue": "nowhere"}, "queue 'nowhere' does not exist in namespace"),
        ({"url": "redis://127.0.0.1:1", "timeoutMs": "300"}, "redis cannot be reached"),
    ],
)
def test_wrong_option_reaches_the_user_as_one_sentence(spark, bench, options, sentence):
    given = {**bench.options, **options}

    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps errors as it likes
        spark.read.format("rsmq").options(**given).load().count()
    assert sentence in str(caught.value)


def test_wrong_schema_reaches_the_user_as_one_sentence(spark, bench):
    with pytest.raises(Exception, match="there is no column 'boddy'; did you mean 'body'"):
        spark.read.format("rsmq").options(**bench.options).schema("boddy string").load().count()


def test_snapshot_in_several_pages_is_read_as_one(bench, monkeypatch):
    """Partitions do not have to end where pages do."""
    monkeypatch.setattr(batch_reader, "SNAPSHOT_PAGE", 40)
    bench.fill_numbers(100)
    reader = SnapshotReader(parse(ReadOptions, {**bench.options, "numPartitions": "3"}), SCHEMA)

    parts = reader.partitions()
    bodies = [b.as_py() for part in parts for rows in reader.read(part) for b in rows["body"]]

    assert [[(p.page, p.start, p.stop) for _, p in part.ranges] for part in parts] == [
        [(0, 0, 33)],
        [(0, 33, 40), (1, 0, 26)],
        [(1, 26, 40), (2, 0, 20)],
    ]
    assert bodies == [str(n) for n in range(100)]


def test_several_queues_are_one_table(spark, bench, other):
    bench.fill_numbers(5)
    other.fill_numbers(3, start=5)

    seen = bench.read(spark, queue="jobs,out", numPartitions="3").collect()
    assert sorted((int(r.body), r.queue) for r in seen) == [
        (n, "jobs" if n < 5 else "out") for n in range(8)
    ]
    reader = spark.read.format("rsmq").options(url=bench.url, namespace=bench.ns)
    assert reader.load(["jobs", "out"]).count() == 8
    assert reader.option("queuesPattern", "o.*").load().count() == 3


def test_missing_queue_of_several_is_an_error_or_left_out(spark, bench):
    bench.fill_numbers(2)

    with pytest.raises(Exception, match="queue 'none' does not exist"):
        bench.read(spark, queue="jobs,none").count()
    assert bench.read(spark, queue="jobs,none", onMissingQueue="skip").count() == 2


@pytest.mark.parametrize(
    ("messages", "size", "most", "processors", "tasks"),
    [
        (0, 200, 0, 2, 0),
        (1000, 200, 0, 8, 1),
        (100_000, 200, 0, 2, 2),
        (100_000, 200, 0, 16, 5),
        (1_000_000, 200, 0, 2, 2),
        (2_000_000, 10, 0, 2, 4),
        (100_000, 8192, 0, 2, 7),
        (10_000_000, 8192, 0, 2, 64),
        (1_000_000, 200, 25_000, 2, 40),
    ],
)
def test_tasks_are_chosen_by_messages_bytes_and_processors(
    monkeypatch, messages, size, most, processors, tasks
):
    monkeypatch.setattr("os.cpu_count", lambda: processors)

    assert tasks_for(messages, messages * size, most) == tasks


def test_snapshot_knows_the_bytes_of_its_messages(bench):
    bench.fill(*[b"x" * 1000] * 300)

    state = snapshots.SnapshotState()
    while state.now_ms is None or state.last:
        take = snapshots.take_snapshot(bench.keys, "s", state, visibility="all", ttl_s=60, step=100)
        state = bench.run(take)

    assert (state.sizes, state.bytes) == ((100, 100, 100), 300_000)
