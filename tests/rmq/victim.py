"""A consumer of ours that is killed: marks each message, then acks it; without a mark, holds it."""

from __future__ import annotations

import asyncio
import sys

from redis.asyncio import Redis, RedisCluster

from aiorsmq_ng.rmq import Rmq, RmqDelivery


async def client_of(url: str, key: str) -> Redis:
    """Return a client of the server that has *key*.

    redis-py's client of a cluster fails now and then if eight tasks use it at once.
    """
    if not url.startswith("redis+cluster"):
        return Redis.from_url(url)
    address = url.removeprefix("redis+cluster://").split(",")[0]
    async with RedisCluster.from_url(f"redis://{address}") as cluster:
        node = cluster.get_node_from_key(key)
        assert node is not None
        return Redis(host=node.host, port=int(node.port))


async def main(url: str, tag: str, queue: str, prefetch: int, mark: str) -> None:
    marks = await client_of(url, mark)

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
