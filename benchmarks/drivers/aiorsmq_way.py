"""aiorsmq's way of working, on redis-py 8: aiorsmq 0.1.2 itself does not run on it.

Two round trips per operation: the first reads the queue's attributes and the server's time, the
second does the work, computed from them.
"""

from __future__ import annotations

import random
import string

from redis.asyncio import Redis
from talk import Peer, serve

QUEUE, HASH = "bench:jobs", "bench:jobs:Q"
LETTERS = string.ascii_letters + string.digits
RECEIVE = """
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1)
if #found == 0 then return {} end
local id = found[1]
redis.call('ZADD', KEYS[1], ARGV[2], id)
redis.call('HINCRBY', KEYS[2], 'totalrecv', 1)
local body, rc = redis.call('HGET', KEYS[2], id), redis.call('HINCRBY', KEYS[2], id .. ':rc', 1)
local fr = ARGV[1]
if rc == 1 then
  redis.call('HSET', KEYS[2], id .. ':fr', fr)
else
  fr = redis.call('HGET', KEYS[2], id .. ':fr')
end
return {id, body, rc, fr}
"""


class Aiorsmq(Peer):
    """Its round trips, transactions and checks."""

    packages = ("redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect by a pool."""
        # As many connections as tasks; on a busy machine hundreds of them take their time.
        more = {"max_connections": 1000, "socket_connect_timeout": 30}
        self.redis = Redis.from_url(url, decode_responses=True, **more)
        self.script = self.redis.register_script(RECEIVE)

    async def reset(self) -> None:
        """Make the queue."""
        await self.redis.hset(HASH, mapping={"vt": 30, "delay": 0, "maxsize": -1})
        await self.redis.sadd("bench:QUEUES", "jobs")

    async def queue(self) -> tuple[list[str], int]:
        """Read the queue's attributes and the time in microseconds."""
        async with self.redis.pipeline(transaction=True) as pipe:
            pipe.hmget(HASH, "vt", "delay", "maxsize")
            pipe.time()
            attributes, (seconds, micros) = await pipe.execute()
        return attributes, seconds * 1_000_000 + micros

    async def send(self, body: str) -> None:
        """Send one message."""
        (_, delay, maxsize), now = await self.queue()
        if 0 <= int(maxsize) < len(body.encode()):
            raise ValueError("too long")
        id = _base36(now) + "".join(random.choice(LETTERS) for _ in range(22))
        async with self.redis.pipeline(transaction=True) as pipe:
            pipe.zadd(QUEUE, {id: now // 1000 + int(delay) * 1000})
            pipe.hset(HASH, id, body)
            pipe.hincrby(HASH, "totalsent", 1)
            await pipe.execute()

    async def take(self) -> None:
        """Receive one message and delete it."""
        (vt, _, _), now = await self.queue()
        now //= 1000
        id, *_ = await self.script(keys=[QUEUE, HASH], args=[now, now + int(vt) * 1000])
        async with self.redis.pipeline(transaction=True) as pipe:
            pipe.zrem(QUEUE, id)
            pipe.hdel(HASH, id, f"{id}:rc", f"{id}:fr")
            await pipe.execute()


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = (string.digits + string.ascii_lowercase)[digit] + digits
    return digits


serve(Aiorsmq())
