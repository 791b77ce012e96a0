"""Use a ``redis.asyncio.Redis`` that the program has already, instead of a URL.

Its decode setting does not matter, its connections are shared, and it stays open when the queue
client is closed.

Run it with ``python examples/own_client.py``. It talks to the server in ``RSMQ_URL`` (one that
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
    """Yield a URL that redis-py understands."""
    url = os.environ.get("RSMQ_URL", "embedded://")
    if not url.startswith("embedded://"):
        yield url
        return
    with EmbeddedServer.acquire() as server:
        yield server.url


async def main(url: str) -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(url, decode_responses=True) as redis:
        async with RSMQ(client=redis) as rsmq:
            queue = await rsmq.create_queue(name)
            try:
                await queue.send(b"\xff\x00 any bytes")
                await queue.send({"an": "object"})
                for delivery in await queue.receive_many(2):
                    print("received", delivery.body)
                    await delivery.ack()
            finally:
                await rsmq.delete_queue(name)
        print("the redis client is still open:", await redis.echo("hello"))
    print("done")


if __name__ == "__main__":
    with server_url() as url:
        asyncio.run(main(url))
