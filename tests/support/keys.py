"""What is stored under a namespace."""

from __future__ import annotations

from redis.asyncio import Redis


async def lasting_keys(raw: Redis, ns: str) -> list[bytes]:
    """Return the keys of a namespace; not what the server remembers of calls, which expires."""
    keys = await raw.keys(f"{ns}*")
    for key in keys:
        if b":ng:call:" in key:
            assert 0 < await raw.pttl(key) <= 3_600_000
    return [key for key in keys if b":ng:call:" not in key]
