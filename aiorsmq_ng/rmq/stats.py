"""What queues and connections of rmq hold, as Go's CollectStats tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .._protocol.operations.rmq import messages, registry
from .._protocol.rmq_keys import RmqLayout
from .._transport.transport import Transport


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
class RmqStats:
    """A look at queues and connections; it is made of several calls, so it is no snapshot."""

    #: By name of the queue.
    queues: dict[str, RmqQueueStats]
    #: Connections that consume no queue, by name; true if alive.
    other_connections: dict[str, bool] = field(default_factory=dict)

    def as_go(self) -> dict[str, Any]:
        """Return what Go's statistics are as JSON: ready and rejected of each queue."""
        return {
            "queues": {
                name: {"ready": queue.ready, "rejected": queue.rejected}
                for name, queue in self.queues.items()
            }
        }


async def collect(transport: Transport, layout: RmqLayout, names: Sequence[str]) -> RmqStats:
    """Read what the queues *names* hold, and which connections consume them."""
    run = transport.run
    lengths = await asyncio.gather(*(run(messages.lengths(layout.queue(n))) for n in names))
    found: dict[str, dict[str, RmqConnectionStats]] = {name: {} for name in names}
    others: dict[str, bool] = {}

    async def look(connection: str) -> None:
        active = await run(registry.alive(layout.heartbeat(connection)))
        consumed = await run(registry.members(layout.consumed(connection)))
        if not consumed:
            others[connection] = active
        for queue in consumed:
            held = await run(messages.unacked(layout.queue(queue), connection))
            found.setdefault(queue, {})[connection] = RmqConnectionStats(
                active, held.length, tuple(held.consumers)
            )

    connections = await run(registry.members(layout.connections))
    await asyncio.gather(*map(look, connections))
    return RmqStats(
        {
            name: RmqQueueStats(*length, dict(sorted(found[name].items())))
            for name, length in zip(names, lengths, strict=True)
        },
        dict(sorted(others.items())),
    )
