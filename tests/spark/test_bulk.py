"""Bulk jobs: rows that are sent once, or set aside and sent as one, however often a task runs."""

import os
import uuid

import pytest
from redis import Redis

from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.spark import bulk
from aiorsmq_ng._protocol.redis_codecs.spark_bulk import flat, packed
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.errors import MessageTooLong, QueueNotFound, RowsDiffer, SnapshotGone
from aiorsmq_ng.options import Options


@pytest.fixture
def keys(ns):
    return Namespace(ns).queue("jobs")


@pytest.fixture
def run(server_url, keys):
    client = SyncClient(server_url, Options(deadline=5))
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    yield client.run
    client.close()


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
    found = run(messages.receive(messages.ReceiveSpec(keys), 1000, vt_ms=30_000)).messages
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

    with pytest.raises(RowsDiffer, match="delivery=staged"):
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

    assert run(send(keys, bulk.Rows([bulk.kept(id)], [-1], [b"mine"]))).stored == 1
    assert run(send(keys, bulk.Rows([bulk.kept(id)], [-1], [b"other"]), job="again")).existing == 1
    (message,) = run(messages.receive(messages.ReceiveSpec(keys), 5, vt_ms=1000)).messages
    assert (message.id, message.body) == (id, b"mine")


@pytest.mark.parametrize("length", [20, 22, 64])
@pytest.mark.parametrize("staged", [False, True])
def test_row_keeps_an_id_of_any_length(run, keys, redis, length, staged):
    """Ids of other clients may be as long as the random part of an RSMQ id."""
    id = "k" * length
    lot = bulk.Rows([bulk.kept(id)], [-1], [b"mine"])

    if staged:
        run(bulk.stage(keys, "t1", lot, before=0, ttl_s=60, oversize="fail"))
        run(bulk.move_staged(keys, "t1", count=10))
    else:
        run(send(keys, lot))

    assert redis.zrange(keys.zset, 0, -1) == [id.encode()]


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
        state = run(bulk.take_snapshot(keys, id, state, visibility=visibility, ttl_s=60, step=step))
    return id, state.sizes


def noted(run, keys, id, sizes):
    """Return ids and bodies of all messages in a snapshot."""
    ids, bodies = [], []
    for page, size in enumerate(sizes):
        if not size:
            continue
        part = bulk.SnapshotRange(id, len(sizes), page, 0, size)
        read = run(bulk.read_snapshot(keys, part, ttl_s=60, bodies=True, counts=True))
        ids += read.range[0::2]
        bodies += read.bodies
    return ids, bodies


@pytest.mark.parametrize("step", [7, 10_000])
@pytest.mark.parametrize(("visibility", "expected"), [("all", 30), ("visible", 20), ("hidden", 10)])
def test_snapshot_holds_what_the_queue_held(run, keys, visibility, expected, step):
    run(send(keys, rows(*[b"now"] * 20)))
    run(send(keys, rows(*[b"later"] * 10, delay_ms=60_000), job="later"))

    id, sizes = note(run, keys, visibility=visibility, step=step)
    run(send(keys, rows(b"new"), job="new"))
    ids, bodies = noted(run, keys, id, sizes)

    assert sum(sizes) == expected
    assert len(sizes) == -(-expected // step)
    assert len(ids) == len(set(ids)) == expected
    assert (bodies.count(b"now"), bodies.count(b"new")) == (
        20 if visibility != "hidden" else 0,
        0,
    )


def test_snapshot_made_in_pages_misses_nothing_while_others_delete(run, keys):
    run(send(keys, rows(*[b"x"] * 100)))
    id, state = "s", bulk.SnapshotState()
    deleted: set[str] = set()
    while state.now_ms is None or state.last:
        state = run(bulk.take_snapshot(keys, id, state, visibility="all", ttl_s=60, step=10))
        victims = run(messages.pop(keys, 3)).messages
        deleted |= {m.id for m in victims}

    found = {i.decode() for i in noted(run, keys, id, state.sizes)[0]}

    left = run(messages.receive(messages.ReceiveSpec(keys), 200, vt_ms=1000)).messages
    assert {m.id for m in left} <= found
    assert len(found | deleted) == 100


def test_snapshot_made_in_pages_notes_nothing_twice_while_others_receive(run, keys):
    """What is received gets a later time, and would be met again further on."""
    run(send(keys, rows(*[b"x"] * 100)))
    id, state = "s", bulk.SnapshotState()
    while state.now_ms is None or state.last:
        state = run(bulk.take_snapshot(keys, id, state, visibility="all", ttl_s=60, step=10))
        run(messages.receive(messages.ReceiveSpec(keys), 3, vt_ms=60_000))

    ids, _ = noted(run, keys, id, state.sizes)

    assert len(ids) == len(set(ids)) == 100


def test_snapshot_of_messages_far_apart_notes_nothing_twice_either(run, keys, redis):
    """Pages that have no times in common are compared only where messages can have moved to."""
    run(send(keys, rows(*[b"x"] * 100)))
    ids = redis.zrange(keys.zset, 0, -1)
    redis.zadd(keys.zset, {id: 1000 * n for n, id in enumerate(ids)})
    state, last = bulk.SnapshotState(), ids[0]
    while state.now_ms is None or state.last:
        state = run(bulk.take_snapshot(keys, "s", state, visibility="all", ttl_s=60, step=10))
        run(messages.receive(messages.ReceiveSpec(keys), 3, vt_ms=60_000))
        # As if it was given back: a little later than before, which may be on the next page.
        last = state.last or last
        redis.zincrby(keys.zset, 2, last)

    found, _ = noted(run, keys, "s", state.sizes)

    assert len(found) == len(set(found)) == 100


def test_snapshot_lives_as_long_as_one_of_its_pages_is_read(run, keys, redis):
    run(send(keys, rows(*[b"x"] * 20)))
    id, sizes = note(run, keys, step=10)
    redis.expire(keys.snapshot(id, 1), 5)

    part = bulk.SnapshotRange(id, len(sizes), 0, 0, 1)
    run(bulk.read_snapshot(keys, part, ttl_s=60, bodies=False, counts=False))

    assert redis.ttl(keys.snapshot(id, 1)) > 5


def test_snapshot_shows_gone_messages_without_a_body(run, keys):
    run(send(keys, rows(b"a", b"b")))
    id, sizes = note(run, keys)
    run(messages.pop(keys, 1))

    assert noted(run, keys, id, sizes)[1] == [None, b"b"]


def test_snapshot_that_expired_is_said_to_be_gone(run, keys, redis):
    run(send(keys, rows(b"a")))
    id, sizes = note(run, keys)
    redis.delete(keys.snapshot(id, 0))

    with pytest.raises(SnapshotGone, match=r"load\(\) it again"):
        noted(run, keys, id, sizes)


def test_rows_that_share_a_delay_need_only_random_parts(run, keys, redis):
    """That is the short way; it makes the same messages, drops and skips alike."""
    bodies = [b"a", b"long" * 100, b"c", b"d"]
    short = bulk.Rows(b"".join(suffixes(os.urandom(22 * 4))), 60_000, bodies)
    place = bulk.Place("job", "0", 0, b"digest")
    redis.hset(keys.hash, "maxsize", 100)

    sent = run(bulk.send(keys, short, place, ttl_s=60, oversize="drop"))
    again = run(bulk.send(keys, short, place, ttl_s=60, oversize="drop"))

    assert (sent, again) == ((0, 3, 1, 0), (4, 0, 0, 0))
    ids = redis.zrange(keys.zset, 0, -1, withscores=True)
    assert [redis.hget(keys.hash, id) for id, _ in ids] == [b"a", b"c", b"d"]
    starts = [int(id[:10], 36) for id, _ in ids]
    assert starts == list(range(starts[0], starts[0] + 3))
    assert all(len(id) == 32 for id, _ in ids)
    assert {round(score - starts[0] / 1000, -1) for _, score in ids} == {60_000}


def test_rows_of_both_kinds_can_be_joined_and_divided():
    short = bulk.Rows(b"x" * 44, -1, [b"a", b"b"])
    full = bulk.Rows([b"y" * 22], [5], [b"c"])
    short.extend(full)

    first, rest = short.split(1)

    assert flat(first) == [b"x" * 22, -1, b"a"]
    assert flat(rest) == [b"x" * 22, -1, b"b", b"y" * 22, 5, b"c"]
    assert packed(rest.choose([1])) == ["", "", b"y" * 22, 5, b"c"]


def test_reasons_of_many_are_read_at_once_and_those_of_an_earlier_life_do_not_count(
    run, keys, redis
):
    run(send(keys, rows(b"a", b"b", b"c", b"d")))
    ids = [id.decode() for id in redis.zrange(keys.zset, 0, -1)]
    told = {ids[0]: ("5", "5 no\nmore"), ids[1]: ("5", "4 old"), ids[2]: ("", "5 x")}
    for id, (first, text) in told.items():
        redis.set(keys.reason(id), text)
        if first:
            redis.hset(keys.hash, f"{id}:fr", first)

    assert run(bulk.reasons(keys, ids)) == ["no\nmore", "", "", ""]


def test_rows_that_were_set_aside_can_be_kept_for_longer(run, keys, redis):
    run(bulk.stage(keys, "one", rows(b"a"), before=0, ttl_s=60, oversize="fail"))

    kept = run(bulk.keep_staged(keys, [keys.staged("one"), keys.staged("none")], ttl_s=6000))

    assert kept == 1
    assert redis.ttl(keys.staged("one")) > 5000
