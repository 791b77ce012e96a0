"""What 100 idle consumers cost the server, and how soon a message reaches one of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiorsmq_ng import RSMQ, Queue
from aiorsmq_ng.testing import PrivateServer

from ..timing import percentile

TITLE = "Idle consumers and wake-ups"
CONSUMERS, SENDS = 100, 200
#: Consumers look less and less often; after so long they are at rest. A look is ten commands every
#: four seconds or so, hence one look more or less in the time they are watched must not matter: in
#: 40 s there are 9 or 10 of them, which was 2.85 or 3.1 commands per second.
SETTLE_S, WATCH_S = 15.0, 60.0


async def measure(seconds: float) -> dict[str, Any]:
    """Let consumers idle, then send messages one by one."""
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def consume(queue: Queue) -> None:
        async for message in queue:
            arrived.put_nowait(time.perf_counter())
            await message.ack()

    async with PrivateServer() as server, RSMQ(server.url) as idle, RSMQ(server.url) as sender:
        queue = await idle.create_queue("jobs")
        tasks = [asyncio.create_task(consume(queue)) for _ in range(CONSUMERS)]
        await asyncio.sleep(SETTLE_S)
        before = await _commands(server)
        await asyncio.sleep(WATCH_S)
        spent = await _commands(server) - before
        times = []
        for _ in range(SENDS):
            sent = time.perf_counter()
            await sender.queue("jobs").send("x")
            times.append(await arrived.get() - sent)
            await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "consumers": CONSUMERS,
        "commands_per_s": round(spent / WATCH_S, 2),
        "wake_p50_ms": percentile(times, 50),
        "wake_p99_ms": percentile(times, 99),
    }


async def _commands(server: PrivateServer) -> int:
    """Return how many commands were run, all connections together, but for this one's own."""
    lines = (await server.info("commandstats")).items()
    calls = {name: int(told.split("calls=")[1].split(",")[0]) for name, told in lines}
    own = ("cmdstat_info", "cmdstat_hello", "cmdstat_client", "cmdstat_ping")
    return sum(count for name, count in calls.items() if not name.startswith(own))


def markdown(result: dict[str, Any]) -> str:
    """Return the table."""
    return (
        "| idle consumers | commands/s, all together | send to delivery, p50 ms | p99 ms |\n"
        "|--:|--:|--:|--:|\n"
        f"| {result['consumers']} | {result['commands_per_s']:.2f} | {result['wake_p50_ms']:.2f} "
        f"| {result['wake_p99_ms']:.2f} |\n"
    )
