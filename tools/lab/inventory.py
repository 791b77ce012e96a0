"""What is there: the stored state of a queue, and the resources in use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from aiorsmq_ng._protocol.keys import QueueKeys
from aiorsmq_ng._runtime.queue_context import context_of
from aiorsmq_ng._transport.script_calls import RedisDriver
from aiorsmq_ng._transport.transport import Transport
from aiorsmq_ng.client import RSMQ
from aiorsmq_ng.errors import InvalidValue
from aiorsmq_ng.queue import Queue

_ATTRIBUTES = frozenset(
    ("vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified", "ng:incarnation")
)
_MARKS = (":rc", ":fr", ":meta")


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """One queue as it is stored."""

    #: Ids in the sorted set, with the epoch milliseconds at which they are visible.
    scores: dict[str, float] = field(default_factory=dict)
    #: Ids with a body.
    bodies: dict[str, bytes] = field(default_factory=dict)
    #: Fields such as ``<id>:rc`` and ``<id>:fr``.
    marks: frozenset[str] = frozenset()
    totalsent: int = 0
    totalrecv: int = 0

    @property
    def ids(self) -> frozenset[str]:
        """All ids that anything is stored of."""
        return frozenset(self.scores) | frozenset(self.bodies)

    @classmethod
    async def read(cls, driver: RedisDriver, keys: QueueKeys) -> Self:
        """Read the keys of a queue; one that does not exist is empty."""
        scored: Any = await driver.command("ZRANGE", keys.zset, 0, -1, "WITHSCORES", key=keys.zset)
        flat: Any = await driver.command("HGETALL", keys.hash, key=keys.hash)
        fields = {name.decode(): value for name, value in _pairs(flat)}
        marks = frozenset(name for name in fields if name.endswith(_MARKS))
        return cls(
            {id.decode(): float(score) for id, score in _pairs(scored)},
            {n: v for n, v in fields.items() if n not in marks | _ATTRIBUTES},
            marks,
            int(fields.get("totalsent", 0)),
            int(fields.get("totalrecv", 0)),
        )


@dataclass(frozen=True, slots=True)
class Inventory:
    """A queue and its dead letters as they are stored."""

    queue: StoredQueue = StoredQueue()
    dead: StoredQueue = StoredQueue()

    @classmethod
    async def read(cls, queue: Queue) -> Self:
        """Read everything, with two commands per queue. No client may use them meanwhile."""
        context = context_of(queue)
        driver = await redis_driver(context.transport)
        return cls(
            await StoredQueue.read(driver, context.keys),
            await StoredQueue.read(driver, context.keys.namespace.queue(queue.dead_letter)),
        )


@dataclass(frozen=True, slots=True)
class ResourceSnapshot:
    """Resources in use at one moment. Take one before and one after, both at rest."""

    #: Tasks of the event loop.
    tasks: int
    #: Memory of this process in bytes; ``None`` where the system does not tell.
    rss: int | None
    #: Connections of all clients to the server.
    connections: int

    @classmethod
    async def take(cls, rsmq: RSMQ) -> Self:
        """Count; *rsmq* is an open client, which is asked about the server's connections."""
        driver = await redis_driver(context_of(rsmq.queue("any")).transport)
        info: Any = await driver.command("INFO", "clients")
        fields = info if isinstance(info, dict) else _fields(info.decode().splitlines())
        return cls(len(asyncio.all_tasks()), _rss(), int(fields["connected_clients"]))

    def growth(self, before: ResourceSnapshot, *, memory: float = 0.05) -> list[str]:
        """Return what has grown since *before*; memory may grow by the given part."""
        grown = [
            f"{name}: {was}, now {now}"
            for name, was, now in (
                ("tasks", before.tasks, self.tasks),
                ("connections", before.connections, self.connections),
            )
            if now > was
        ]
        if self.rss and before.rss and self.rss > before.rss * (1 + memory):
            grown.append(f"memory: {before.rss} bytes, now {self.rss}")
        return grown


async def redis_driver(transport: Transport) -> RedisDriver:
    """Return the driver of a client that is connected to Redis itself."""
    driver = await transport.driver()
    if not hasattr(driver, "command"):
        raise InvalidValue("what is stored can be read from Redis only, not through a broker")
    return cast(RedisDriver, driver)


def _pairs(reply: Any) -> Iterable[tuple[bytes, Any]]:
    """Return what a server says in pairs; they are flat in RESP2 and not in RESP3."""
    if isinstance(reply, dict):
        return reply.items()
    if reply and isinstance(reply[0], list):
        return [(first, second) for first, second in reply]
    return zip(reply[::2], reply[1::2], strict=True)


def _fields(lines: Iterable[str]) -> dict[str, str]:
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _rss() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
