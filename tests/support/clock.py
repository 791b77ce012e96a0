"""Make time pass for stored messages, instead of waiting for it."""

from __future__ import annotations

from redis.asyncio import Redis


async def pass_time(raw: Redis, zset: str, seconds: float) -> None:
    """Move every message of a queue *seconds* nearer to being visible."""
    for id, score in await raw.zrange(zset, 0, -1, withscores=True):
        await raw.zadd(zset, {id: score - seconds * 1000})


async def server_ms(raw: Redis) -> int:
    """Return the server's time in milliseconds."""
    seconds, micros = await raw.time()
    return seconds * 1000 + micros // 1000
