"""Redis away at the start or in the middle of a query: it goes on, or says so and loses nothing."""

import asyncio
import threading
import time

import pytest

from aiorsmq_ng.testing import FaultProxy, operation

from .support import eventually

COUNT = 200
UNREACHABLE = "redis cannot be reached"


@pytest.fixture
def line(server_url):
    """A line to the server that can be cut, from tests without an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxy = FaultProxy(server_url)

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    async def set_trap(script):
        return proxy.drop_reply(operation(script))

    proxy.run = run
    proxy.lose_reply = lambda script: run(set_trap(script))
    run(proxy.start())
    yield proxy
    run(proxy.aclose())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def start(spark, bench, line, tmp_path):
    """Start a query that reads through the line, into Parquet, from the test's checkpoint."""

    def run(**options):
        options = {"url": line.url, "maxMessagesPerTrigger": "40"} | options
        writer = bench.stream(spark, **options).writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "rows"))
        return writer.option("checkpointLocation", str(tmp_path / "c")).start()

    run.commits = tmp_path / "c" / "commits"
    run.rows = lambda: sorted(
        int(r.body) for r in spark.read.parquet(str(tmp_path / "rows")).collect()
    )
    return run


def test_query_goes_on_after_an_outage_and_every_message_arrives_once(start, bench, line):
    bench.fill_numbers(COUNT // 2)
    query = start()
    eventually((start.commits / "0").exists)

    line.run(line.refuse())
    before = line.accepted
    bench.fill_numbers(COUNT // 2, start=COUNT // 2)
    time.sleep(3)
    assert bench.size > 0
    line.run(line.resume())

    eventually(lambda: bench.size == 0)
    assert query.isActive
    assert line.accepted > before
    query.stop()
    assert start.rows() == list(range(COUNT))


@pytest.mark.parametrize("mode", ["lease", pytest.param("move", marks=pytest.mark.long)])
def test_replies_that_are_lost_lose_and_double_nothing(start, bench, line, mode):
    bench.fill_numbers(COUNT)
    query = start(claimMode=mode, ledger="etl", claimChunk="15")
    eventually((start.commits / "0").exists)

    traps = [line.lose_reply(name) for name in ("claim", "claim_read", "claim_ack", "backlog")]
    for trap in traps:
        line.run(trap.done())

    eventually((start.commits / "4").exists)
    assert query.isActive
    query.stop()
    assert start.rows() == list(range(COUNT))


def test_outage_longer_than_the_timeout_ends_the_query_and_loses_nothing(start, bench, line):
    bench.fill_numbers(COUNT)
    query = start(timeoutMs="1000")
    eventually((start.commits / "0").exists)

    line.run(line.refuse())
    # The second if the connections ended with a claim in flight.
    with pytest.raises(Exception, match=f"{UNREACHABLE}|the reply was lost"):
        query.awaitTermination(300)
    line.run(line.resume())
    query = start()
    eventually(lambda: bench.size == 0)
    query.stop()

    assert start.rows() == list(range(COUNT))


def test_redis_that_is_down_at_the_start_is_said_to_be(start, spark, bench, line):
    line.run(line.refuse())

    with pytest.raises(Exception, match=UNREACHABLE):
        start(timeoutMs="300").awaitTermination(300)
    with pytest.raises(Exception, match=UNREACHABLE):
        bench.write(spark.sql("SELECT 'x' AS body"), url=line.url, timeoutMs="300")

    assert bench.size == 0
