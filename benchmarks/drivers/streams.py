"""Redis Streams by plain redis-py: one ``XADD`` per send, a consumer group for taking."""

from __future__ import annotations

import time

from redis.asyncio import Redis
from talk import Job, Peer, serve

STREAM, GROUP = "bench", "workers"


class Streams(Peer):
    """What one writes by hand when Streams are enough."""

    packages = ("redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect by a pool."""
        # As many connections as tasks; on a busy machine hundreds of them take their time.
        self.redis = Redis.from_url(url, max_connections=1000, socket_connect_timeout=30)

    async def reset(self) -> None:
        """Make the stream and its group."""
        await self.redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)

    async def send(self, body: str) -> None:
        """Send one message."""
        await self.redis.xadd(STREAM, {"body": body})

    async def send_many(self, bodies: list[str]) -> None:
        """Send messages by one pipeline, all or none."""
        async with self.redis.pipeline(transaction=True) as pipe:
            for body in bodies:
                pipe.xadd(STREAM, {"body": body})
            await pipe.execute()

    async def take(self) -> None:
        """Receive one message, acknowledge and delete it."""
        await self._take(1)

    async def consume(self, job: Job, times: list[float]) -> None:
        """Take a batch at a time."""
        left = job.messages
        while left:
            began = time.perf_counter()
            left -= await self._take(job.batch)
            times.append(time.perf_counter() - began)

    async def loop(self, job: Job, times: list[float]) -> None:
        """Read a batch at a time; acknowledge and delete one message after the other."""
        left = job.messages
        while left:
            for id in await self._read_ids(job.batch):
                await self._settle([id])
                left -= 1

    async def _take(self, count: int) -> int:
        ids = await self._read_ids(count)
        await self._settle(ids)
        return len(ids)

    async def _settle(self, ids: list[bytes]) -> None:
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.xack(STREAM, GROUP, *ids)
            pipe.xdel(STREAM, *ids)
            await pipe.execute()

    async def _read_ids(self, count: int) -> list[bytes]:
        ((_, entries),) = await self._read(count)
        return [id for id, _ in entries]

    async def _read(self, count: int):
        found = await self.redis.xreadgroup(GROUP, "one", {STREAM: ">"}, count=count)
        return found.items() if isinstance(found, dict) else found


serve(Streams())
