"""Share a queue with a Node service that uses the npm package ``rsmq``.

The Node side looks like this::

    const RSMQ = require("rsmq");
    const rsmq = new RSMQ({ host: "127.0.0.1", port: 6379, ns: "rsmq", realtime: true });
    await rsmq.sendMessageAsync({ qname: "jobs", message: "from Node" });
    const message = await rsmq.receiveMessageAsync({ qname: "jobs" });
    redis.subscribe("rsmq:rt:jobs");  // a message for every send of a client with realtime

Here redis-py stands in for it: it does what ``rsmq`` does, command by command, and shows the keys
that both sides share. ``realtime=True`` makes our sends publish on rsmq's channel.

Run it with ``python examples/share_with_node.py``. It talks to the server in ``RSMQ_URL`` (one that
redis-py can open), or starts an embedded one. Its last line is: done
"""

import asyncio
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from redis.asyncio import Redis

from aiorsmq_ng import RSMQ
from aiorsmq_ng.embedded import EmbeddedServer


@contextmanager
def server_url() -> Iterator[str]:
    """Yield a URL that redis-py understands, too."""
    url = os.environ.get("RSMQ_URL", "embedded://")
    if not url.startswith("embedded://"):
        yield url
        return
    with EmbeddedServer.acquire() as server:
        yield server.url


def base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


async def send_like_node(redis: Redis, name: str, body: str) -> str:
    """Do what rsmq's sendMessage does."""
    seconds, micros = await redis.time()
    id = base36(seconds * 1_000_000 + micros) + uuid.uuid4().hex[:22]
    async with redis.pipeline(transaction=True) as calls:
        calls.zadd(f"rsmq:{name}", {id: seconds * 1000 + micros // 1000})
        calls.hset(f"rsmq:{name}:Q", id, body)
        calls.hincrby(f"rsmq:{name}:Q", "totalsent", 1)
        calls.zcard(f"rsmq:{name}")
        replies = await calls.execute()
    await redis.publish(f"rsmq:rt:{name}", replies[-1])
    return id


async def show_keys(redis: Redis, name: str) -> None:
    print(f"  rsmq:{name}:Q (hash)")
    async for field, value in redis.hscan_iter(f"rsmq:{name}:Q"):
        print(f"    {field} = {value}")
    print(f"  rsmq:{name} (sorted set: id, visible at)")
    async for id, score in redis.zscan_iter(f"rsmq:{name}"):
        print(f"    {id} {score:.0f}")


async def main(url: str) -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with (
        Redis.from_url(url, decode_responses=True) as redis,
        RSMQ(url, realtime=True) as rsmq,
        redis.pubsub() as node,
    ):
        queue = await rsmq.create_queue(name)
        try:
            await node.subscribe(f"rsmq:rt:{name}")
            await node.get_message(timeout=5)  # the subscription itself

            await queue.send("from Python")
            event = await node.get_message(timeout=5)
            print("Node's subscriber gets:", event and (event["channel"], event["data"]))

            delivery = await queue.receive()
            print("what is stored while the message is held:")
            await show_keys(redis, name)
            if delivery is not None:
                await delivery.ack()

            waiting = asyncio.create_task(queue.receive(wait=10))
            await asyncio.sleep(0.2)
            await send_like_node(redis, name, "from Node")
            received = await waiting
            if received is None:
                raise SystemExit("nothing came from the other side")
            print(f"received {received.text!r}")
            await received.ack()
            print("what is stored when all is handled:")
            await show_keys(redis, name)
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    with server_url() as url:
        asyncio.run(main(url))
