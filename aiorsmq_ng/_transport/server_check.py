"""What is asked of a server before it is used, once per client."""

from __future__ import annotations

from dataclasses import replace

from .._common.durability import Durability
from .._protocol.operation import Reply
from ..errors import DurabilityUnmet, NotSupported, RSMQError
from ..options import Options
from .driver import Command, Driver, NotExecuted, ReplyLost


async def check_server(driver: Driver, options: Options) -> Durability:
    """Refuse a server that would break promises; return what sends wait for on this one.

    A user who may not ask (ACL) is trusted to have asked before. Raises ``NotSupported`` for a
    server that evicts queues, ``DurabilityUnmet`` for one that cannot keep the level.
    """
    # Who is refused already when connecting learns of it here; what follows may be refused.
    await _ask(driver, "PING")
    if not options.allow_eviction:
        policy = (await _info(driver, "memory")).get("maxmemory_policy", "")
        if policy.startswith("allkeys-"):
            raise NotSupported(
                f"the server's maxmemory-policy is {policy}: it deletes whole queues when its "
                "memory is full; set noeviction, or pass Options(allow_eviction=True)"
            )
    wanted = Durability.parse(options.durability)
    return await _fsync(driver, wanted) if wanted.fsync else wanted


async def _fsync(driver: Driver, wanted: Durability) -> Durability:
    """Return what to wait for so that messages are on disk: nothing if the server always syncs."""
    if (await _info(driver, "persistence")).get("aof_enabled") == "0":
        raise DurabilityUnmet(
            str(wanted), "memory", detail="the server's append-only file is off; set appendonly yes"
        )
    try:
        await _ask(driver, "WAITAOF", 0, 0, 1)
    except RSMQError:
        # Known from Redis 7.2 on. Before, only a server that syncs with every write will do.
        if await _setting(driver, "appendfsync") != "always":
            raise DurabilityUnmet(
                str(wanted),
                "memory",
                detail="the server has no WAITAOF (Redis 7.2 has), and appendfsync is not always",
            ) from None
        return replace(wanted, waits=False)
    return wanted


async def _setting(driver: Driver, name: str) -> str | None:
    try:
        reply = await _ask(driver, "CONFIG", "GET", name)
    except RSMQError:
        return None
    # A cluster's client has read the pairs already.
    values = list(reply.values()) if isinstance(reply, dict) else reply[1:]
    return _text(values[0]) if values else None


async def _info(driver: Driver, section: str) -> dict[str, str]:
    try:
        reply = await _ask(driver, "INFO", section)
    except RSMQError:
        return {}
    if isinstance(reply, dict):
        return {_text(name): str(value) for name, value in reply.items()}
    lines = _text(reply).splitlines() if isinstance(reply, bytes | str) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def _ask(driver: Driver, *words: str | int) -> Reply:
    try:
        return await driver.execute(Command(words))
    except ReplyLost as error:
        # What the caller is about to do has certainly not run.
        raise NotExecuted(str(error)) from error


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
