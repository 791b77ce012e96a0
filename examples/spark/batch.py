"""A table into a queue, and the queue as a table; nothing is consumed.

Needs the extra "spark" and Java 17. Without a server of yours it starts one (extra "embedded").
Its last line is: 3 messages, 55 cents
"""

import asyncio
import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("RSMQ_URL", "embedded://")

from pyspark.sql import SparkSession

from aiorsmq_ng import RSMQ


def main() -> None:
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    settings |= {"spark.log.level": "ERROR", "spark.driver.host": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    queue = {"queue": f"example-spark-batch-{os.getpid()}"}

    orders = spark.createDataFrame(
        [("tea", 30), ("milk", 15), ("salt", 10)], "name string, cents int"
    )
    orders.selectExpr("to_json(struct(*)) AS body").write.format("rsmq").options(
        **queue, createQueue="true"
    ).mode("append").save()

    messages = spark.read.format("rsmq").options(**queue).load()
    sold = messages.selectExpr("from_json(body, 'name string, cents int') AS row")
    count, cents = sold.selectExpr("count(*)", "sum(row.cents)").first()
    messages.select("body", "receive_count").orderBy("body").show(truncate=False)

    clean_up(queue["queue"])
    spark.stop()
    print(f"{count} messages, {cents} cents")


def clean_up(name: str) -> None:
    """Delete the queue, as any client of this library does."""

    async def delete() -> None:
        async with RSMQ(os.environ["RSMQ_URL"]) as rsmq:
            await rsmq.delete_queue(name)

    asyncio.run(delete())


if __name__ == "__main__":
    main()
