"""Rows per second of the Spark source and sink, beside plain pipelined redis-py in one process.

Both do the same work on the same server: write, read all, drain (take, read, delete). Start-up is
what Spark needs for a few messages, after one round to warm up. Processor time is that of the
server, of this process (redis-py, or Spark's client), of Spark's Java and of its Python processes.
Usage:

    python benchmarks/spark.py [--messages 1000000] [--rounds 3] [--json FILE]
    python benchmarks/spark.py --growth 10000 100000 1000000 5000000 [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

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


WORKS = ("write", "read", "drain")
TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """Measures time, processor time and memory of everybody who takes part."""

    def __init__(self, server: int, jvm: int) -> None:
        self._server, self._jvm = server, jvm

    def measure(self, work: Callable[[], object]) -> dict[str, float]:
        """Return seconds by the clock, and of processor time."""
        before, started = self._seconds(), time.perf_counter()
        work()
        wall, after = time.perf_counter() - started, self._seconds()
        spent = {name: round(after[name] - before[name], 3) for name in after}
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


class Stage:
    """A server, a Spark session, and queues on which both sides work."""

    def __init__(self, master: str, size: int) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
        builder = builder.config("spark.log.level", "ERROR").config("spark.driver.memory", "1g")
        self.spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        self.server = EmbeddedServer.ephemeral()
        self.size = size

    def __enter__(self) -> Stage:
        self.server.__enter__()
        self.redis = Redis.from_url(self.server.url)
        run = BlockingRunner(self.server.url, deadline_s=60).run
        for name in ("warm", "plain", "spark"):
            run(queues.create(Namespace("bench").queue(name), vt=30, delay=0, maxsize=-1))
        jvm = self.spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
        pid = jvm.java.lang.ProcessHandle.current().pid()
        self.watch = Watch(self.redis.info("server")["process_id"], pid)
        warm = self.sparkling("warm", FEW)
        for work in WORKS:
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

    def settle(self) -> Watch:
        """Wait until the server does nothing else."""
        while self.redis.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.1)
        return self.watch


def compare(given: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides in turn, round by round."""
    count = given.messages - given.messages % PAGE
    results: dict[str, Any] = {work: {"few": [], "plain": [], "spark": []} for work in WORKS}
    with Stage(given.master, given.size) as stage:
        sides = {
            "few": stage.sparkling("warm", FEW),
            "plain": stage.plain(count),
            "spark": stage.sparkling("spark", count),
        }
        for _ in range(given.rounds):
            for work in WORKS:
                for side, worker in sides.items():
                    results[work][side].append(stage.settle().measure(getattr(worker, work)))
                    print(work, side, results[work][side][-1], file=sys.stderr, flush=True)
            left = [stage.redis.zcard(f"bench:{name}") for name in ("plain", "spark")]
            assert left == [0, 0], left
        engine = stage.server.binary.engine
    about = {"size": given.size, "master": given.master, "engine": engine, "few": FEW}
    return {"messages": count, **about, "works": results}


def grow(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure Spark's side with more and more messages, each in a session of its own."""
    rows = []
    for count in given.growth:
        with Stage(given.master, given.size) as stage:
            worker, row = stage.sparkling("spark", count), {"messages": count}
            for work in WORKS:
                row[work] = stage.settle().measure_memory(getattr(worker, work))
                print(count, work, row[work], file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def ratios(result: dict[str, Any]) -> Iterator[str]:
    """Say how the two sides compare."""
    yield "| work | redis-py, rows/s | Spark, rows/s | ratio | start-up | ratio after it |"
    yield "|---|---|---|---|---|---|"
    for work, sides in result["works"].items():
        count, few = result["messages"], result["few"]
        plain, spark, start = (_median(sides[side], "wall") for side in ("plain", "spark", "few"))
        after = (plain / count) / ((spark - start) / (count - few))
        yield (
            f"| {work} | {count / plain:,.0f} | {count / spark:,.0f} | {plain / spark:.2f} "
            f"| {start:.1f} s | {after:.2f} |"
        )


def costs(result: dict[str, Any]) -> Iterator[str]:
    """Say what a message costs whom, after start-up, in microseconds of processor time."""
    yield "| work | redis-py: server | client | Spark: server | Python | Java |"
    yield "|---|---|---|---|---|---|"
    for work, sides in result["works"].items():
        count, few = result["messages"], result["few"]
        cells = [_median(sides["plain"], part) / count for part in ("server", "client")]
        cells += [
            (_median(sides["spark"], part) - _median(sides["few"], part)) / (count - few)
            for part in ("server", "python", "java")
        ]
        yield f"| {work} | " + " | ".join(f"{1e6 * cell:.1f}" for cell in cells) + " |"


def growth(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Say how time and memory grow."""
    yield (
        "| messages | write, us each | read, us each | drain, us each | Java at most "
        "| a Python process at most |"
    )
    yield "|---|---|---|---|---|---|"
    for row in rows:
        each = (f"{1e6 * row[work]['wall'] / row['messages']:.1f}" for work in WORKS)
        memory = (max(row[work][f"{part}_mb"] for work in WORKS) for part in ("java", "python"))
        cells = [f"{row['messages']:,}", *each, *(f"{mb} MB" for mb in memory)]
        yield "| " + " | ".join(cells) + " |"


def _median(runs: list[dict[str, float]], part: str) -> float:
    return statistics.median(run[part] for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--growth", type=int, nargs="*", help="measure Spark alone, so many each")
    parser.add_argument("--json", type=Path, help="keep the measurements in this file")
    given = parser.parse_args()
    known = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    if given.growth:
        known["growth"] = grow(given)
        print(*growth(known["growth"]), sep="\n")
    else:
        known["compared"] = compare(given)
        print(*ratios(known["compared"]), "", *costs(known["compared"]), sep="\n")
    if given.json:
        given.json.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
