"""Rows per second of the Spark source and sink, beside plain redis-py in one process.

Both work on the same server, with the defaults of source and sink: write and read all, beside the
same commands in pipelines; drain (``claimMode`` lease, then move), beside a Lua script that pops a
thousand messages at a time and keeps nothing. Start-up is what Spark needs for a few messages,
after one round to warm up. Processor time is that of the server, of this process (redis-py, or
Spark's client), of Spark's Java and of its Python processes. Another process sends PING all the
while. The server has no append-only file, unless --aof is given. Usage:

    python -m benchmarks.spark [--sizes 200:200000 8192:50000] [--rounds 1] [--aof] [--write]
    python -m benchmarks.spark --growth 10000 100000 --rounds 0
    python -m benchmarks.spark --full [--minutes 10]

--sizes are bytes and number of messages. --write keeps the measurements in
docs/reports/spark.json, their tables in docs/reports/spark.md. --full is a million messages of 200
bytes, a quarter of a million of 8192, growth from 10 000 to 5 000 000, and --write; what would
take longer than --minutes allow is left out. ``python -m benchmarks.spark_tables`` writes the
tables once more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from redis import Redis

from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.options import Options

from . import spark_tables
from .__main__ import machine, server_name

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
import sys, time
from redis import Redis
client = Redis.from_url(sys.argv[1])
while True:
    began = time.perf_counter()
    client.ping()
    print(1000 * (time.perf_counter() - began), flush=True)
    time.sleep(0.002)
"""
#: Work on so few messages is start-up.
FEW = 5000
LATE = "Python worker failed to connect back"
FULL_GROWTH = [10_000, 100_000, 1_000_000, 5_000_000]
WORKS = spark_tables.WORKS
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Measures time, processor time and memory of all processes that take part."""

    def __init__(self, server: int, jvm: int) -> None:
        self._server, self._jvm = server, jvm

    def measure(self, work: Callable[[], object]) -> dict[str, float]:
        """Return seconds by the clock, and of processor time."""
        while True:
            before, started = self._seconds(), time.perf_counter()
            try:
                work()
                break
            except Exception as error:
                if LATE not in str(error):
                    raise
                tell("once more: python took longer to start than Spark waits")
        wall, after = time.perf_counter() - started, self._seconds()
        spent = {name: round(after[name] - before[name], 3) for name in after}
        # Processor time of all processes, minus those that take part.
        spent["foreign"] = round(2 * spent["foreign"] - sum(spent.values()), 3)
        return {"wall": round(wall, 3), **spent}

    def measure_memory(self, work: Callable[[], object]) -> dict[str, float]:
        """Return what *measure* does, and memory at most, in MB; looking costs time, too."""
        over, peaks = threading.Event(), {"java": 0, "python": 0}
        sampler = threading.Thread(target=self._sample, args=(over, peaks))
        sampler.start()
        try:
            spent = self.measure(work)
        finally:
            over.set()
            sampler.join()
        return spent | {f"{name}_mb": mb for name, mb in peaks.items()}

    def _seconds(self) -> dict[str, float]:
        """Return the processor time of each part so far."""
        table = _processes()
        workers = [table[pid] for pid in _below(self._jvm, table)]
        return {
            "server": table[self._server][1],
            "client": time.thread_time(),
            "java": table[self._jvm][1],
            "python": sum(own + ended for _, own, ended in workers) + table[self._jvm][2],
            "foreign": _busy(),
        }

    def _sample(self, over: threading.Event, peaks: dict[str, int]) -> None:
        while not over.wait(0.5):
            found = [_memory_mb(pid) for pid in _below(self._jvm, _processes())]
            peaks["java"] = max(peaks["java"], _memory_mb(self._jvm))
            peaks["python"] = max([peaks["python"], *found])


def _processes() -> dict[int, tuple[int, float, float]]:
    """Return all processes: parent, seconds of its own, seconds of children that ended."""
    table = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
                table[int(folder.name)] = (int(fields[1]), own / TICKS, ended / TICKS)
    return table


def _busy() -> float:
    """Return the processor time that all processes together have used."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / TICKS


def _below(parent: int, table: dict[int, tuple[int, float, float]]) -> list[int]:
    found = [pid for pid, (above, _, _) in table.items() if above == parent]
    return found + [pid for child in found for pid in _below(child, table)]


def _memory_mb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024
    except (OSError, IndexError):
        return 0


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

    move = drain


class Sparkling:
    """The same work by Spark."""

    def __init__(self, spark: SparkSession, url: str, name: str, count: int, body: bytes) -> None:
        self.spark, self.count, self.size = spark, count, len(body)
        self.options = {"url": url, "namespace": "bench", "queue": name}
        #: Where the time of the last drain went, as Spark tells: milliseconds per step.
        self.steps: dict[str, int] = {}

    def write(self) -> None:
        """Send."""
        body = f"repeat('x', {self.size}) AS body"
        frame = self.spark.range(0, self.count, 1, 2).selectExpr(body)
        frame.write.format("rsmq").options(**self.options).mode("append").save()

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


class Stage:
    """A server, a Spark session, and queues on which both sides work."""

    def __init__(self, master: str, size: int, *, aof: bool = False) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
        builder = builder.config("spark.log.level", "ERROR").config("spark.driver.memory", "1g")
        # One line of progress per batch, so that none is forgotten.
        builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        self.spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        self.server = EmbeddedServer.ephemeral()
        self.size, self.aof = size, aof

    def __enter__(self) -> Stage:
        self.server.__enter__()
        self.redis = Redis.from_url(self.server.url)
        self.redis.config_set("appendonly", "yes" if self.aof else "no")
        # It would rewrite the file, and take the second processor from the side that is measured.
        self.redis.config_set("auto-aof-rewrite-percentage", 0)
        run = SyncClient(self.server.url, Options(deadline=60)).run
        for name in ("warm", "plain", "spark"):
            run(queues.create(Namespace("bench").queue(name), vt=30, delay=0, maxsize=65536))
        jvm = self.spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
        pid = jvm.java.lang.ProcessHandle.current().pid()
        self.watch = Watch(self.redis.info("server")["process_id"], pid)
        warm = self.sparkling("warm", FEW)
        for work in WORKS:
            before_drain(warm, work)
            getattr(warm, work)()
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.close()
        self.server.__exit__(None, None, None)
        self.spark.stop()

    def plain(self, count: int) -> Plain:
        """Return the one side."""
        return Plain(self.server.url, "plain", count, b"x" * self.size)

    def sparkling(self, name: str, count: int) -> Sparkling:
        """Return the other side."""
        return Sparkling(self.spark, self.server.url, name, count, b"x" * self.size)


def before_drain(worker: Plain | Sparkling, work: str) -> None:
    """Fill the queue once more, if an earlier drain has emptied it."""
    if work == "move":
        worker.write()


@contextmanager
def pings(url: str) -> Iterator[list[float]]:
    """Send PING beside the work; the list has p50, p99 and the longest (ms) afterwards."""
    found: list[float] = []
    process = subprocess.Popen([sys.executable, "-c", PINGS, url], stdout=subprocess.PIPE)
    try:
        yield found
    finally:
        process.terminate()
        took = sorted(map(float, process.communicate()[0].split()[:-1]))
        if took:
            found += [round(took[len(took) * n // 100], 2) for n in (50, 99)] + [round(took[-1], 2)]


def compare(given: argparse.Namespace, size: int, count: int) -> dict[str, Any]:
    """Measure both sides in turn, round by round."""
    count -= count % PAGE
    results: dict[str, Any] = {work: {"few": [], "plain": [], "spark": []} for work in WORKS}
    steps = []
    with Stage(given.master, size, aof=given.aof) as stage:
        sides = {
            "few": stage.sparkling("warm", FEW),
            "plain": stage.plain(count),
            "spark": stage.sparkling("spark", count),
        }
        for _ in range(given.rounds):
            for work in WORKS:
                for side, worker in sides.items():
                    before_drain(worker, work)
                    with pings(stage.server.url) as took:
                        spent: dict[str, Any] = stage.watch.measure(getattr(worker, work))
                    results[work][side].append(spent | {"ping": took})
                    tell(size, work, side, results[work][side][-1])
                if work in ("drain", "move"):
                    left = [stage.redis.zcard(f"bench:{name}") for name in ("plain", "spark")]
                    assert left == [0, 0], left
            steps.append(sides["spark"].steps)
        server = server_name(stage.redis.info("server"))
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "server": server,
        "aof": given.aof,
        "messages": count,
        "rounds": given.rounds,
        "size": size,
        "master": given.master,
        "few": FEW,
        "works": results,
        "steps": steps,
    }


def grow(given: argparse.Namespace, deadline: float) -> list[dict[str, Any]]:
    """Measure Spark's side with more and more messages, each in a session of its own."""
    rows: list[dict[str, Any]] = []
    took = 0.0
    for count in sorted(given.growth):
        if rows and time.monotonic() + took * count / rows[-1]["messages"] > deadline:
            tell(f"{count} messages are left out: they would take too long")
            break
        started = time.monotonic()
        with Stage(given.master, 200) as stage:
            worker, row = stage.sparkling("spark", count), {"messages": count}
            for work in WORKS:
                before_drain(worker, work)
                row[work] = stage.watch.measure_memory(getattr(worker, work))
                tell(count, work, row[work])
            assert stage.redis.zcard("bench:spark") == 0
        took = time.monotonic() - started
        rows.append(row)
    return rows


def tell(*what: object) -> None:
    print(*what, file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--sizes",
        nargs="*",
        type=lambda text: tuple(map(int, text.split(":"))),
        default=[(200, 200_000)],
        metavar="BYTES:MESSAGES",
    )
    add("--aof", action="store_true", help="with an append-only file")
    add("--rounds", type=int, default=1, help="0: compare nothing")
    add("--master", default="local[2]")
    add(
        "--growth",
        type=int,
        nargs="*",
        default=[],
        help="measure Spark alone, with these numbers of messages",
    )
    add(
        "--write",
        action="store_true",
        help="write docs/reports/spark.json and tables of docs/reports/spark.md",
    )
    add("--full", action="store_true", help="everything that the documentation shows")
    add("--minutes", type=float, default=60.0, help="leave out growth that would take longer")
    given = parser.parse_args()
    if given.full:
        given.sizes = [(200, 1_000_000), (8192, 250_000)]
        given.growth, given.write = FULL_GROWTH, True
    return given


def main() -> None:
    given = options()
    deadline = time.monotonic() + 60 * given.minutes
    found: dict[str, Any] = {}
    if given.rounds:
        found["compared"] = [compare(given, size, count) for size, count in given.sizes]
        print(spark_tables.comparisons(found["compared"]))
        if given.write:
            spark_tables.keep(found)
    if given.growth:
        found["growth"] = grow(given, deadline)
        print(spark_tables.growth(found["growth"]))
        if given.write:
            spark_tables.keep(found)


if __name__ == "__main__":
    main()
