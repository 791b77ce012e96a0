"""Ours beside Go's rmq on the same queues, in one run: ``python -m benchmarks.rmq [--write]``.

Publishing by 64 tasks (Go: goroutines) that each wait for their one message, and by one that
publishes 64 a call; consuming with a prefetch of 1000 by ten consumers that ack one by one, waiting
for each ack or not, and by batches. Turns alternate (A B B A); the medians and their ratio are
printed. ``--write`` keeps them in docs/reports/rmq.json, and puts the table of docs/guides/rmq.md
there. Needs Go.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import textwrap
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

from redis.asyncio import Redis

from aiorsmq_ng.rmq import Rmq, RmqConsumer, RmqDelivery
from aiorsmq_ng.testing import PrivateServer
from tests.rmq.go_program import build, go_program

from .pages import DOCS, put

#: What was measured, kept.
KEPT = DOCS / "reports" / "rmq.json"
BY, SIZE, CONSUMERS, PREFETCH, BATCH = 64, 100, 10, 1000, 100
Turn = Callable[[int], Awaitable[float]]


class Arena:
    """A server, and one turn of each contender on it."""

    def __init__(self, url: str, port: int) -> None:
        self._url = url
        self._address = f"127.0.0.1:{port}"
        self._program = build()

    async def _empty(self, messages: int = 0) -> None:
        async with Redis.from_url(self._url) as redis:
            await redis.flushall()
            for _ in range(0, messages, 1000):
                await redis.lpush("rmq::queue::[bench]::ready", *["x" * SIZE] * 1000)

    async def go_publish(self, messages: int, workers: int = 1, by: int = 1) -> float:
        """Return the seconds that Go takes to publish by *workers*, *by* messages a call."""
        await self._empty()
        async with go_program(self._program, "go", "server", [self._address]) as go:
            words = {"count": messages, "workers": workers, "by": by, "size": SIZE}
            return float(await go.ask("bench_publish", "bench", **words))

    async def go_consume(self, messages: int, poll_ms: int = 10, batch: int = 0) -> float:
        """Return the seconds that Go takes to consume; by batches, one consumer does."""
        await self._empty(messages)
        async with go_program(self._program, "go", "server", [self._address]) as go:
            words = {"count": messages, "size": PREFETCH, "poll_ms": poll_ms, "wait_ms": 50}
            workers = 1 if batch else CONSUMERS
            words |= {"by": batch, "workers": workers}
            return float(await go.ask("bench_consume", "bench", **words))

    async def our_batches(self, messages: int) -> float:
        """Return the seconds that we take to consume by batches."""
        await self._empty(messages)
        async with Rmq(self._url) as rmq:
            queue, left = await rmq.queue("bench"), messages
            began = time.perf_counter()
            batches = queue.consume_batches(size=BATCH, wait=0.05, prefetch=PREFETCH)
            async with batches:
                while left:
                    batch = await anext(batches)
                    await batch.ack()
                    left -= len(batch)
            return time.perf_counter() - began

    async def our_publish(self, messages: int, workers: int = 1, by: int = 1) -> float:
        """Return the seconds that we take to publish by *workers*, *by* messages a call."""
        await self._empty()
        async with Rmq(self._url) as rmq:
            queue, bodies = await rmq.queue("bench"), ["x" * SIZE] * by

            async def publish() -> None:
                for _ in range(messages // workers // by):
                    await queue.publish(*bodies)

            began = time.perf_counter()
            await asyncio.gather(*(publish() for _ in range(workers)))
            return time.perf_counter() - began

    async def our_consume(
        self, messages: int, settle: Literal["await", "background"] = "await"
    ) -> float:
        """Return the seconds until all are handled, each in a block, and all acks are answered."""
        await self._empty(messages)
        async with Rmq(self._url) as rmq:
            queue, left = await rmq.queue("bench"), messages
            done = asyncio.Event()

            async def consume(consumer: RmqConsumer[RmqDelivery]) -> None:
                nonlocal left
                async for delivery in consumer:
                    async with delivery:
                        pass
                    left -= 1
                    if not left:
                        done.set()

            began = time.perf_counter()
            async with queue.consume(prefetch=PREFETCH, settle=settle) as consumer:
                tasks = [asyncio.create_task(consume(consumer)) for _ in range(CONSUMERS)]
                await done.wait()
                await consumer.aclose()
                seconds = time.perf_counter() - began
                await asyncio.gather(*tasks)
            return seconds


async def compare(
    name: str, ours: Turn, go: Turn, messages: int, rounds: int, goal: float | None = None
) -> dict[str, Any]:
    """Play turns in the order A B B A; return the rates of the medians, and all ratios."""
    seconds: dict[Turn, list[float]] = {ours: [], go: []}
    for n in range(rounds):
        for turn in (ours, go) if n % 2 else (go, ours):
            seconds[turn].append(await turn(messages))
    rates = {turn: messages / statistics.median(taken) for turn, taken in seconds.items()}
    ratios = sorted(b / a for a, b in zip(seconds[ours], seconds[go], strict=True))
    found = {
        "workload": name,
        "goal": goal,
        "ours": round(rates[ours]),
        "go": round(rates[go]),
        "ratio": round(rates[ours] / rates[go], 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
    }
    print(row(found), flush=True)
    return found


HEAD = [
    "| workload | goal | ours to Go's rmq | ratios of the rounds | ours, msg/s | Go's, msg/s |",
    "|---|---|---|---|---|---|",
]


def row(found: dict[str, Any]) -> str:
    """Return a line of the table."""
    ratios, goal = found["ratios"], found["goal"]
    return (
        f"| {found['workload']} | {f'{goal:.1f}' if goal else ''} | {found['ratio']:.2f} "
        f"| {ratios[0]:.2f} to {ratios[-1]:.2f} | {found['ours']:,} | {found['go']:,} |"
    )


def lines(kept: dict[str, Any]) -> list[str]:
    """Return what the guide says of a run that was kept."""
    where = (
        f"Measured on {kept['date']} with {kept['processors']} processors, Python "
        f"{kept['python']} and {kept['server']}, and a load of {kept['load']:.1f} when it began: "
        f"{kept['messages']:,} bodies of {SIZE} bytes a turn, {kept['rounds']} turns of each, "
        f"prefetch {PREFETCH}."
    )
    return [
        *textwrap.wrap(where, 120),
        "",
        *HEAD,
        *map(row, kept["workloads"]),
    ]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=64_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--write", action="store_true", help="keep what was measured in the docs")
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load before: {load:.1f} on {os.cpu_count()} processors\n")
    print("\n".join(HEAD))
    found: list[dict[str, Any]] = []
    async with PrivateServer() as server:
        arena, messages, rounds = Arena(server.url, server.port), chosen.messages, chosen.rounds
        async with Redis.from_url(server.url) as redis:
            info = await redis.info("server")
        for words, name, goal in (
            ({"workers": BY}, f"publish by {BY} tasks, 1 message a call", 1.0),
            ({"by": BY}, f"publish by 1 task, {BY} messages a call", None),
        ):
            ours, go = partial(arena.our_publish, **words), partial(arena.go_publish, **words)
            found.append(await compare(name, ours, go, messages, rounds, goal))
        settles: tuple[Literal["await", "background"], ...] = ("await", "background")
        for settle in settles:
            for poll_ms in (10, 100):
                waits = f'settle="{settle}"'
                name = f"{CONSUMERS} consumers, {waits}; Go polls every {poll_ms} ms"
                ours = partial(arena.our_consume, settle=settle)
                go = partial(arena.go_consume, poll_ms=poll_ms)
                found.append(await compare(name, ours, go, messages, rounds, 2.0))
        go = partial(arena.go_consume, batch=BATCH)
        name = f"consume by batches of {BATCH}; Go polls every 10 ms"
        found.append(await compare(name, arena.our_batches, go, messages, rounds, 2.0))
    if chosen.write:
        version = info.get("valkey_version") or info["redis_version"]
        kept = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "load": round(load, 1),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
            "server": f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version}",
            "messages": chosen.messages,
            "rounds": chosen.rounds,
            "workloads": found,
        }
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        put("guides/rmq.md", "benchmarks/rmq.py", lines(kept))


if __name__ == "__main__":
    asyncio.run(main())
