"""The same 64 tasks on ever more queues: what is not shared between queues shows here."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from aiorsmq_ng import RSMQ, Queue
from aiorsmq_ng.testing import PrivateServer

from ..table import grouped
from ..timing import rate, server_cpu

TITLE = "Number of queues"
COUNTS = (1, 10, 100, 1000)
TASKS, ROUNDS = 64, 5


async def measure(seconds: float) -> dict[str, Any]:
    """Send to the queues in turn by 64 tasks, then receive and acknowledge."""
    turns: dict[int, list[dict[str, float]]] = {count: [] for count in COUNTS}
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        queues = await asyncio.gather(
            *(rsmq.create_queue(f"jobs{number}") for number in range(max(COUNTS)))
        )
        for number in range(ROUNDS + 1):
            for count in COUNTS:
                turn = await _turn(server, queues[:count], seconds if number else seconds / 4)
                if number:
                    turns[count].append(turn)
    return {
        "rows": [
            {"queues": count}
            | {column: statistics.median(turn[column] for turn in made) for column in made[0]}
            for count, made in turns.items()
        ]
    }


async def _turn(server: PrivateServer, queues: list[Queue], seconds: float) -> dict[str, float]:
    async def send(number: int) -> None:
        await queues[number % len(queues)].send("x" * 100)

    async def take(number: int) -> None:
        if message := await queues[number % len(queues)].receive():
            await message.ack()

    before = await server_cpu(server)
    sends, times = await rate(send, TASKS, seconds)
    spent = await server_cpu(server) - before
    sent, left = len(times), 0
    began = asyncio.get_running_loop().time()

    async def work() -> None:
        nonlocal left
        while left < sent:
            number, left = left, left + 1
            await take(number)

    await asyncio.gather(*(work() for _ in range(TASKS)))
    took = asyncio.get_running_loop().time() - began
    return {
        "send_rate": round(sends),
        "send_server_us": round(spent / sent * 1e6, 1),
        "take_rate": round(sent / took),
    }


def markdown(result: dict[str, Any]) -> str:
    """Return the table."""
    lines = [
        "| queues | sends/s, 64 tasks | server us per send | received and acknowledged/s |",
        "|--:|--:|--:|--:|",
    ]
    for row in result["rows"]:
        cells = (row["queues"], row["send_rate"], row["send_server_us"], row["take_rate"])
        lines.append("| " + " | ".join(map(grouped, cells)) + " |")
    return "\n".join(lines) + "\n"
