"""Rows per second of the Spark source and sink, beside plain redis-py in one process.

Both work on the same server, with the defaults of source and sink: write and read all, beside the
same commands in pipelines; drain (``claimMode`` lease, then move), beside a Lua script that pops a
thousand messages at a time and keeps nothing. Start-up is what Spark needs for a few messages,
after one round to warm up. Processor time is that of the server, of this process (redis-py, or
Spark's client), of Spark's Java and of its Python processes. Another process sends PING all the
while. Then the same drain of four queues that lie on one, two and four servers of a cluster. The
servers have no append-only file, unless --aof is given. Usage:

    python -m benchmarks.spark [--sizes 200:1000000 8192:1000000] [--rounds 1] [--servers 1 2 4]
    python -m benchmarks.spark --write
    python -m benchmarks.spark --sizes 200:100000 --servers

--sizes are bytes and number of messages; by default all that the documentation shows, which takes
some ten minutes and 12 GB of memory. --write keeps the measurements in docs/reports/spark.json, and
writes their tables in docs/reports/spark.md. ``python -m benchmarks.spark_tables`` writes the
tables once more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from contextlib import suppress
from itertools import count
from typing import Any

from pyspark.sql import SparkSession
from redis import Redis

from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._protocol.shards import Shards
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.options import Options
from tools.lab import Cluster

from . import spark_tables
from .__main__ import machine, server_name
from .process_times import ProcessTimes
from .spark_works import PAGE, Plain, Sparkling, pings

#: Work on so few messages is start-up.
FEW = 5000
WORKS = spark_tables.WORKS
#: Queues of the drain of several servers, one in each of as many namespaces.
SHARDS = 4


def session(master: str) -> SparkSession:
    """Start Spark."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "ERROR").config("spark.driver.memory", "1g")
    # One line of progress per batch, so that none is forgotten.
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def times(spark: SparkSession, servers: list[int]) -> ProcessTimes:
    """Return what measures *servers* and the processes of *spark*."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
    return ProcessTimes(servers, jvm.java.lang.ProcessHandle.current().pid())


class Stage:
    """A server and queues on which both sides work."""

    def __init__(self, spark: SparkSession, size: int, *, aof: bool = False) -> None:
        self.spark, self.size, self.aof = spark, size, aof
        self.server = EmbeddedServer.ephemeral()

    def __enter__(self) -> Stage:
        self.server.__enter__()
        self.redis = Redis.from_url(self.server.url)
        self.redis.config_set("appendonly", "yes" if self.aof else "no")
        # It would rewrite the file, and take the second processor from the side that is measured.
        self.redis.config_set("auto-aof-rewrite-percentage", 0)
        client = SyncClient(self.server.url, Options(deadline=60))
        shards = Shards.of("bench", nested=False)
        for name in ("warm", "plain", "spark"):
            client.run(queues.create(shards.queue(name), vt=30, delay=0, maxsize=65536))
        client.close()
        self.times = times(self.spark, [self.redis.info("server")["process_id"]])
        warm = self.sparkling("warm", FEW)
        for work in WORKS:
            before_drain(warm, work)
            getattr(warm, work)()
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.close()
        self.server.__exit__(None, None, None)

    def plain(self, messages: int) -> Plain:
        """Return the one side."""
        return Plain(self.server.url, "plain", messages, b"x" * self.size)

    def sparkling(self, name: str, messages: int) -> Sparkling:
        """Return the other side."""
        given = {"url": self.server.url, "namespace": "bench", "queue": name}
        return Sparkling(self.spark, given, messages, self.size)


def before_drain(worker: Plain | Sparkling, work: str) -> None:
    """Fill the queue once more, if an earlier drain has emptied it."""
    if work == "move":
        worker.write()


def compare(given: argparse.Namespace, size: int, messages: int) -> dict[str, Any]:
    """Measure one side after the other, round by round, so that one queue is filled at a time."""
    messages -= messages % PAGE
    results: dict[str, Any] = {work: {"few": [], "plain": [], "spark": []} for work in WORKS}
    steps: dict[str, list[dict[str, int]]] = {"drain": [], "move": []}
    with Stage(given.session, size, aof=given.aof) as stage:
        sides = {
            "few": stage.sparkling("warm", FEW),
            "plain": stage.plain(messages),
            "spark": stage.sparkling("spark", messages),
        }
        for _ in range(given.rounds):
            for side, worker in sides.items():
                for work in WORKS:
                    if (side, work) == ("plain", "move"):
                        # It is the same pop.
                        results["move"]["plain"].append(results["drain"]["plain"][-1])
                        continue
                    before_drain(worker, work)
                    with pings(stage.server.url) as took:
                        spent: dict[str, Any] = stage.times.measure(getattr(worker, work))
                    results[work][side].append(spent | {"ping": took})
                    tell(size, work, side, results[work][side][-1])
                    if side == "spark" and work in steps:
                        steps[work].append(sides["spark"].steps)
                left = stage.redis.zcard(f"bench:{'warm' if side == 'few' else side}")
                assert left == 0, (side, left)
        server = server_name(stage.redis.info("server"))
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "server": server,
        "aof": given.aof,
        "messages": messages,
        "rounds": given.rounds,
        "size": size,
        "master": given.master,
        "few": FEW,
        "works": results,
        "steps": steps,
    }


async def spread(cluster: Cluster, servers: int) -> list[str]:
    """Return namespaces whose slots lie on that number of the servers, in turn."""
    found: list[str] = []
    owners = cluster.masters[:servers]
    for number in count():
        name = f"{{s{number}}}"
        if await cluster.owner(await cluster.slot_of(name)) is owners[len(found) % servers]:
            found.append(name)
        if len(found) == SHARDS:
            break
    return found


def drain_servers(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Drain four queues that lie on one server of a cluster, on two, and on four."""
    rows: list[dict[str, Any]] = []
    with asyncio.Runner() as runner:
        cluster = runner.run(Cluster(masters=4).start())
        try:
            pids = [int(runner.run(node.info("server"))["process_id"]) for node in cluster.masters]
            watch = times(given.session, pids)
            for servers in given.servers:
                namespaces = runner.run(spread(cluster, servers))
                rows.append(drain_shards(given, cluster.url, namespaces, watch, servers))
                tell(servers, "servers", rows[-1])
        finally:
            runner.run(cluster.aclose())
    return rows


def drain_shards(
    given: argparse.Namespace, url: str, namespaces: list[str], watch: ProcessTimes, servers: int
) -> dict[str, Any]:
    """Fill one queue per namespace and drain all of them by one query; a few messages first."""
    shards = Shards.of(namespaces, nested=False)
    names: dict[str, str] = {}
    for name in map("q{}".format, count()):
        names.setdefault(shards.queue(name).namespace.name, name)
        if len(names) == SHARDS:
            break
    client = SyncClient(url, Options(deadline=60), namespaces=tuple(namespaces))
    for name in names.values():
        client.run(queues.create(shards.queue(name), vt=30, delay=0, maxsize=65536))
    client.close()
    common = {"url": url, "namespace": ",".join(namespaces), "queues": ",".join(names.values())}
    found: dict[str, Any] = {"servers": servers, "messages": given.shard_messages}
    found["few_messages"] = FEW
    for side, messages in (("few", FEW), ("spark", given.shard_messages)):
        worker = Sparkling(given.session, common, messages, 200)
        worker.write()
        found[side] = watch.measure(worker.drain)
    return found


def tell(*what: object) -> None:
    """Print what was measured at once."""
    print(*what, file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    """Read the command line."""
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
        default=[(200, 1_000_000), (8192, 1_000_000)],
        metavar="BYTES:MESSAGES",
    )
    add("--aof", action="store_true", help="with an append-only file")
    add("--rounds", type=int, default=1)
    add("--master", default="local[2]")
    add("--servers", type=int, nargs="*", default=[1, 2, 4], choices=range(1, 5))
    add("--shard-messages", type=int, default=1_000_000, help="in all queues of several servers")
    add(
        "--write",
        action="store_true",
        help="write docs/reports/spark.json and tables of docs/reports/spark.md",
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print the tables, and write them if that is wanted."""
    given = options()
    given.session = session(given.master)
    found: dict[str, Any] = {}

    def note(part: str, measured: Any) -> None:
        found[part] = measured
        if given.write:
            spark_tables.keep({part: measured})

    try:
        if given.servers:
            note("servers", drain_servers(given))
        if given.rounds:
            for size in given.sizes:
                note("compared", [*found.get("compared", []), compare(given, *size)])
    finally:
        with suppress(Exception):
            given.session.stop()
    print(spark_tables.pages(found))


if __name__ == "__main__":
    main()
