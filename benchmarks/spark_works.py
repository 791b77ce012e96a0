"""What the benchmark of Spark measures: the same work by redis-py and by Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from redis import Redis

from aiorsmq_ng._common.message_ids import suffixes

PAGE = 1000
#: Takes a thousand messages and keeps nothing: a consumer that dies loses them.
POP = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
if #ids == 0 then return {} end
local bodies, fields = redis.call('HMGET', KEYS[2], unpack(ids)), {}
for i = 1, #ids do
  fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = ids[i], ids[i] .. ':rc', ids[i] .. ':fr'
end
redis.call('ZREM', KEYS[1], unpack(ids))
redis.call('HDEL', KEYS[2], unpack(fields))
return {ids, bodies}
"""
#: Sends PING until it is ended, and prints the milliseconds that each took.
PINGS = """
import signal, sys, time
from redis import Redis
client, took = Redis.from_url(sys.argv[1]), []
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    while True:
        began = time.perf_counter()
        client.ping()
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(0.002)
finally:
    # At the end, because a full pipe would stop it.
    print(*took, sep="\\n")
"""


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
        """Pop all."""
        pop = self.redis.register_script(POP)
        while pop(keys=[self.zset, self.hash], args=[PAGE]):
            pass


class Sparkling:
    """The same work by Spark."""

    def __init__(
        self, spark: SparkSession, options: dict[str, str], messages: int, size: int
    ) -> None:
        self.spark, self.options, self.count, self.size = spark, options, messages, size
        #: Where the time of the last drain went, as Spark tells: milliseconds per step.
        self.steps: dict[str, int] = {}

    def write(self) -> None:
        """Send, to all queues in turn if there are several."""
        given = {name: value for name, value in self.options.items() if name != "queues"}
        columns = [f"repeat('x', {self.size}) AS body"]
        if "queues" in self.options:
            names = self.options["queues"].split(",")
            listed = ", ".join(f"'{name}'" for name in names)
            columns.append(f"array({listed})[id % {len(names)}] AS queue")
        frame = self.spark.range(0, self.count, 1, 2).selectExpr(*columns)
        frame.write.format("rsmq").options(**given).mode("append").save()

    def read(self) -> None:
        """Look at all."""
        frame = self.spark.read.format("rsmq").options(**self.options).load()
        frame.write.format("noop").mode("overwrite").save()

    def drain(self) -> None:
        """Take, read and delete."""
        self._drain(claimMode="lease")

    def move(self) -> None:
        """Take, read and delete; messages leave the queue when they are taken."""
        self._drain(claimMode="move", ledger="etl")

    def _drain(self, **options: str) -> None:
        frame = self.spark.readStream.format("rsmq").options(**self.options, **options).load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        with tempfile.TemporaryDirectory() as folder:
            query = writer.option("checkpointLocation", folder).start()
            query.awaitTermination()
            self.steps = {"batches": len(query.recentProgress)}
            for progress in query.recentProgress:
                for step, ms in progress.durationMs.items():
                    self.steps[step] = self.steps.get(step, 0) + ms


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits


@contextmanager
def pings(url: str) -> Iterator[list[float]]:
    """Send PING beside the work; the list has p50, p99 and the longest (ms) afterwards."""
    found: list[float] = []
    process = subprocess.Popen([sys.executable, "-c", PINGS, url], stdout=subprocess.PIPE)
    try:
        yield found
    finally:
        process.terminate()
        took = sorted(map(float, process.communicate()[0].split()))
        if took:
            found += [round(took[len(took) * n // 100], 2) for n in (50, 99)] + [round(took[-1], 2)]
