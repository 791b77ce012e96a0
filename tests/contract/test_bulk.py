"""Bulk jobs: rows that are sent once, or set aside and sent as one, however often a task runs."""

import os
import uuid

import pytest
from redis import Redis

from aiorsmq_ng.errors import MessageTooLong, QueueNotFound
from aiorsmq_ng.ids import suffixes
from aiorsmq_ng.protocol import bulk, messages, queues
from aiorsmq_ng.protocol.keys import Namespace
from aiorsmq_ng.transport.blocking import BlockingRunner


@pytest.fixture
def keys(ns):
    return Namespace(ns).queue("jobs")


@pytest.fixture
def run(server_url, keys):
    runner = BlockingRunner(server_url, deadline_s=5)
    runner.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    yield runner.run
    runner.close()


@pytest.fixture
def redis(server_url):
    with Redis.from_url(server_url) as client:
        yield client


def rows(*bodies: bytes, delay_ms: int = -1) -> bulk.Rows:
    fresh = suffixes(os.urandom(22 * len(bodies)))
    return bulk.Rows(fresh, [delay_ms] * len(bodies), list(bodies))


def send(keys, lot, digest=b"d", job="load", partition="0", oversize="fail"):
    place = bulk.Place(job, partition, 0, digest)
    return bulk.send(keys, lot, place, ttl_s=60, oversize=oversize)


def bodies(run, keys) -> list[bytes]:
    found = run(messages.receive(messages.Intake(keys), 1000, vt_ms=30_000)).messages
    return [m.body for m in found]


def test_send_stores_rows_in_order_as_any_client_would(run, keys):
    lot = [b"%d" % n for n in range(1500)]

    sent = run(send(keys, rows(*lot)))

    assert sent == (0, 1500, 0, 0)
    assert bodies(run, keys) == lot[:1000]
    assert run(queues.attributes(keys)).totalsent == 1500


def test_send_again_sends_nothing_even_if_the_messages_are_gone(run, keys):
    lot = rows(b"a", b"b")
    run(send(keys, lot))
    run(queues.purge_all(keys))

    assert run(send(keys, lot)) == (2, 0, 0, 0)
    assert run(queues.attributes(keys)).msgs == 0


def test_send_goes_on_where_an_attempt_ended(run, keys):
    run(send(keys, rows(b"a", b"b")))

    assert run(send(keys, rows(b"a", b"b", b"c"))) == (2, 1, 0, 0)
    assert bodies(run, keys) == [b"a", b"b", b"c"]


def test_send_of_other_rows_by_a_retry_is_refused(run, keys):
    run(send(keys, rows(b"a", b"b"), digest=b"one"))

    with pytest.raises(bulk.RowsDiffer, match="delivery=staged"):
        run(send(keys, rows(b"b", b"a"), digest=b"two"))


def test_partitions_and_jobs_do_not_know_each_other(run, keys):
    for changes in ({}, {"partition": "1"}, {"job": "other"}):
        assert run(send(keys, rows(b"a"), **changes)).stored == 1


def test_marks_expire(run, keys, redis):
    run(send(keys, rows(b"a")))

    assert 0 < redis.ttl(keys.marks("load")) <= 60


def test_row_too_long_fails_the_lot_and_stores_nothing(run, keys, redis):
    with pytest.raises(MessageTooLong):
        run(send(keys, rows(b"a", b"x" * 1025)))

    assert run(queues.attributes(keys)).msgs == 0
    assert not redis.exists(keys.marks("load"))


def test_row_too_long_is_dropped_if_asked(run, keys):
    assert run(send(keys, rows(b"a", b"x" * 1025, b"b"), oversize="drop")) == (0, 2, 1, 0)
    assert bodies(run, keys) == [b"a", b"b"]


def test_row_with_an_id_keeps_it_and_does_not_replace(run, keys):
    id = "ho7va6opma" + "k" * 22

    assert run(send(keys, bulk.Rows([id.encode()], [-1], [b"mine"]))).stored == 1
    assert run(send(keys, bulk.Rows([id.encode()], [-1], [b"other"]), job="again")).existing == 1
    (message,) = run(messages.receive(messages.Intake(keys), 5, vt_ms=1000)).messages
    assert (message.id, message.body) == (id, b"mine")


def test_row_with_a_delay_waits(run, keys):
    run(send(keys, rows(b"later", delay_ms=60_000)))

    assert bodies(run, keys) == []
    assert run(queues.attributes(keys)).delayed == 1


def test_send_to_a_missing_queue_says_so(run, keys):
    with pytest.raises(QueueNotFound):
        run(send(keys.namespace.queue("nowhere"), rows(b"a")))


def test_staged_rows_become_messages_only_when_moved(run, keys):
    run(bulk.stage(keys, "t1", rows(b"a", b"b", b"c"), before=0, ttl_s=60, oversize="fail"))
    assert run(queues.attributes(keys)).msgs == 0

    left = [run(bulk.move_staged(keys, "t1", count=2)) for _ in range(2)]

    assert left == [1, 0]
    assert bodies(run, keys) == [b"a", b"b", b"c"]


def test_stage_repeated_after_a_lost_reply_adds_nothing(run, keys, redis):
    call = bulk.stage(keys, "t1", rows(b"a", b"b"), before=0, ttl_s=60, oversize="fail")

    assert [run(call), run(call)] == [(2, 0), (2, 0)]
    assert redis.llen(keys.staged("t1")) == 6
    assert 0 < redis.ttl(keys.staged("t1")) <= 60


def test_epoch_that_was_begun_keeps_its_first_record(run, keys):
    def begin(record):
        return run(bulk.begin_epoch(keys, "q", 7, record, [], ttl_s=60))

    assert [begin("one"), begin("two")] == ["one", "one"]
    run(bulk.end_epoch(keys, "q", 7, ttl_s=60))
    assert begin("three") == ""


def test_committed_rows_outlive_the_patience_with_uncommitted_ones(run, keys, redis):
    run(bulk.stage(keys, "t1", rows(b"a"), before=0, ttl_s=60, oversize="fail"))

    run(bulk.begin_epoch(keys, "q", 0, "x", [keys.staged("t1")], ttl_s=6000))

    assert redis.ttl(keys.staged("t1")) > 60


def note(run, keys, *, visibility="all", step=10_000):
    id, state = uuid.uuid4().hex, bulk.SnapshotState()
    while state.now_ms is None or state.last:
        state = run(bulk.note(keys, id, state, visibility=visibility, ttl_s=60, step=step))
    return id, state.noted


def noted(run, keys, id, count):
    return run(bulk.read_noted(keys, id, 0, count, ttl_s=60, bodies=True, counts=True))


@pytest.mark.parametrize("step", [7, 10_000])
@pytest.mark.parametrize(("visibility", "expected"), [("all", 30), ("visible", 20), ("hidden", 10)])
def test_snapshot_holds_what_the_queue_held(run, keys, visibility, expected, step):
    run(send(keys, rows(*[b"now"] * 20)))
    run(send(keys, rows(*[b"later"] * 10, delay_ms=60_000), job="later"))

    id, count = note(run, keys, visibility=visibility, step=step)
    run(send(keys, rows(b"new"), job="new"))
    page = noted(run, keys, id, 100)

    assert count == expected
    assert len(set(page.ids)) == expected
    assert (page.bodies.count(b"now"), page.bodies.count(b"new")) == (
        20 if visibility != "hidden" else 0,
        0,
    )


def test_snapshot_made_in_pages_misses_nothing_while_others_delete(run, keys):
    run(send(keys, rows(*[b"x"] * 100)))
    id, state = "s", bulk.SnapshotState()
    deleted: set[str] = set()
    while state.now_ms is None or state.last:
        state = run(bulk.note(keys, id, state, visibility="all", ttl_s=60, step=10))
        victims = run(messages.pop(keys, 3)).messages
        deleted |= {m.id for m in victims}

    found = {i.decode() for i in noted(run, keys, id, 200).ids}

    left = run(messages.receive(messages.Intake(keys), 200, vt_ms=1000)).messages
    assert {m.id for m in left} <= found
    assert len(found | deleted) == 100


def test_snapshot_shows_gone_messages_without_a_body(run, keys):
    run(send(keys, rows(b"a", b"b")))
    id, count = note(run, keys)
    run(messages.pop(keys, 1))

    assert noted(run, keys, id, count).bodies == [None, b"b"]


def test_snapshot_that_expired_is_said_to_be_gone(run, keys, redis):
    run(send(keys, rows(b"a")))
    id, _ = note(run, keys)
    redis.delete(keys.snapshot(id))

    with pytest.raises(bulk.SnapshotGone, match=r"load\(\) it again"):
        noted(run, keys, id, 1)
