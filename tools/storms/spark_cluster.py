"""Spark on a cluster while processes and servers are killed.

``python -m tools.storms.spark_cluster --seeds 1,2,3``

A cluster of 3 primaries and 3 replicas, 6 namespaces, 24 queues that two queries of one driver
read: 12 by leases into Parquet files, 12 by moving into 12 other queues. A producer sends all the
while, consumers of this library take some of the messages. Some bodies are no text, so the queries
dead-letter them. Faults come one after the other, at random: SIGKILL of the driver's JVM, its
Python, an executor, a Python process of Spark, or a primary (its replica takes over), and slots
that move. At the end every message must be exactly once in a file, in a queue, in a dead-letter
queue if it is no text, or with a consumer, and beside the queues nothing may be left that does not
expire.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiorsmq_ng import RSMQ, LeaseLost, Options, QueueNotFound, SendUnknown, Unavailable
from aiorsmq_ng.testing.servers import eventually
from tests.spark.conftest import quick_home

from ..lab import Cluster
from ..lab.topologies import ClusterNode

ROOT = Path(__file__).parents[2]
NAMESPACES = [f"{{s{number}}}" for number in range(6)]
FILED = [f"p{number}" for number in range(12)]
COPIED = [f"c{number}" for number in range(12)]
COPIES = [f"o{number}" for number in range(12)]
DEAD = [f"{name}-dead" for name in (*FILED, *COPIED)]
#: Of this number of messages one is no text.
SPOILT = 20
DRIVER = "tools.storms.spark_cluster_driver"
#: How long Spark may take to start, and all that was sent to arrive.
START_S, DRAIN_S = 300.0, 600.0
SETTINGS = {
    "spark.master": "local-cluster[2,1,700]",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "600m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.log.level": "ERROR",
}


class Driver:
    """Spark's driver and all processes below it."""

    def __init__(self, folder: Path, url: str, lease_ms: int) -> None:
        self.folder = folder
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._below: set[int] = set()
        options = {
            "url": url,
            "namespace": ",".join(NAMESPACES),
            "timeoutMs": "60000",
        }
        self._given = {
            "folder": str(folder),
            "options": options,
            "lease_ms": str(lease_ms),
            "copied": COPIED,
            "spark": SETTINGS,
        }

    @property
    def runs(self) -> bool:
        """True if its Python runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, after all that was below the one before is gone."""
        self.sweep()
        self.starts += 1
        (self.folder / "running").unlink(missing_ok=True)
        environment = {
            **os.environ,
            "STORM": json.dumps(self._given),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": quick_home(self.folder),
            "SPARK_WORKER_DIR": str(self.folder / "work"),
        }
        log = (self.folder / f"driver-{self.starts}.log").open("wb")
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", DRIVER],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Wait until both queries run; start it again as often as it ends before."""

        async def running() -> bool:
            self.watch()
            if not self.runs:
                self.start()
            return (self.folder / "running").exists()

        await eventually(running, "both queries run", START_S)

    def watch(self) -> None:
        """Note the processes below it, so that none of them is left behind."""
        self._below |= {pid for pid, _ in self.below()}

    def below(self) -> Iterator[tuple[int, str]]:
        """Yield the processes below it, with their command lines."""
        if self._process is None:
            return
        parents = dict(_processes())
        for pid in parents:
            above = pid
            while above in parents and above != self._process.pid:
                above = parents[above]
            if above == self._process.pid and pid != above:
                with suppress(OSError):
                    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    yield pid, command.decode(errors="replace")

    def pick(self, kind: str, chance: random.Random) -> int | None:
        """Return a process of a kind."""
        if kind == "driver Python":
            return self._process.pid if self._process and self.runs else None
        marks = {
            "driver JVM": ("SparkSubmit", "org.apache.spark.deploy"),
            "executor": ("CoarseGrainedExecutorBackend",),
            "Python worker": ("pyspark.daemon", "pyspark/daemon", "python_streaming_source"),
        }[kind]
        found = [
            pid
            for pid, command in self.below()
            if any(mark in command for mark in marks)
            and (kind == "executor" or "CoarseGrained" not in command)
        ]
        return chance.choice(found) if found else None

    def sweep(self) -> None:
        """End what is left of it."""
        self.watch()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pid in self._below:
            with suppress(ProcessLookupError, OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"spark" in command:
                    os.kill(pid, signal.SIGKILL)
        self._below.clear()


def note(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _processes() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                after = (folder / "stat").read_text().rpartition(")")[2].split()
                yield int(folder.name), int(after[1])


#: The end of a body that is no text.
_NO_TEXT = b"\xff"


def _body(number: int, queue: str) -> bytes:
    return b"%d %s %s" % (number, queue.encode(), b"" if number % SPOILT else _NO_TEXT)


def _text(body: bytes) -> str:
    return body.decode(errors="replace")


class Trial:
    """One run with one seed."""

    def __init__(self, arguments: argparse.Namespace, seed: int, folder: Path) -> None:
        self.arguments = arguments
        self.chance = random.Random(seed)
        self.cluster = Cluster(masters=3, replicas=1)
        self.folder = folder
        self.sent: list[str] = []
        self.theirs: list[str] = []
        #: Messages of consumers whose ack has no known outcome.
        self.unsure: list[str] = []
        self.faults: Counter[str] = Counter()
        self._stop = asyncio.Event()

    async def run(self) -> dict[str, Any]:
        """Play the faults; return the figures."""
        began = time.monotonic()
        async with self.cluster:
            self.driver = Driver(self.folder, self.cluster.url, self.arguments.lease_ms)
            options = Options(deadline=60)
            try:
                async with RSMQ(self.cluster.url, ns=NAMESPACES, options=options) as client:
                    for name in (*FILED, *COPIED, *COPIES):
                        await client.create_queue(name, vt=600, exist_ok=True)
                    beside = [asyncio.create_task(self._produce(client))]
                    beside += [
                        asyncio.create_task(self._consume(client))
                        for _ in range(self.arguments.consumers)
                    ]
                    self.driver.start()
                    await self.driver.ready()
                    await self._play()
                    self._stop.set()
                    await asyncio.gather(*beside)
                    verdict = await self._judge(client)
            finally:
                self.driver.sweep()
        return verdict | {"s": round(time.monotonic() - began), "starts": self.driver.starts}

    async def _produce(self, client: RSMQ) -> None:
        while not self._stop.is_set():
            for name in self.chance.sample([*FILED, *COPIED], 4):
                lot = [_body(len(self.sent) + at, name) for at in range(self.arguments.rate // 20)]
                self.sent += map(_text, lot)
                try:
                    await client.queue(name).send_many(lot)
                except SendUnknown as unknown:
                    if unknown.token is not None:
                        await client.queue(name).resend(unknown.token)
            await asyncio.sleep(0.2)

    async def _consume(self, client: RSMQ) -> None:
        while not self._stop.is_set():
            name = self.chance.choice([*FILED, *COPIED])
            for delivery in await client.queue(name).receive_many(3):
                body = _text(delivery.body)
                try:
                    await delivery.ack()
                    self.theirs.append(body)
                except (LeaseLost, Unavailable):
                    self.unsure.append(body)
            await asyncio.sleep(0.3)

    async def _play(self) -> None:
        kinds = [
            "driver JVM",
            "driver Python",
            "executor",
            "Python worker",
            "primary",
            "slot",
        ]
        weights = [2, 2, 3, 4, 3, 3]
        while self.faults.total() < self.arguments.faults:
            kind = self.chance.choices(kinds, weights)[0]
            await asyncio.sleep(self.chance.uniform(0.5, 6))
            if kind == "primary":
                await self._kill_primary()
            elif kind == "slot":
                await self._move_slot()
            else:
                await self.driver.ready()
                pid = self.driver.pick(kind, self.chance)
                if pid is None:
                    continue
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.faults[kind] += 1
            note(f"  fault {self.faults.total()}: {kind}; {len(self.sent)} sent")
            if kind.startswith("driver") and self.arguments.down_s:
                await asyncio.sleep(self.arguments.down_s)

    async def _primaries(self) -> list[ClusterNode]:
        slots = [await self.cluster.slot_of(name) for name in NAMESPACES]
        return list({id(n): n for n in [await self.cluster.owner(s) for s in slots]}.values())

    async def _kill_primary(self) -> None:
        slot = await self.cluster.slot_of(self.chance.choice(NAMESPACES))
        victim = await self.cluster.owner(slot)
        victim.kill()
        await self.cluster.failed_over(slot)
        await victim.restart()
        await eventually(victim.is_synchronized, "the old primary follows", 120)
        await self.cluster.healthy()

    async def _move_slot(self) -> None:
        slot = await self.cluster.slot_of(self.chance.choice(NAMESPACES))
        source = await self.cluster.owner(slot)
        others = [node for node in await self._primaries() if node is not source]
        if others:
            await self.cluster.move_slot(slot, self.chance.choice(others), pause_s=0.002)

    async def _judge(self, client: RSMQ) -> dict[str, Any]:
        async def drained() -> bool:
            await self.driver.ready()
            counts = [(await client.queue(n).attributes()).msgs for n in (*FILED, *COPIED)]
            # A query that moves messages holds them outside of the queue.
            return not any(counts) and not await self._keys("*:ng:moved")

        await eventually(drained, "all queues are empty", DRAIN_S)
        side = await self._side_keys()
        (self.folder / "finish").touch()

        async def read() -> bool:
            if not self.driver.runs and not (self.folder / "rows.json").exists():
                self.driver.start()
            return (self.folder / "rows.json").exists() and not self.driver.runs

        await eventually(read, "the files are read", START_S)
        rows = json.loads((self.folder / "rows.json").read_text())
        copied = [body for name in COPIES for body in await self._taken(client, name)]
        dead = {name: await self._taken(client, name) for name in DEAD}
        buried = [body for bodies in dead.values() for body in bodies]
        wrong = [body for body, queue in rows if body.split()[1] != queue]
        wrong += [
            b for name, bodies in dead.items() for b in bodies if f"{b.split()[1]}-dead" != name
        ]
        spoilt = {body for body in self.sent if body.endswith(_text(_NO_TEXT))}
        wrong += set(buried) ^ (spoilt - set(self.theirs) - set(self.unsure))
        found = Counter([body for body, _ in rows] + copied + buried + self.theirs)
        known = set(self.unsure)
        missing = [body for body in self.sent if not found[body] and body not in known]
        doubled = [body for body, count in found.items() if count > 1]
        return {
            "faults": dict(self.faults),
            "sent": len(self.sent),
            "in files": len(rows),
            "copied": len(copied),
            "dead letters": len(buried),
            "with consumers": len(self.theirs),
            "of unknown outcome": len(self.unsure),
            "missing": len(missing),
            "doubled": len(doubled),
            "foreign": len(found.keys() - set(self.sent)),
            "wrong queue": len(wrong),
            "side keys left": side,
            "samples": [*missing[:5], *doubled[:5]],
        }

    async def _taken(self, client: RSMQ, name: str) -> list[str]:
        """Take all bodies out of a queue, if it exists."""
        bodies: list[str] = []
        with suppress(QueueNotFound):
            while some := await client.queue(name).receive_many(500):
                bodies += (_text(one.body) for one in some)
                await client.queue(name).delete_many([one.id for one in some])
        return bodies

    async def _keys(self, pattern: str) -> list[bytes]:
        """Return the keys of all primaries that match."""
        found = [await node.command("KEYS", pattern) for node in await self._primaries()]
        return [key for keys in found for key in keys]

    async def _side_keys(self) -> list[str]:
        """Return keys beside the queues that hold messages, or that never expire.

        Rows that a killed task has set aside will never be sent, and expire.
        """
        left: list[str] = []
        for node in await self._primaries():
            for key in await node.command("KEYS", "*:ng:*"):
                kind = key.decode().split(":ng:")[1].split(":")[0]
                if kind in ("claim", "snapshot"):
                    left.append(key.decode())
                elif kind != "wake" and int(await node.command("TTL", key)) < 0:
                    left.append(f"{key.decode()} without TTL")
        return left


def main() -> None:
    """Play one trial per seed; print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1", help="numbers separated by commas")
    parser.add_argument("--faults", type=int, default=14, help="per seed")
    parser.add_argument("--rate", type=int, default=400, help="messages per second, about")
    parser.add_argument("--consumers", type=int, default=2)
    parser.add_argument("--lease-ms", type=int, default=600_000)
    parser.add_argument("--down-s", type=float, default=0, help="how long a killed driver is down")
    arguments = parser.parse_args()
    failed = False
    for seed in map(int, arguments.seeds.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        note(f"seed {seed}, {folder}")
        figures = asyncio.run(Trial(arguments, seed, folder).run())
        note(json.dumps({"seed": seed, **figures}))
        faulty = ("missing", "doubled", "foreign", "wrong queue", "side keys left")
        bad = any(figures[name] for name in faulty)
        failed = failed or bad
        if not bad:
            shutil.rmtree(folder)
    sys.exit(failed)


if __name__ == "__main__":
    main()
