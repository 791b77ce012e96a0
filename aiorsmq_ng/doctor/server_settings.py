"""Facts about the server and its settings, and findings about them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .._protocol.keys import Namespace
from .._protocol.operations import doctor
from .._transport.driver import NotExecuted, ReplyLost
from .._transport.transport import Transport
from ..errors import RSMQError
from ..models import Finding, ServerFacts
from .finding_texts import finding

#: A clock that is off by more than this is reported.
CLOCK_MS = 1000
_FULL = 0.9
_CONFIG_S = 2.0
#: Reply of memory:// to INFO: it has no settings. A Redis server without INFO says it otherwise.
_NOT_KNOWN = "ERR unknown command"


async def examine(transport: Transport, namespace: Namespace) -> tuple[ServerFacts, list[Finding]]:
    """Query the server; facts that it does not disclose are ``None``."""
    before = time.time()
    reply = await transport.run(doctor.server(namespace))
    after = time.time()
    info = reply.info
    facts = ServerFacts(
        engine=_engine(info),
        version=info.get("valkey_version") or info.get("redis_version"),
        eviction_policy=info.get("maxmemory_policy"),
        maxmemory=_whole(info, "maxmemory"),
        used_memory=_whole(info, "used_memory"),
        aof=_flag(info, "aof_enabled"),
        appendfsync=await _setting(transport, "appendfsync"),
        snapshots=await _setting(transport, "save"),
        replicas=_whole(info, "connected_slaves"),
        cluster=_flag(info, "cluster_enabled"),
        clock_offset=round(reply.now_ms / 1000 - (before + after) / 2, 6),
    )
    doubt_ms = (after - before) * 500
    found = [*_clock(facts, doubt_ms), *_memory(facts), *_persistence(facts), *_gaps(facts)]
    if reply.refused and not reply.refused.startswith(_NOT_KNOWN):
        found.append(finding("facts_refused", what=reply.refused))
    return facts, found


def _clock(facts: ServerFacts, doubt_ms: float) -> list[Finding]:
    offset_ms = (facts.clock_offset or 0) * 1000
    if abs(offset_ms) <= CLOCK_MS + doubt_ms:
        return []
    side = "ahead of" if offset_ms > 0 else "behind"
    return [finding("clock_offset", what=f"{abs(offset_ms) / 1000:.1f} s {side}")]


def _memory(facts: ServerFacts) -> list[Finding]:
    found = []
    policy, limit, used = facts.eviction_policy or "", facts.maxmemory, facts.used_memory
    if policy.startswith("allkeys-"):
        found.append(finding("eviction", what=policy))
    elif policy.startswith("volatile-"):
        found.append(finding("volatile_eviction", what=policy))
    if limit == 0:
        found.append(finding("no_maxmemory"))
    elif limit and used is not None and used > _FULL * limit:
        found.append(finding("memory_low", what=f"{100 * used / limit:.0f} %"))
    return found


def _persistence(facts: ServerFacts) -> list[Finding]:
    if facts.aof:
        return {
            "everysec": [finding("fsync", what="once a second, so a crash may lose the last one")],
            "no": [finding("fsync", what="by the operating system, so a crash may lose much")],
        }.get(facts.appendfsync or "", [])
    if facts.aof is None:
        return []
    if facts.snapshots:
        return [finding("no_persistence", what="snapshots only: a crash loses what came after")]
    if facts.snapshots is None:
        return [finding("no_persistence", what="no append-only file: a crash loses messages")]
    return [finding("no_persistence", what="nothing on disk: a restart loses all messages")]


def _gaps(facts: ServerFacts) -> list[Finding]:
    unknown = [
        words
        for words, value in (
            ("its eviction policy and memory", facts.eviction_policy),
            ("whether it keeps an append-only file", facts.aof),
            ("how it syncs to disk", facts.appendfsync),
        )
        if value is None
    ]
    return [finding("facts_unknown", what=", ".join(unknown))] if unknown else []


async def _setting(transport: Transport, name: str) -> str | None:
    """Return one setting, or ``None`` if the server refuses to disclose it."""
    try:
        async with asyncio.timeout(_CONFIG_S):
            return await (await transport.driver()).setting(name)
    except (RSMQError, NotExecuted, ReplyLost, TimeoutError):
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _engine(info: dict[str, str]) -> str | None:
    if "valkey_version" in info:
        return "valkey"
    return "redis" if "redis_version" in info else None


def _whole(info: dict[str, str], name: str) -> int | None:
    value = info.get(name, "")
    return int(value) if value.isdecimal() else None


def _flag(info: dict[str, str], name: str) -> bool | None:
    return info[name] == "1" if name in info else None
