"""What 100 idle consumers cost Redis, and how soon a message reaches one of them.

Consumers and sender are clients of their own. Commands are counted by the server itself
(``total_commands_processed``), the counting commands subtracted.

    python benchmarks/idle_and_wake.py [--url URL] [--settle 30] [--watch 30] [--messages 200]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import uuid

from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.embedded import EmbeddedServer


async def measure(url: str, settle_s: float, watch_s: float, messages: int) -> None:
    ns = f"bench{uuid.uuid4().hex[:8]}"
    arrived: asyncio.Queue[float] = asyncio.Queue()
    probe = Redis.from_url(url)

    async def commands() -> int:
        return int((await probe.info("stats"))["total_commands_processed"])

    async with RSMQ(url, ns=ns) as consumers, RSMQ(url, ns=ns) as sender:
        queue = await consumers.create_queue("jobs")

        async def consume() -> None:
            async for message in queue:
                arrived.put_nowait(time.perf_counter())
                await message.ack()

        tasks = [asyncio.create_task(consume()) for _ in range(100)]
        await asyncio.sleep(settle_s)
        before = await commands()
        await asyncio.sleep(watch_s)
        spent = await commands() - before - 1
        print(f"100 idle consumers: {spent / watch_s:.2f} commands/s in all, over {watch_s:g} s")

        latencies = []
        for _ in range(messages):
            sent = time.perf_counter()
            await sender.queue("jobs").send("x")
            latencies.append((await arrived.get() - sent) * 1000)
            await asyncio.sleep(0.05)
        latencies.sort()
        print(
            f"send to delivery, {messages} messages: median {statistics.median(latencies):.2f} ms, "
            f"p99 {latencies[int(len(latencies) * 0.99)]:.2f} ms"
        )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await consumers.delete_queue("jobs")
        await prefetched(url, ns)
    await probe.aclose()


async def prefetched(url: str, ns: str, rounds: int = 7) -> None:
    """Time 50 messages with prefetch 10; a client that sleeps between fetches takes seconds."""
    taken = []
    async with RSMQ(url, ns=ns, options=Options(poll_cap=1.0)) as rsmq:
        queue = await rsmq.create_queue("fifty")
        for _ in range(rounds):
            await queue.send_many(["x"] * 50)
            started, seen = time.perf_counter(), 0
            async with queue.consume(prefetch=10) as consumer:
                async for message in consumer:
                    await message.ack()
                    seen += 1
                    if seen == 50:
                        break
            taken.append(time.perf_counter() - started)
        await rsmq.delete_queue("fifty")
    print(f"50 messages, prefetch 10, poll cap 1 s: median {statistics.median(taken):.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--url", help="server to use (default: an embedded one of its own)")
    parser.add_argument("--settle", type=float, default=30)
    parser.add_argument("--watch", type=float, default=30)
    parser.add_argument("--messages", type=int, default=200)
    options = parser.parse_args()
    wishes = (options.settle, options.watch, options.messages)
    if options.url:
        asyncio.run(measure(options.url, *wishes))
    else:
        with EmbeddedServer.ephemeral() as server:
            asyncio.run(measure(server.url, *wishes))


if __name__ == "__main__":
    main()
