"""The Spark program of ``spark_cluster``: queues to Parquet, and queues to queues.

Started again after each kill. When the file ``finish`` is there it stops its queries, reads what
the first one wrote, stores the bodies in ``rows.json`` and ends.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    """Run both queries from their checkpoints."""
    given = json.loads(os.environ["STORM"])
    folder = Path(given["folder"])
    builder = SparkSession.builder
    for name, value in given["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    reading = {"maxMessagesPerTrigger": "2000", "discoverEveryMs": "1000"}
    reading["onDecodeError"] = "deadletter"
    common: dict[str, Any] = {**given["options"], **reading, "leaseMs": given["lease_ms"]}
    stream = spark.readStream.format("rsmq").options(**common)
    trigger = {"processingTime": "500 milliseconds"}

    files = stream.option("queuesPattern", "p[0-9]+").load().select("body", "queue")
    writer = files.writeStream.format("parquet").option("path", str(folder / "rows"))
    first = writer.option("checkpointLocation", str(folder / "to-files")).trigger(**trigger).start()

    names = ",".join(given["copied"])
    moving = {**common, "claimMode": "move", "ledger": "copies", "queues": names}
    copies = spark.readStream.format("rsmq").options(**moving).load()
    copies = copies.selectExpr("body", "concat('o', substr(queue, 2)) AS queue")
    writer = copies.writeStream.format("rsmq").options(**given["options"]).option("queue", "o0")
    place = str(folder / "to-queues")
    second = writer.option("checkpointLocation", place).trigger(**trigger).start()

    (folder / "running").touch()
    while not (folder / "finish").exists():
        for query in (first, second):
            if not query.isActive:
                raise SystemExit(f"a query ended: {query.exception()}")
        time.sleep(0.2)
    for query in (first, second):
        query.stop()
    rows = spark.read.parquet(str(folder / "rows")).select("body", "queue").collect()
    (folder / "rows.json").write_text(json.dumps([[row.body, row.queue] for row in rows]))
    spark.stop()


if __name__ == "__main__":
    main()
