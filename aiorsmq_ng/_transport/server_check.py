"""Checks of a Redis server, made once per client before its first call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from .._common.durability import Durability
from .._protocol.operation import Reply
from ..errors import DurabilityUnmet, NotSupported, RSMQError
from ..options import Options

#: Run a plain command.
Ask = Callable[..., Awaitable[Reply]]


async def check_server(ask: Ask, options: Options) -> Durability:
    """Refuse a server that would break promises; return what sends wait for on this one.

    A check that the ACL does not allow is skipped. Raises ``NotSupported`` for a
    server that evicts queues, ``DurabilityUnmet`` for one that cannot keep the level.
    """
    # Raises if the login is refused. The ACL may refuse the questions below.
    await ask("PING")
    if not options.allow_eviction:
        policy = (await _info(ask, "memory")).get("maxmemory_policy", "")
        if policy.startswith("allkeys-"):
            raise NotSupported(
                f"the server's maxmemory-policy is {policy}: it deletes whole queues when its "
                f"memory is full; set noeviction, or use {options.how_to_allow('allow_eviction')}"
            )
    wanted = Durability.parse(options.durability)
    return await _fsync(ask, wanted) if wanted.fsync else wanted


async def read_setting(ask: Ask, name: str) -> str | None:
    """Return a setting; ``None`` if the server refuses, or does not have the setting."""
    try:
        reply = await ask("CONFIG", "GET", name)
    except RSMQError:
        return None
    # redis-py's cluster client returns a dict.
    pairs: Any = (
        reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    )
    return next((_text(value) for key, value in pairs if _text(key) == name), None)


async def _fsync(ask: Ask, wanted: Durability) -> Durability:
    """Return what to wait for so that messages are on disk: nothing if the server always syncs."""
    if (await _info(ask, "persistence")).get("aof_enabled") == "0":
        raise DurabilityUnmet(
            str(wanted), "memory", detail="the server's append-only file is off; set appendonly yes"
        )
    try:
        await ask("WAITAOF", 0, 0, 1)
    except RSMQError:
        # Redis has WAITAOF since 7.2. An older server must sync with every write.
        if await read_setting(ask, "appendfsync") != "always":
            raise DurabilityUnmet(
                str(wanted),
                "memory",
                detail="the server has no WAITAOF (Redis 7.2 has), and appendfsync is not always",
            ) from None
        return replace(wanted, waits=False)
    return wanted


async def _info(ask: Ask, section: str) -> dict[str, str]:
    try:
        reply = await ask("INFO", section)
    except RSMQError:
        return {}
    if isinstance(reply, dict):
        return {_text(name): str(value) for name, value in reply.items()}
    lines = _text(reply).splitlines() if isinstance(reply, bytes | str) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
