"""What a stream shows of itself in the progress of its query."""

import time

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from aiorsmq_ng.spark import stream_reader
from aiorsmq_ng.spark.arrow_rows import full_schema
from aiorsmq_ng.spark.options import StreamReadOptions, parse

from .support import eventually


@pytest.fixture
def reader(bench, monkeypatch):
    """Make a reader that shows fresh numbers at every call."""
    monkeypatch.setattr(stream_reader, "_BACKLOG_S", -1.0)
    made = []

    def make(**options):
        given = parse(StreamReadOptions, {**bench.options, "claimAhead": "false", **options})
        made.append(stream_reader.ClaimReader(given, full_schema("string")))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_progress_shows_backlog_age_and_claims(reader, bench):
    bench.fill_numbers(3)
    query = reader()
    query.latestOffset(query.initialOffset(), ReadMaxRows(2))
    late = 1000 * time.time() - 5000
    for id in bench.redis.zrangebyscore(bench.keys.zset, 0, 1000 * time.time()):
        bench.redis.zadd(bench.keys.zset, {id: late})

    shown = query.reportLatestOffset()

    assert 5000 <= shown.pop("oldestAgeMs") < 600_000
    assert shown == {
        "visible": 1,
        "hidden": 2,
        "claimed": 2,
        "renewed": 0,
        "takenByOthers": 0,
        "outages": 0,
    }


def test_progress_of_an_empty_queue_has_no_age(reader):
    assert set(reader().reportLatestOffset().values()) == {0}


def test_progress_shows_renewals_and_what_others_took_once(reader, bench):
    bench.fill_numbers(2)
    query = reader(leaseMs="1000")
    query.latestOffset(query.initialOffset(), ReadMaxRows(10))
    id = bench.redis.zrange(bench.keys.zset, 0, 0)[0]

    # Another client has received it: its lease ends at another time.
    bench.redis.zadd(bench.keys.zset, {id: 1000 * (time.time() + 3600)})
    eventually(lambda: query.reportLatestOffset()["takenByOthers"] == 1)
    before = query.reportLatestOffset()["renewed"]
    eventually(lambda: query.reportLatestOffset()["renewed"] >= before + 2)

    assert query.reportLatestOffset()["takenByOthers"] == 1
