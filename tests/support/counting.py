"""What a server counts."""

from __future__ import annotations

from redis.asyncio import Redis


async def script_calls(raw: Redis) -> int:
    """Return the number of script calls that the server has executed so far."""
    stats = await raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
