"""Many queues of a cluster in one query, and nodes of it that are down."""

import asyncio
import os

import pytest

from aiorsmq_ng import Unavailable
from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._protocol.operations.spark import bulk_send
from aiorsmq_ng._protocol.shards import Shards
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.options import Options
from aiorsmq_ng.spark.offsets import StreamOffset
from tools.lab import Cluster, SentinelGroup

from .support import StreamDriver, eventually

#: Their slots belong to different nodes of three.
NAMESPACES = ["{a}", "{b}", "{c}"]
SHARDS = Shards.of(NAMESPACES, nested=False)
#: Two queues in each namespace.
NAMES = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"]
NOTHING = StreamOffset()


@pytest.fixture
def run():
    """Run coroutines of the test's servers."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def cluster(run):
    """A cluster whose nodes go on if another one is down, and keep what they have."""
    words = ("--cluster-require-full-coverage", "no")
    servers = run(Cluster(*words, masters=3, persistence="always").start())
    yield servers
    run(servers.aclose())


@pytest.fixture
def options(cluster):
    return {"url": cluster.url, "namespace": ",".join(NAMESPACES)}


@pytest.fixture
def client(cluster):
    """A client beside Spark; the queues exist."""
    client = SyncClient(cluster.url, Options(deadline=30))
    for name in NAMES:
        client.run(queues.create(SHARDS.queue(name), vt=30, delay=0, maxsize=1024))
    yield client
    client.close()


@pytest.fixture
def start(options):
    running = []

    def start(**more):
        given = {**options, "claimAhead": "false", "timeoutMs": "5000", **more}
        driver = StreamDriver({"queuesPattern": "q.*"} | given)
        running.append(driver)
        return driver

    yield start
    for driver in running:
        driver.close()


def fill(spark, options, count):
    rows = spark.range(0, count * len(NAMES), 1, 2).selectExpr(
        "cast(id AS string) AS body", f"concat('q', cast(id % {len(NAMES)} AS string)) AS queue"
    )
    rows.write.format("rsmq").options(**options).option("queue", "q0").mode("append").save()


def counts(offset):
    return {at.queue: at.count for at in offset.offsets.values()}


def test_queues_of_all_shards_go_to_files_and_to_queues(spark, client, options, tmp_path):
    """One query reads all queues into queues, the next one those into files."""
    fill(spark, options, 30)

    def drain(pattern):
        reader = spark.readStream.format("rsmq").options(**options, maxMessagesPerTrigger="100")
        return reader.option("queuesPattern", pattern).load()

    copied = drain("q[0-9]").selectExpr("body", "concat('copy-', queue) AS queue").writeStream
    copied = copied.format("rsmq").options(**options, queue="copy-q0", createQueue="true")
    copied = copied.option("checkpointLocation", str(tmp_path / "copying"))
    copied.trigger(availableNow=True).start().awaitTermination()
    filed = drain("copy-.*").writeStream.format("parquet").option("path", str(tmp_path / "rows"))
    filed = filed.option("checkpointLocation", str(tmp_path / "filing"))
    filed.trigger(availableNow=True).start().awaitTermination()

    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted((int(r.body), r.queue) for r in rows) == [
        (n, f"copy-q{n % len(NAMES)}") for n in range(30 * len(NAMES))
    ]
    for name in (*NAMES, *(f"copy-{name}" for name in NAMES)):
        assert client.run(queues.attributes(SHARDS.queue(name))).msgs == 0


def test_node_that_is_down_does_not_stop_the_others_and_comes_back(
    spark, cluster, run, client, options, start
):
    fill(spark, options, 4)
    slots = {ns: run(cluster.slot_of(ns)) for ns in NAMESPACES}
    owners = {ns: run(cluster.owner(slot)) for ns, slot in slots.items()}
    away = [n for n in NAMES if SHARDS.queue(n).namespace.name == "{a}"]
    there = [n for n in NAMES if owners[SHARDS.queue(n).namespace.name] is not owners["{a}"]]
    assert away
    assert there
    driver = start()
    first = driver.latest(NOTHING, len(NAMES))
    assert set(counts(first)) == set(NAMES)

    owners["{a}"].kill()
    second = driver.latest(first, 1000)
    while second == first:
        second = driver.latest(first, 1000)
    advanced = {n for n, part in second.offsets.items() if part != first.offsets[n]}
    assert {name.rpartition("/")[2] for name in advanced} <= set(there)
    assert driver.plan(first, second)

    # A run that is to end does not end without them.
    with pytest.raises(Unavailable):
        start().stop_at_now()

    run(owners["{a}"].restart())
    run(cluster.healthy())
    at, taken = second, dict.fromkeys(NAMES, 1)
    for name in advanced:
        taken[name.rpartition("/")[2]] += second.offsets[name].count

    def all_taken():
        nonlocal at
        after = driver.latest(at, 1000)
        for name, part in after.offsets.items():
            if part != at.offsets[name]:
                taken[part.queue] += part.count
        at = after
        return taken == dict.fromkeys(NAMES, 4)

    eventually(all_taken)
    for name in NAMES:
        eventually(
            lambda name=name: (
                driver.latest(at, 10) == at
                and client.run(queues.attributes(SHARDS.queue(name))).msgs == 0
            )
        )


def test_failover_of_sentinels_between_claim_and_acknowledgement(run):
    group = run(SentinelGroup(replicas=1, sentinels=1).start())
    try:
        shards = Shards.of("rsmq", nested=False)
        client = SyncClient(group.url, Options(deadline=60))
        for name in ("a", "b"):
            client.run(queues.create(shards.queue(name), vt=30, delay=0, maxsize=1024))
            rows = bulk_send.Rows(suffixes(os.urandom(22 * 6)), -1, [b"x"] * 6)
            place = bulk_send.Place("fill", "0")
            sending = bulk_send.send(shards.queue(name), rows, place, ttl_s=60, oversize="fail")
            assert client.run(sending).stored == 6
        driver = StreamDriver({"url": group.url, "queues": "a,b", "claimAhead": "false"})
        first = driver.latest(NOTHING, 6)
        assert run(group.master.command("WAIT", "1", "30000")) == 1

        group.master.kill()
        run(group.failed_over())
        second = driver.latest(first, 100)
        while second == first:
            second = driver.latest(first, 100)

        assert (counts(first), counts(second)) == ({"a": 3, "b": 3}, {"a": 3, "b": 3})
        assert len([slice for task in driver.plan(first, second) for slice in task]) == 2
        assert driver.latest(second, 100) == second
        for name in ("a", "b"):
            assert client.run(queues.attributes(shards.queue(name))).msgs == 0
        driver.close()
        client.close()
    finally:
        run(group.aclose())
