"""Spark programs that tests start, and that die at a given point."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from aiorsmq_ng._transport.transport import Transport
from aiorsmq_ng.spark import RSMQDataSource, jobs
from aiorsmq_ng.spark.options import StreamReadOptions, WriteOptions, parse
from aiorsmq_ng.spark.stream_reader import ClaimReader
from aiorsmq_ng.spark.writers import BatchSink, StreamSink

GIVEN = json.loads(os.environ["DRIVER"])
FOLDER = Path(GIVEN["folder"])


def session(**settings: str) -> SparkSession:
    builder = SparkSession.builder
    for name, value in {**GIVEN["spark"], **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Doom:
    """The point at which a process takes the JVM and itself down, by SIGKILL."""

    def __init__(self, point: str, jvm: int, folder: str) -> None:
        self.point, self.jvm, self.folder = point, jvm, folder

    def reached(self, point: str) -> None:
        if point == self.point:
            (Path(self.folder) / point).touch()
            os.kill(self.jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def after_call(self, script: str, point: str, times: int = 1) -> None:
        """Reach *point* after the script was called so often in this process."""
        real, calls = Transport.run, []

        async def run(transport, operation):
            result = await real(transport, operation)
            if operation.kind.name == script:
                calls.append(script)
                if len(calls) == times:
                    self.reached(point)
            return result

        Transport.run = run


class DoomedReader(ClaimReader):
    """Dies in the middle of what a reader does."""

    armed = False

    def latestOffset(self, start, limit):
        if not self.armed:
            self.armed = True
            self.doom.after_call("claim", "claim_half", times=2)
            self.doom.after_call("claim_ack", "ack_half")
        if any(part["claim"] for part in start["parts"].values()):
            self.doom.reached("before_ack")
        offset = super().latestOffset(start, limit)
        if offset != start:
            self.doom.reached("claim_done")
        return offset

    def partitions(self, start, end):
        parts = super().partitions(start, end)
        self.doom.reached("planned")
        return parts

    def read(self, partition):
        self.doom.after_call("claim_dead_letter", "letter_half")
        for batch in super().read(partition):
            yield batch
            self.doom.reached("read_half")


class DoomedSink(StreamSink):
    """Dies in the middle of what a writer does."""

    def write(self, iterator):
        self.doom.after_call("stage", "stage_half")
        return super().write(iterator)

    def commit(self, messages, batchId):
        self.doom.reached("before_commit")
        self.doom.after_call("stage_move", "commit_half")
        super().commit(messages, batchId)
        self.doom.reached("after_commit")


class DoomedBatchSink(BatchSink):
    """The same for a batch."""

    def write(self, iterator):
        self.doom.after_call("stage", "stage_half")
        self.doom.after_call("bulk_send", "send_half", times=2)
        return super().write(iterator)

    def commit(self, messages):
        self.doom.reached("before_commit")
        self.doom.after_call("stage_move", "commit_half")
        super().commit(messages)
        self.doom.reached("after_commit")


class DoomedSource(RSMQDataSource):
    """The source with reader and writer that die at a given point."""

    def __init__(self, options):
        given = dict(options)
        self.doom = Doom(given.pop("point"), int(given.pop("jvm")), given.pop("folder"))
        super().__init__(given)

    @classmethod
    def name(cls):
        return "doomed"

    def streamReader(self, schema):
        return self._doomed(DoomedReader, StreamReadOptions, schema)

    def streamWriter(self, schema, overwrite):
        return self._doomed(DoomedSink, WriteOptions, schema, overwrite)

    def writer(self, schema, overwrite):
        return self._doomed(DoomedBatchSink, WriteOptions, schema, overwrite)

    def _doomed(self, kind, options, *rest):
        made = kind(parse(options, self.options), *rest)
        made.doom = self.doom
        return made


def crash() -> None:
    """Run a query or a job that dies at a given point."""
    spark = session()
    spark.dataSource.register(DoomedSource)
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    doom = {"point": GIVEN["point"], "jvm": str(pid), "folder": str(FOLDER)}
    options = GIVEN["options"]
    if GIVEN["query"] in ("staged", "direct"):
        rows = spark.range(0, GIVEN["count"], 1, 2).selectExpr("cast(id AS string) AS body")
        sink = {"jobId": "nightly", "delivery": GIVEN["query"], "sendSize": "400"}
        writer = rows.write.format("doomed").options(**options, **sink, **doom)
        writer.mode("append").save()
        return
    source = {"maxMessagesPerTrigger": "1200", "fetchSize": "300", "ledger": "etl"}
    source["claimChunk"] = "500"
    source["claimMode"] = "move" if "moved" in GIVEN["query"] else "lease"
    if "refused" in GIVEN["query"]:
        source["onDecodeError"] = "deadletter"
    reader = spark.readStream.format("doomed").options(**options, **source, **doom).load()
    if GIVEN["query"] == "copied":
        sink = options | {"queue": "out", "sendSize": "400"}
        writer = reader.select("body").writeStream.format("doomed").options(**sink, **doom)
    else:
        writer = reader.writeStream.format("parquet").option("path", str(FOLDER / "parquet"))
    writer = writer.option("checkpointLocation", str(FOLDER / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    if GIVEN["point"] == "none" and GIVEN["query"] != "copied":
        rows = spark.read.parquet(str(FOLDER / "parquet")).select("body").collect()
        (FOLDER / "rows").write_text("\n".join(row.body for row in rows))


def cluster() -> None:
    """Write, look, archive; the master is the one that spark-submit was given."""
    spark = SparkSession.builder.getOrCreate()
    options = GIVEN["options"]
    tasks: dict[str, dict[str, int]] = {}

    def note(phase: str) -> None:
        """Note how many tasks each executor has finished in this phase."""
        store = spark.sparkContext._jsc.sc().statusStore()
        executors = store.executorList(False)
        done = {
            executors.apply(n).id(): executors.apply(n).completedTasks()
            for n in range(executors.size())
        }
        before = list(tasks.values())
        tasks[phase] = {
            id: count - sum(counts.get(id, 0) for counts in before)
            for id, count in done.items()
            if id != "driver"
        }

    rows = spark.range(0, 2000, 1, 4).selectExpr("cast(id AS string) AS body")
    rows.write.format("rsmq").options(**options).mode("append").save()
    note("sink")
    seen = spark.read.format("rsmq").options(**options, numPartitions="4").load().count()
    note("source")
    server = {name: options[name] for name in ("url", "namespace")} | {"minPartitions": "4"}
    target = str(FOLDER / "lake")
    archived = jobs.archive(spark, [options["queue"]], target, options=server)["rows"]
    note("archive")
    result = {
        "seen": seen,
        "tasks": tasks,
        "archived": archived,
        "bodies": sorted(int(r.body) for r in jobs.read_archive(spark, target).collect()),
    }
    (FOLDER / "result.json").write_text(json.dumps(result))


def connect() -> None:
    """Write, look, copy from queue to queue and drain as a client of a Spark Connect server."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = GIVEN["options"]
    rows = spark.range(0, 200, 1, 2).selectExpr("cast(id AS string) AS body")
    rows.write.format("rsmq").options(**options).mode("append").save()
    seen = spark.read.format("rsmq").options(**options).load().count()
    copied = {**options, "queue": "copied", "createQueue": "true"}
    stream = spark.readStream.format("rsmq").options(**options).load().select("body")
    writer = stream.writeStream.format("rsmq").options(**copied)
    writer = writer.option("checkpointLocation", str(FOLDER / "copying"))
    writer.trigger(availableNow=True).start().awaitTermination()
    options = {**options, "queue": "copied"}
    writer = spark.readStream.format("rsmq").options(**options).load().writeStream
    writer = writer.format("parquet").option("path", str(FOLDER / "parquet"))
    writer = writer.option("checkpointLocation", str(FOLDER / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    drained = spark.read.parquet(str(FOLDER / "parquet")).collect()
    rows.limit(20).write.format("rsmq").options(**options).mode("append").save()
    server = {name: options[name] for name in ("url", "namespace")}
    archived = jobs.archive(spark, ["copied", "none"], str(FOLDER / "lake"), options=server)
    result = {
        "session": type(spark).__module__,
        "archived": [archived["queues"], archived["missing"]],
        "in files": jobs.read_archive(spark, str(FOLDER / "lake")).count(),
        "seen": seen,
        "bodies": sorted(int(row.body) for row in drained),
    }
    (FOLDER / "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
