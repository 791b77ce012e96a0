"""What more safety costs: a key against second copies, replicas, the disk."""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from typing import Any

from aiorsmq_ng import RSMQ, Options, Queue
from aiorsmq_ng.testing import PrivateServer

from ..table import grouped
from ..timing import percentile, rate

TITLE = "Safety"
ROUNDS = 3
#: Server -> what is asked of it. Lines of one server are compared with its first.
SERVERS = {
    "no persistence": ("memory", "memory, dedup_key"),
    "one replica": ("memory", "replicated:1"),
    "append-only file, everysec": ("memory", "fsynced"),
    "append-only file, always": ("memory", "fsynced"),
}


async def measure(seconds: float) -> dict[str, Any]:
    """Send by one task and by 64, under every level, round by round."""
    turns: dict[tuple[str, str], list[dict[str, float]]] = {}
    async with AsyncExitStack() as stack:
        queues = {}
        for name, levels in SERVERS.items():
            server = await _start(stack, name)
            for level in levels:
                options = Options(durability=level.split(",")[0])
                rsmq = await stack.enter_async_context(RSMQ(server.url, options=options))
                queues[name, level] = await rsmq.create_queue("jobs", exist_ok=True)
        for number in range(ROUNDS + 1):
            for (name, level), queue in queues.items():
                turn = await _turn(queue, "dedup_key" in level, seconds if number else seconds / 4)
                if number:
                    turns.setdefault((name, level), []).append(turn)
                await queue.purge(leased=True)
    return {
        "rows": [
            {"server": name, "level": level}
            | {column: statistics.median(turn[column] for turn in made) for column in made[0]}
            for (name, level), made in turns.items()
        ]
    }


async def _start(stack: AsyncExitStack, name: str) -> PrivateServer:
    persistence = name.rpartition(", ")[2] if name.startswith("append") else "none"
    server = PrivateServer(persistence=persistence)  # type: ignore[arg-type]
    await stack.enter_async_context(server)
    if name == "one replica":
        replica = await server.replica()
        stack.push_async_callback(replica.aclose)
    return server


async def _turn(queue: Queue, keyed: bool, seconds: float) -> dict[str, float]:
    number = 0

    async def send(_: int) -> None:
        nonlocal number
        number += 1
        await queue.send("x" * 100, dedup_key=f"{id(queue)}-{number}" if keyed else None)

    one, times = await rate(send, 1, seconds)
    many, _ = await rate(send, 64, seconds)
    return {
        "send1": round(one, 1),
        "send1_p50_ms": percentile(times, 50) or 0,
        "send64": round(many),
    }


def markdown(result: dict[str, Any]) -> str:
    """Return the table."""
    lines = [
        "| server | asked for | one sender, messages/s | p50 ms | 64 senders, messages/s | share |",
        "|---|---|--:|--:|--:|--:|",
    ]
    first: dict[str, float] = {}
    for row in result["rows"]:
        base = first.setdefault(row["server"], row["send64"])
        lines.append(
            f"| {row['server']} | {row['level']} | {grouped(row['send1'])} "
            f"| {row['send1_p50_ms']:.2f} | {grouped(row['send64'])} | {row['send64'] / base:.2f} |"
        )
    return "\n".join(lines) + "\n"
