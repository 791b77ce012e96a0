"""Reading a queue as a stream: every message once into an idempotent sink."""

import json
import threading
import time

import pytest

from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._protocol.operations.spark import claims
from aiorsmq_ng.spark import finalize, release

from .support import eventually


@pytest.fixture
def drain(spark, bench, tmp_path):
    """Read all there is into Parquet, with a checkpoint of the test's own."""

    def start(name="c", trigger=None, **options):
        writer = bench.stream(spark, **options).writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / f"{name}.parquet"))
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(name="c", **options):
        query = start(name, **options)
        assert query.awaitTermination(300)
        return query

    run.start = start
    run.rows = lambda name="c": [
        int(r.body) for r in spark.read.parquet(str(tmp_path / f"{name}.parquet")).collect()
    ]
    run.checkpoint = lambda name="c": tmp_path / name
    return run


def test_run_takes_all_there_is_and_leaves_an_empty_queue(drain, bench):
    bench.fill_numbers(1000)

    query = drain(maxMessagesPerTrigger="300", minPartitions="2")

    assert sorted(drain.rows()) == list(range(1000))
    assert bench.size == 0
    assert [p.numInputRows for p in query.recentProgress] == [300, 300, 300, 100]
    assert bench.side_keys() == ["ledger"]


def test_next_run_takes_what_came_since(drain, bench):
    bench.fill_numbers(100)
    drain()
    bench.fill_numbers(50, start=100)

    drain()

    assert sorted(drain.rows()) == list(range(150))
    assert bench.size == 0


def test_run_on_an_empty_queue_ends_and_leaves_nothing(drain, bench):
    drain()

    assert bench.side_keys() == []


def test_moved_messages_arrive_once_and_are_gone(drain, bench):
    bench.fill_numbers(500)

    drain(claimMode="move", ledger="etl", maxMessagesPerTrigger="200")

    assert sorted(drain.rows()) == list(range(500))
    assert (bench.size, bench.redis.hlen(bench.keys.hash)) == (0, 7)


def test_delayed_messages_and_those_of_others_are_left_alone(drain, bench):
    bench.fill(b"900", delay_ms=600_000)
    bench.fill(b"901")
    held = bench.receive(1)
    bench.fill_numbers(10)

    drain()

    assert sorted(drain.rows()) == list(range(10))
    assert bench.size == 2
    bench.run(messages.ack(bench.keys, held[0].receipt))


def test_progress_shows_the_backlog(drain, bench):
    bench.fill_numbers(30)

    query = drain(maxMessagesPerTrigger="10", claimAhead="false")

    offsets = [json.loads(p.json)["sources"][0]["latestOffset"] for p in query.recentProgress]
    assert [o["visible"] for o in offsets] == [20, 10, 0]


def test_two_queries_share_a_queue(spark, drain, bench):
    bench.fill_numbers(600)
    trigger = {"processingTime": "0 seconds"}
    queries = [
        drain.start(name, trigger=trigger, maxMessagesPerTrigger="50") for name in ("a", "b")
    ]

    eventually(lambda: bench.size == 0)
    for query in queries:
        query.stop()

    assert sorted(drain.rows("a") + drain.rows("b")) == list(range(600))


def test_other_clients_send_receive_and_delete_meanwhile(drain, bench):
    theirs: list[int] = []
    stop = threading.Event()

    def work():
        sent = 100
        while not stop.is_set():
            for message in bench.receive(3):
                theirs.append(int(message.body))
                bench.run(messages.ack(bench.keys, message.receipt))
            if sent < 400:
                bench.fill_numbers(10, start=sent)
                sent += 10
            time.sleep(0.05)

    bench.fill_numbers(100)
    query = drain.start(trigger={"processingTime": "0 seconds"}, maxMessagesPerTrigger="40")
    eventually((drain.checkpoint() / "commits" / "0").exists)
    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: bench.redis.hget(bench.keys.hash, "totalsent") == b"400" and not bench.size)
    stop.set()
    thread.join()
    query.stop()

    ours = drain.rows()
    assert sorted(ours + theirs) == list(range(400))
    assert theirs
    assert len(ours) >= 40


def test_message_that_others_deleted_does_not_block_a_batch(spark, bench, tmp_path):
    bench.fill_numbers(20)
    seen: list[int] = []

    def work(batch, _id):
        if not seen:
            for id in bench.redis.zrange(bench.keys.zset, 0, 4):
                bench.run(messages.delete(bench.keys, [id.decode()]))
        seen.append(batch.count())

    query = (
        bench.stream(spark)
        .writeStream.foreachBatch(work)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)

    assert seen == [15]
    assert bench.size == 0


def test_leases_are_renewed_while_a_batch_runs(spark, bench, tmp_path):
    bench.fill_numbers(50)

    def work(batch, _id):
        first = bench.lease_ends()
        eventually(lambda: bench.lease_ends() >= first + 3000)
        assert batch.count() == 50

    query = (
        bench.stream(spark, leaseMs="3000")
        .writeStream.foreachBatch(work)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)

    assert bench.size == 0


def test_query_of_a_fenced_run_fails_and_deletes_nothing(drain, bench):
    """A driver that comes back after another one took over its checkpoint."""
    bench.fill_numbers(10)
    query = drain.start(trigger={"processingTime": "0 seconds"}, ledger="etl")
    eventually(lambda: bench.size == 0)

    drain("new", ledger="etl")
    bench.fill_numbers(10, start=10)
    with pytest.raises(Exception, match=r"ledger is gone|another run took its place"):
        query.awaitTermination(300)
        query.processAllAvailable()

    drain("new", ledger="etl")
    assert sorted(drain.rows("new")) == list(range(10, 20))


def test_batch_that_was_not_acknowledged_is_by_finalize(drain, bench):
    bench.fill_numbers(10)
    query = drain.start(trigger={"processingTime": "1 hour"})
    eventually((drain.checkpoint() / "commits" / "0").exists)
    query.stop()
    assert bench.size == 10

    done = finalize(drain.checkpoint(), url=bench.url)

    assert (done, bench.size) == (1, 0)
    assert finalize(drain.checkpoint(), url=bench.url) == 0
    bench.fill_numbers(5, start=10)
    drain()
    assert sorted(drain.rows()) == list(range(15))


def test_stopped_query_gives_back_what_it_claimed_ahead(drain, bench):
    bench.fill_numbers(100)
    query = drain.start(trigger={"processingTime": "1 hour"}, maxMessagesPerTrigger="30")
    eventually((drain.checkpoint() / "commits" / "0").exists)
    eventually(lambda: bench.run(claims.backlog(bench.keys)).visible == 40)

    query.stop()

    eventually(lambda: bench.run(claims.backlog(bench.keys)).visible == 70)
    drain()
    assert sorted(drain.rows()) == list(range(100))


def test_release_gives_back_what_a_reader_holds(drain, bench):
    bench.fill_numbers(10)
    query = drain.start(trigger={"processingTime": "1 hour"}, claimMode="move", ledger="etl")
    eventually((drain.checkpoint() / "commits" / "0").exists)
    query.stop()
    assert bench.size == 0

    given = release(bench.name, "etl", url=bench.url, namespace=bench.ns)

    assert (given, bench.size) == (10, 10)


def test_new_checkpoint_of_a_named_reader_finds_the_messages_at_once(drain, bench):
    bench.fill_numbers(10)
    query = drain.start("a", trigger={"processingTime": "1 hour"}, ledger="etl")
    eventually((drain.checkpoint("a") / "commits" / "0").exists)
    query.stop()

    drain("b", ledger="etl")

    assert sorted(drain.rows("b")) == list(range(10))
    assert bench.size == 0


def test_messages_lost_to_others_while_down_fail_the_query_by_default(spark, drain, bench):
    bench.fill_numbers(10)
    query = drain.start(trigger={"processingTime": "0 seconds"}, onDecodeError="fail")
    eventually(lambda: bench.size == 0)
    query.stop()
    bench.fill(*[b"%d" % n for n in range(10, 15)], b"\xff")
    failing = drain.start()
    with pytest.raises(Exception, match="does not decode"):
        failing.awaitTermination(300)
    # As if the leases of two had run out.
    for id in bench.redis.zrange(bench.keys.zset, 0, 1):
        bench.redis.zadd(bench.keys.zset, {id: 1})
    taken = bench.receive(2)

    failing = drain.start()
    with pytest.raises(Exception, match=r"2 messages of queue 'jobs' .* received by others"):
        failing.awaitTermination(300)

    drain(failOnDataLoss="false", onDecodeError="drop")
    assert len(drain.rows()) + len(taken) >= 15
    assert {m.id for m in taken} == {i.decode() for i in bench.redis.zrange(bench.keys.zset, 0, -1)}


def test_wrong_option_reaches_the_user_as_one_sentence(spark, bench):
    with pytest.raises(Exception, match="'claimMode' = 'move' needs a name in option 'ledger'"):
        query = bench.stream(spark, claimMode="move").writeStream.format("noop").start()
        query.awaitTermination(300)


def test_checkpoint_of_another_queue_is_refused(drain, bench, other):
    bench.fill_numbers(3)
    drain()
    other.fill_numbers(3)

    query = drain.start(queue="out")
    with pytest.raises(Exception, match="the checkpoint belongs to queue 'jobs'"):
        query.awaitTermination(300)
    assert other.size == 3


def test_deleted_queue_ends_the_query_with_its_name(drain, bench):
    query = drain.start(trigger={"processingTime": "0 seconds"})
    bench.fill_numbers(3)
    eventually(lambda: bench.size == 0)
    bench.redis.delete(bench.keys.hash, bench.keys.zset)

    with pytest.raises(Exception, match="queue 'jobs' does not exist"):
        query.awaitTermination(300)
