"""Bulk jobs: rows that are sent once, or set aside and sent as one, however often a task runs."""

import os

import pytest
from redis import Redis

from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.spark import bulk_send
from aiorsmq_ng._protocol.redis_codecs.spark_bulk_send import flat, packed
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.errors import MessageTooLong, QueueNotFound, RowsDiffer
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


def rows(*bodies: bytes, delay_ms: int = -1) -> bulk_send.Rows:
    fresh = suffixes(os.urandom(22 * len(bodies)))
    return bulk_send.Rows(fresh, [delay_ms] * len(bodies), list(bodies))


def send(keys, lot, digest=b"d", job="load", partition="0", oversize="fail"):
    place = bulk_send.Place(job, partition, 0, digest)
    return bulk_send.send(keys, lot, place, ttl_s=60, oversize=oversize)


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

    assert run(send(keys, bulk_send.Rows([bulk_send.kept(id)], [-1], [b"mine"]))).stored == 1
    assert (
        run(
            send(keys, bulk_send.Rows([bulk_send.kept(id)], [-1], [b"other"]), job="again")
        ).existing
        == 1
    )
    (message,) = run(messages.receive(messages.ReceiveSpec(keys), 5, vt_ms=1000)).messages
    assert (message.id, message.body) == (id, b"mine")


@pytest.mark.parametrize("length", [20, 22, 64])
@pytest.mark.parametrize("staged", [False, True])
def test_row_keeps_an_id_of_any_length(run, keys, redis, length, staged):
    """Ids of other clients may be as long as the random part of an RSMQ id."""
    id = "k" * length
    lot = bulk_send.Rows([bulk_send.kept(id)], [-1], [b"mine"])

    if staged:
        run(bulk_send.stage(keys, "t1", lot, before=0, ttl_s=60, oversize="fail"))
        run(bulk_send.move_staged(keys, "t1", count=10))
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
    run(bulk_send.stage(keys, "t1", rows(b"a", b"b", b"c"), before=0, ttl_s=60, oversize="fail"))
    assert run(queues.attributes(keys)).msgs == 0

    left = [run(bulk_send.move_staged(keys, "t1", count=2)) for _ in range(2)]

    assert left == [1, 0]
    assert bodies(run, keys) == [b"a", b"b", b"c"]


def test_stage_repeated_after_a_lost_reply_adds_nothing(run, keys, redis):
    call = bulk_send.stage(keys, "t1", rows(b"a", b"b"), before=0, ttl_s=60, oversize="fail")

    assert [run(call), run(call)] == [(2, 0), (2, 0)]
    assert redis.llen(keys.staged("t1")) == 6
    assert 0 < redis.ttl(keys.staged("t1")) <= 60


def test_epoch_that_was_begun_keeps_its_first_record(run, keys):
    def begin(record):
        return run(bulk_send.begin_epoch(keys, "q", 7, record, [], ttl_s=60))

    assert [begin("one"), begin("two")] == ["one", "one"]
    run(bulk_send.end_epoch(keys, "q", 7, ttl_s=60))
    assert begin("three") == ""


def test_committed_rows_outlive_the_patience_with_uncommitted_ones(run, keys, redis):
    run(bulk_send.stage(keys, "t1", rows(b"a"), before=0, ttl_s=60, oversize="fail"))

    run(bulk_send.begin_epoch(keys, "q", 0, "x", [keys.staged("t1")], ttl_s=6000))

    assert redis.ttl(keys.staged("t1")) > 60


def test_rows_that_share_a_delay_need_only_random_parts(run, keys, redis):
    """That is the short way; it makes the same messages, drops and skips alike."""
    bodies = [b"a", b"long" * 100, b"c", b"d"]
    short = bulk_send.Rows(b"".join(suffixes(os.urandom(22 * 4))), 60_000, bodies)
    place = bulk_send.Place("job", "0", 0, b"digest")
    redis.hset(keys.hash, "maxsize", 100)

    sent = run(bulk_send.send(keys, short, place, ttl_s=60, oversize="drop"))
    again = run(bulk_send.send(keys, short, place, ttl_s=60, oversize="drop"))

    assert (sent, again) == ((0, 3, 1, 0), (4, 0, 0, 0))
    ids = redis.zrange(keys.zset, 0, -1, withscores=True)
    assert [redis.hget(keys.hash, id) for id, _ in ids] == [b"a", b"c", b"d"]
    starts = [int(id[:10], 36) for id, _ in ids]
    assert starts == list(range(starts[0], starts[0] + 3))
    assert all(len(id) == 32 for id, _ in ids)
    assert {round(score - starts[0] / 1000, -1) for _, score in ids} == {60_000}


def test_rows_of_both_kinds_can_be_joined_and_divided():
    short = bulk_send.Rows(b"x" * 44, -1, [b"a", b"b"])
    full = bulk_send.Rows([b"y" * 22], [5], [b"c"])
    short.extend(full)

    first, rest = short.split(1)

    assert flat(first) == [b"x" * 22, -1, b"a"]
    assert flat(rest) == [b"x" * 22, -1, b"b", b"y" * 22, 5, b"c"]
    assert packed(rest.choose([1])) == ["", "", b"y" * 22, 5, b"c"]


def test_rows_that_were_set_aside_can_be_kept_for_longer(run, keys, redis):
    run(bulk_send.stage(keys, "one", rows(b"a"), before=0, ttl_s=60, oversize="fail"))

    kept = run(bulk_send.keep_staged(keys, [keys.staged("one"), keys.staged("none")], ttl_s=6000))

    assert kept == 1
    assert redis.ttl(keys.staged("one")) > 5000
