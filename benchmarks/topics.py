"""What a copy costs: publish to 1, 10 and 100 subscriptions, beside sends to as many queues.

One client, one server, both ways turn by turn, medians over the rounds. Wall time is what the
caller waits; server time is the processor time of the server's main thread.

    python benchmarks/topics.py [--rounds 15] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable

from pages import put, where
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ
from aiorsmq_ng.embedded import EmbeddedServer

SUBSCRIPTIONS = (1, 10, 100)
BATCHES = (1, 100)
BODY = "x" * 100
COPIES = 2000

Round = Callable[[], Awaitable[object]]


async def spent(admin: Redis, calls: int, run: Round) -> tuple[float, float]:
    """Return the microseconds that a call took, and that the server spent on it."""
    names = ("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
    before, began = await admin.info("cpu"), time.perf_counter()
    for _ in range(calls):
        await run()
    took, after = time.perf_counter() - began, await admin.info("cpu")
    server = sum(after[name] - before[name] for name in names)
    return took / calls * 1e6, server / calls * 1e6


async def measure(url: str, count: int, batch: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return wall and server time per copy of both ways."""
    bodies = [BODY] * batch
    calls = max(1, COPIES // (count * batch))
    found: dict[str, list[tuple[float, float]]] = {"publish": [], "send": []}
    async with RSMQ(url, ns="b") as rsmq, Redis.from_url(url) as admin:
        for turn in range(rounds + 1):
            await admin.flushdb()
            topic = rsmq.topic("t")
            for number in range(count):
                await topic.subscribe(f"s{number}")
            queues = [await rsmq.create_queue(f"q{number}") for number in range(count)]

            async def publish(topic=topic) -> None:
                await (topic.publish(BODY) if batch == 1 else topic.publish_many(bodies))

            async def send(queues=queues) -> None:
                if batch == 1:
                    await asyncio.gather(*(queue.send(BODY) for queue in queues))
                else:
                    await asyncio.gather(*(queue.send_many(bodies) for queue in queues))

            ways = [("publish", publish), ("send", send)]
            await publish()  # learns of the subscriptions
            for name, run in ways if turn % 2 else reversed(ways):
                times = await spent(admin, calls, run)
                if turn:  # the first round only warms up
                    found[name].append(times)
    copies = count * batch
    return {
        name: (
            statistics.median(wall for wall, _ in times) / copies,
            statistics.median(server for _, server in times) / copies,
        )
        for name, times in found.items()
    }


async def main(rounds: int, *, write: bool) -> None:
    """Measure all, print the table of the documentation, and put it there if that is wanted."""
    lines = [
        "| subscriptions | messages per call | publish | sends to as many queues | ratio |",
        "|---|---|---|---|---|",
    ]
    load = os.getloadavg()[0]
    with EmbeddedServer.ephemeral() as server:
        for count in SUBSCRIPTIONS:
            for batch in BATCHES:
                found = await measure(server.url, count, batch, rounds)
                (wall, busy), (other_wall, other_busy) = found["publish"], found["send"]
                lines.append(
                    f"| {count} | {batch} | {wall:.1f} ({busy:.1f}) "
                    f"| {other_wall:.1f} ({other_busy:.1f}) | {wall / other_wall:.2f} |"
                )
    lines += ["", f"Medians of {rounds} rounds. {where(load)}"]
    print("microseconds per copy, wall (server)", *lines, sep="\n")
    if write:
        put("reports/topics.md", "benchmarks/topics.py", lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/reports/topics.md"
    )
    given = parser.parse_args()
    asyncio.run(main(given.rounds, write=given.write))
