"""Rows per second of the Spark source and sink, beside plain pipelined redis-py in one process.

Both do the same work on the same server: write, read all, drain (take, read, delete). Start-up is
what Spark needs for a few messages, after one round to warm up. Usage:

    python benchmarks/spark.py [--messages 1000000] [--size 200] [--master local[2]]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from redis import Redis

from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.ids import suffixes
from aiorsmq_ng.protocol import queues
from aiorsmq_ng.protocol.keys import Namespace
from aiorsmq_ng.transport.blocking import BlockingRunner

PAGE = 1000
#: Work on so few messages is start-up.
FEW = 5000


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Plain:
    """The same work by RSMQ's commands, a thousand messages per pipeline."""

    def __init__(self, url: str, name: str, count: int, body: bytes) -> None:
        self.redis = Redis.from_url(url)
        self.zset, self.hash = f"bench:{name}", f"bench:{name}:Q"
        self.count, self.body = count, body

    def write(self) -> None:
        """Send."""
        for _ in range(0, self.count, PAGE):
            now = time.time()
            prefix = _base36(int(now * 1e6)).encode()
            ids = [prefix + tail for tail in suffixes(os.urandom(22 * PAGE))]
            pipe = self.redis.pipeline(transaction=False)
            pipe.zadd(self.zset, dict.fromkeys(ids, int(now * 1000)))
            pipe.hset(self.hash, mapping=dict.fromkeys(ids, self.body))
            pipe.hincrby(self.hash, "totalsent", PAGE)
            pipe.execute()

    def read(self) -> None:
        """Look at all."""
        for at in range(0, self.count, PAGE):
            ids = self.redis.zrange(self.zset, at, at + PAGE - 1)
            fields = [f for id in ids for f in (id, id + b":rc", id + b":fr")]
            assert len(self.redis.hmget(self.hash, fields)) == 3 * PAGE

    def drain(self) -> None:
        """Take, read and delete, as a consumer that may be killed has to: hide first."""
        while True:
            now = int(time.time() * 1000)
            ids = self.redis.zrangebyscore(self.zset, "-inf", now, 0, PAGE)
            if not ids:
                return
            pipe = self.redis.pipeline(transaction=False)
            pipe.zadd(self.zset, dict.fromkeys(ids, now + 60_000))
            counts = {id + b":rc": 1 for id in ids} | {id + b":fr": now for id in ids}
            pipe.hset(self.hash, mapping=counts)
            pipe.hincrby(self.hash, "totalrecv", len(ids))
            pipe.hmget(self.hash, ids)
            pipe.execute()
            pipe = self.redis.pipeline(transaction=False)
            pipe.zrem(self.zset, *ids)
            pipe.hdel(self.hash, *[f for id in ids for f in (id, id + b":rc", id + b":fr")])
            pipe.execute()


class Sparkling:
    """The same work by Spark."""

    def __init__(self, spark: SparkSession, url: str, name: str, count: int, body: bytes) -> None:
        self.spark, self.count, self.size = spark, count, len(body)
        self.options = {"url": url, "namespace": "bench", "queue": name}

    def write(self) -> None:
        """Send."""
        body = f"repeat('x', {self.size}) AS body"
        frame = self.spark.range(0, self.count, 1, 2).selectExpr(body)
        frame.write.format("rsmq").options(**self.options).mode("append").save()

    def read(self) -> None:
        """Look at all."""
        frame = self.spark.read.format("rsmq").options(**self.options, numPartitions="2").load()
        frame.write.format("noop").mode("overwrite").save()

    def drain(self) -> None:
        """Take, read and delete."""
        frame = self.spark.readStream.format("rsmq").options(**self.options).load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        with tempfile.TemporaryDirectory() as folder:
            writer.option("checkpointLocation", folder).start().awaitTermination()


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits


def peak_mb(spark: SparkSession) -> str:
    """Return what Linux knows of the JVM's memory."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
    pid = jvm.java.lang.ProcessHandle.current().pid()
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "unknown"
    return str(int(status.split("VmHWM:")[1].split()[0]) // 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    count, body = given.messages - given.messages % PAGE, b"x" * given.size
    builder = SparkSession.builder.master(given.master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR").config("spark.driver.memory", "1g")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    with EmbeddedServer.ephemeral() as server:
        runner = BlockingRunner(server.url, deadline_s=60)
        for name in ("warm", "plain", "spark"):
            keys = Namespace("bench").queue(name)
            runner.run(queues.create(keys, vt=30, delay=0, maxsize=-1))
        warm = Sparkling(spark, server.url, "warm", FEW, body)
        works = ("write", "read", "drain")
        for name in works:
            getattr(warm, name)()
        start_up = {name: timed(getattr(warm, name)) for name in works}
        plain = Plain(server.url, "plain", count, body)
        ours = Sparkling(spark, server.url, "spark", count, body)
        print(f"{count} messages of {given.size} bytes, {given.master}, {server.binary.engine}")
        print("| work | redis-py, rows/s | Spark, rows/s | ratio | start-up | ratio after it |")
        print("|---|---|---|---|---|---|")
        for name in works:
            first, second = timed(getattr(plain, name)), timed(getattr(ours, name))
            after = (first / count) / ((second - start_up[name]) / (count - FEW))
            print(
                f"| {name} | {count / first:,.0f} | {count / second:,.0f} | {first / second:.2f} "
                f"| {start_up[name]:.1f} s | {after:.2f} |",
                flush=True,
            )
        left = [
            runner.run(queues.attributes(Namespace("bench").queue(n))).msgs
            for n in ("plain", "spark")
        ]
        assert left == [0, 0], left
    print(f"memory of the driver's Java at most: {peak_mb(spark)} MB")
    spark.stop()


if __name__ == "__main__":
    main()
