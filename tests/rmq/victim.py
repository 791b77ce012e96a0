"""A consumer of ours that is killed: marks each message, then acks it; without a mark, holds it."""

from __future__ import annotations

import asyncio
import sys

from redis.asyncio import Redis, RedisCluster

from aiorsmq_ng.rmq import Rmq, RmqDelivery


async def main(url: str, tag: str, queue: str, prefetch: int, mark: str) -> None:
    address = url.removeprefix("redis+cluster://").split(",")[0]
    cluster = url.startswith("redis+cluster")
    marks = RedisCluster.from_url(f"redis://{address}") if cluster else Redis.from_url(url)

    async def handle(delivery: RmqDelivery) -> None:
        if not mark:
            return
        await marks.hincrby(mark, delivery.body, 1)
        await delivery.ack()

    async with Rmq(url, tag=tag) as rmq, asyncio.TaskGroup() as tasks:
        things = await rmq.queue(queue)
        print("ready", flush=True)  # noqa: T201
        async for delivery in things.consume(prefetch=prefetch):
            tasks.create_task(handle(delivery))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5]))
