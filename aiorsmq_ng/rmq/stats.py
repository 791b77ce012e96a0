"""What queues and connections of rmq hold, as Go's CollectStats tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .._protocol.operation import Operation
from .._protocol.operations.rmq import messages, registry
from .._protocol.rmq_keys import FOREIGN, RmqLayout
from .._transport.transport import Transport

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RmqConnectionStats:
    """What one connection holds of one queue."""

    #: True while its heartbeat is there; what a dead one holds waits for a cleaner.
    active: bool
    #: Deliveries that it has taken and not settled.
    unacked: int = 0
    #: Names of its consumers.
    consumers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RmqQueueStats:
    """What one queue holds, and the connections that consume it."""

    #: Payloads that wait.
    ready: int
    #: Payloads that were rejected.
    rejected: int
    #: The connections that consume it, by name.
    connections: dict[str, RmqConnectionStats] = field(default_factory=dict)

    @property
    def unacked(self) -> int:
        """Deliveries in the hands of all connections."""
        return sum(connection.unacked for connection in self.connections.values())

    @property
    def consumers(self) -> int:
        """Consumers of all connections."""
        return sum(len(connection.consumers) for connection in self.connections.values())


@dataclass(frozen=True, slots=True)
class RmqDamage:
    """A key that is not of rmq's layout, so that something is missing in the statistics."""

    #: Why it could not be read, as a sentence that names the key or the queue.
    reason: str
    #: The queue that is damaged; ``None`` if a set of names is.
    queue: str | None = None
    #: The connection that is damaged; ``None`` if all are concerned, or none.
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class RmqStats:
    """A look at queues and connections; it is made of several calls, so it is no snapshot."""

    #: By name of the queue.
    queues: dict[str, RmqQueueStats]
    #: Connections that consume no queue, by name; true if alive.
    other_connections: dict[str, bool] = field(default_factory=dict)
    #: What is left out because keys are not of rmq's layout; empty if all is well.
    damaged: tuple[RmqDamage, ...] = ()

    def as_go(self) -> dict[str, Any]:
        """Return what Go's statistics are as JSON: ready and rejected of each queue."""
        return {
            "queues": {
                name: {"ready": queue.ready, "rejected": queue.rejected}
                for name, queue in self.queues.items()
            }
        }


async def collect(transport: Transport, layout: RmqLayout, names: Sequence[str] | None) -> RmqStats:
    """Read what the queues *names*, or all, hold, and which connections consume them.

    What foreign data hides is left out and named.
    """
    damaged: list[RmqDamage] = []

    async def read(
        operation: Operation[R], queue: str | None = None, connection: str | None = None
    ) -> R | None:
        try:
            return await transport.run(operation)
        except FOREIGN as error:
            damaged.append(RmqDamage(str(error), queue, connection))
            return None

    if names is None:
        names = await read(registry.members(layout.queues)) or []
    counts = [messages.lengths(layout.queue(name)) for name in names]
    lengths = await asyncio.gather(*map(read, counts, names))
    found: dict[str, dict[str, RmqConnectionStats]] = {name: {} for name in names}
    others: dict[str, bool] = {}

    async def look(name: str) -> None:
        active = await transport.run(registry.alive(layout.heartbeat(name)))
        consumed = await read(registry.members(layout.consumed(name)), connection=name)
        if consumed == []:
            others[name] = active
        for queue in consumed or ():
            held = await read(messages.unacked(layout.queue(queue), name), queue, name)
            if held is not None:
                found.setdefault(queue, {})[name] = RmqConnectionStats(
                    active, held.length, tuple(held.consumers)
                )

    connections = await read(registry.members(layout.connections)) or []
    await asyncio.gather(*map(look, connections))
    return RmqStats(
        {
            name: RmqQueueStats(*length, dict(sorted(found[name].items())))
            for name, length in zip(names, lengths, strict=True)
            if length is not None
        },
        dict(sorted(others.items())),
        tuple(sorted(damaged, key=lambda damage: (damage.queue or "", damage.connection or ""))),
    )
