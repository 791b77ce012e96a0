"""How long Spark's calls hold the server, and how much memory a Python worker takes.

Source and sink work on messages of several sizes, without Spark: each step is called as Spark's
processes call it. Beside it, another client sends PING all the time. Usage:

    python -m benchmarks.spark_bytes [--mib 256] [--sizes 200 65536 1048576]

Prints for each step: calls, time of all scripts and of the longest one (the server's slow log), the
longest PING, and by how much the memory of this process grew at most.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from redis import Redis

from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.options import Options
from aiorsmq_ng.spark import writers
from aiorsmq_ng.spark.arrow_rows import full_schema
from aiorsmq_ng.spark.batch_reader import SnapshotReader
from aiorsmq_ng.spark.options import ReadOptions, StreamReadOptions, WriteOptions, parse
from aiorsmq_ng.spark.query_cleanup import release
from aiorsmq_ng.spark.stream_reader import ClaimReader


def memory_kb(name: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])


class Watch:
    """Measures one step after the other."""

    def __init__(self, url: str) -> None:
        self.url, self.redis = url, Redis.from_url(url)
        self.redis.config_set("slowlog-log-slower-than", 0)
        self.redis.config_set("slowlog-max-len", 100_000)

    def step(self, name: str, work: Callable[[], object]) -> None:
        """Run *work* and print a line of the table."""
        self.redis.slowlog_reset()
        # Give back what earlier steps have used, and forget their peak.
        gc.collect()
        pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before, started = memory_kb("VmRSS"), time.perf_counter()
        with self._pings() as longest:
            work()
        seconds, grown = time.perf_counter() - started, memory_kb("VmHWM") - before
        # In microseconds; scripts only.
        calls = [
            c["duration"] for c in self.redis.slowlog_get(-1) if c["command"].startswith(b"EVAL")
        ]
        times = f"{sum(calls) / 1000:.0f} | {max(calls, default=0) / 1000:.1f}"
        print(
            f"| {name} | {len(calls)} | {times} | {1000 * max(longest):.1f} | {seconds:.2f} | "
            f"{grown // 1024} |",
            flush=True,
        )

    @contextmanager
    def _pings(self) -> Iterator[list[float]]:
        over, took = threading.Event(), [0.0]

        def ping() -> None:
            with Redis.from_url(self.url) as client:
                while not over.wait(0.002):
                    began = time.perf_counter()
                    client.ping()
                    took.append(time.perf_counter() - began)

        thread = threading.Thread(target=ping)
        thread.start()
        try:
            yield took
        finally:
            over.set()
            thread.join()


def drain(url: str, **options: str) -> Iterator[Callable[[], object]]:
    """Return the steps of a drain: claim, read, acknowledge."""
    given = {"url": url, "queue": "jobs", "bodyType": "binary", **options}
    reader = ClaimReader(parse(StreamReadOptions, given), full_schema("binary"))
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    end: dict[str, Any] = {}
    yield lambda: end.update(reader.latestOffset(start, limit))
    yield lambda: read_all(reader, reader.partitions(start, end))
    yield lambda: (reader.latestOffset(end, limit), reader.stop())


def read_all(reader: ClaimReader | SnapshotReader, partitions: list[Any]) -> int:
    return sum(batch.num_rows for part in partitions for batch in reader.read(part))


def measure(watch: Watch, url: str, size: int, count: int) -> None:
    """Write, read and drain *count* messages of *size* bytes."""
    options = {"url": url, "queue": "jobs"}
    write = parse(WriteOptions, options)
    lot = max(1, min(10_000, 64 * 2**20 // size))  # What Spark puts into one Arrow batch.
    done: list[Any] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, count, lot):
            bodies = [b"%010d" % (at + n) + b"x" * (size - 10) for n in range(min(lot, count - at))]
            yield pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], names=["body"])

    def stage() -> None:
        done[:] = [writers._deliver(write, f"job{time.time_ns()}", batches(), staged=True)]  # noqa: SLF001

    def commit() -> None:
        writers._commit(write, done[0].job, 0, done, 3_600_000)  # noqa: SLF001

    watch.step(f"{size}: stage", stage)
    watch.step(f"{size}: commit", commit)
    reader = SnapshotReader(
        parse(ReadOptions, {**options, "bodyType": "binary"}), full_schema("binary")
    )
    watch.step(f"{size}: read", lambda: read_all(reader, reader.partitions()))
    for mode in ("lease", "move"):
        if mode == "move":
            stage()
            commit()
        steps = drain(url, claimMode=mode, ledger="etl", claimAhead="false")
        for name, work in zip(("claim", "read", "acknowledge"), steps, strict=True):
            watch.step(f"{size}: {mode}, {name}", work)
        assert watch.redis.zcard("rsmq:jobs") == 0
    stage()
    commit()
    next(drain(url, claimMode="move", ledger="etl", claimAhead="false"))()
    watch.step(f"{size}: move, release", lambda: release("jobs", "etl", url=url))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_bytes")
    parser.add_argument("--mib", type=int, default=256, help="bytes of bodies for each size")
    parser.add_argument("--sizes", type=int, nargs="*", default=[200, 65_536, 2**20])
    given = parser.parse_args()
    for size in given.sizes:
        with EmbeddedServer.ephemeral() as server:
            client = SyncClient(server.url, Options(deadline=60))
            keys = Namespace("rsmq").queue("jobs")
            client.run(
                queues.create(keys, vt=30, delay=0, maxsize=65_536 if size <= 65_536 else -1)
            )
            client.close()
            print(
                "| bytes: step | calls | scripts, ms | longest, ms | PING, ms | s | memory, MiB |"
            )
            print("|---|--:|--:|--:|--:|--:|--:|")
            measure(Watch(server.url), server.url, size, min(100_000, given.mib * 2**20 // size))


if __name__ == "__main__":
    main()
