"""Spark on clusters and behind sentinels, with queues in several namespaces."""

import asyncio
import os
import threading

import pytest

from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._protocol.shards import Shards
from aiorsmq_ng._runtime.sync_client import shared_client
from aiorsmq_ng.errors import InvalidValue
from aiorsmq_ng.options import Options
from aiorsmq_ng.spark.jobs import triage
from tools.lab import Cluster, SentinelGroup

NAMESPACES = "{a},{b}"
SHARDS = Shards.of(NAMESPACES.split(","), nested=False)
#: Queues of both namespaces; the first one is that of the options.
QUEUES = ["jobs", "mails", "orders", "events"]
COUNT = 400


@pytest.fixture
def run():
    """Run coroutines of the test's servers."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def cluster(run):
    servers = run(Cluster(masters=3).start())
    yield servers
    run(servers.aclose())


@pytest.fixture
def group(run):
    servers = run(SentinelGroup(replicas=1, sentinels=1).start())
    yield servers
    run(servers.aclose())


def attributes(url, queue, shards=SHARDS):
    client = shared_client(url, Options(deadline=30))
    return client.run(queues.attributes(shards.queue(queue)))


def rows_for_all_queues(spark):
    names = ", ".join(f"'{name}'" for name in QUEUES)
    frame = spark.range(0, COUNT, 1, 2)
    return frame.selectExpr("cast(id AS string) AS body", f"array({names})[id % 4] AS queue")


def drain(spark, options, folder):
    stream = spark.readStream.format("rsmq").options(**options).load()
    writer = stream.writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(int(row.body) for row in spark.read.parquet(str(folder / "rows")).collect())


def test_queues_of_the_tests_lie_in_both_namespaces():
    assert {SHARDS.queue(name).namespace.name for name in QUEUES} == {"{a}", "{b}"}


@pytest.mark.parametrize("delivery", ["direct", "staged"])
def test_rows_are_written_read_and_drained_on_a_cluster(spark, cluster, run, delivery, tmp_path):
    options = {"url": cluster.url, "namespace": NAMESPACES, "queue": QUEUES[0]}
    writer = rows_for_all_queues(spark).write.format("rsmq").options(**options)
    writer.options(delivery=delivery, createQueue="true").mode("append").save()

    for at, name in enumerate(QUEUES):
        there = {**options, "queue": name}
        expected = list(range(at, COUNT, 4))
        seen = spark.read.format("rsmq").options(**there, numPartitions="2").load()
        assert sorted(int(row.body) for row in seen.collect()) == expected
        if name in QUEUES[:2]:
            assert (
                drain(spark, {**there, "maxMessagesPerTrigger": "40"}, tmp_path / name) == expected
            )
            assert attributes(cluster.url, name).msgs == 0
    # By connections of ours: those of redis-py's blocking cluster client outlive its close().
    for node in cluster.masters:
        assert run(node.command("KEYS", "*:ng:staged:*")) == []


def test_epoch_that_is_committed_again_is_sent_once_to_queues_of_all_namespaces(
    spark, cluster, tmp_path
):
    """A query whose commit was interrupted: its epoch comes again, with other attempts."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("\n".join(map(str, range(COUNT))))
    names = ", ".join(f"'{name}'" for name in QUEUES)
    options = {
        "url": cluster.url,
        "namespace": NAMESPACES,
        "queue": QUEUES[0],
        "createQueue": "true",
    }

    def run_query():
        lines = spark.readStream.format("text").load(str(tmp_path / "in"))
        lines = lines.selectExpr(
            "value AS body", f"array({names})[cast(value AS int) % 4] AS queue"
        )
        writer = lines.writeStream.format("rsmq").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run_query()
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    for crc in (tmp_path / "checkpoint" / "commits").glob(".*.crc"):
        crc.unlink()
    run_query()

    assert [attributes(cluster.url, name).msgs for name in QUEUES] == [COUNT // 4] * 4


def test_rows_are_written_before_and_drained_after_a_failover(spark, group, run, tmp_path):
    shards = Shards.of("rsmq", nested=False)
    options = {"url": group.url, "queue": "jobs"}
    rows = spark.range(0, COUNT, 1, 2).selectExpr("cast(id AS string) AS body")
    writer = rows.write.format("rsmq").options(**options, createQueue="true")
    writer.mode("append").save()
    assert run(group.master.command("WAIT", "1", "30000")) == 1

    group.master.kill()
    run(group.failed_over())

    assert drain(spark, options, tmp_path) == list(range(COUNT))
    assert attributes(group.url, "jobs", shards).msgs == 0


def test_dead_letters_go_back_only_to_queues_that_one_call_can_reach(spark, cluster):
    here, place = QUEUES[0], SHARDS.queue(QUEUES[0]).namespace
    there = next(name for name in QUEUES if SHARDS.queue(name).namespace != place)
    client = shared_client(cluster.url, Options(deadline=30))
    for name in (here, there):
        client.run(queues.create(SHARDS.queue(name), vt=30, delay=0, maxsize=1024))

    with pytest.raises(InvalidValue, match="lie in different namespaces"):
        triage(spark, here, redrive_to=there, options={"url": cluster.url, "namespace": NAMESPACES})


def test_worker_of_spark_has_an_event_loop_thread_of_its_own(spark, bench):
    """Spark forks workers from a daemon, and gives them one task after the other."""
    url, keys = bench.url, bench.keys

    def threads(_):
        shared_client(url, Options()).run(queues.attributes(keys))
        names = [thread.name for thread in threading.enumerate()]
        yield os.getpid(), names.count("aiorsmq-ng event loop")

    for _ in range(2):
        found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(threads).collect()
        assert {count for _, count in found} == {1}
        assert os.getpid() not in {pid for pid, _ in found}
