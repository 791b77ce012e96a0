"""Compare sending with the way aiorsmq sends, in one run on one server.

aiorsmq's way is two round trips per send on redis-py's pool: read the queue's attributes and the
time, then store id, body and counter in a transaction. It is written out here against redis-py 8,
because the package itself cannot be imported on a current Python. Contenders take turns round by
round; the figures are medians over the rounds.

    python benchmarks/send_rate.py [--url URL] [--rounds 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import string
import sys
import time
import uuid
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from aiorsmq_ng import RSMQ
from aiorsmq_ng.embedded import EmbeddedServer

BODY = "x" * 100
Send = Callable[[], Awaitable[object]]


def two_trips(redis: Redis, ns: str) -> Send:
    """Return a send as aiorsmq makes it."""
    alphabet = string.ascii_letters + string.digits

    async def send() -> str:
        async with redis.pipeline(transaction=True) as pipe:
            pipe.hmget(f"{ns}:jobs:Q", "vt", "delay", "maxsize")
            pipe.time()
            attributes, (seconds, micros) = await pipe.execute()
        if len(BODY.encode()) > int(attributes[2]):
            raise ValueError("too long")
        id = _base36(seconds * 1_000_000 + micros) + "".join(random.choices(alphabet, k=22))
        score = seconds * 1000 + micros // 1000 + int(attributes[1]) * 1000
        async with redis.pipeline(transaction=True) as pipe:
            pipe.zadd(f"{ns}:jobs", {id: score})
            pipe.hset(f"{ns}:jobs:Q", id, BODY)
            pipe.hincrby(f"{ns}:jobs:Q", "totalsent", 1)
            await pipe.execute()
        return id

    return send


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = (string.digits + string.ascii_lowercase)[digit] + digits
    return digits


async def rate(send: Send, tasks: int, each: int) -> float:
    """Return sends per second of *tasks* tasks that send one after the other."""

    async def work() -> None:
        for _ in range(each):
            await send()

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(tasks)))
    return tasks * each / (time.perf_counter() - started)


async def compare(url: str, rounds: int) -> dict[str, dict[str, float]]:
    """Run all contenders in turn and return their medians."""
    ns = f"bench{uuid.uuid4().hex[:8]}"
    redis = Redis.from_url(url, decode_responses=True)
    async with RSMQ(url, ns=ns) as rsmq:
        queue = await rsmq.create_queue("jobs", maxsize=-1)
        await queue.set_attributes(maxsize=65536)
        contenders: dict[str, Send] = {
            "aiorsmq's way": two_trips(redis, ns),
            "aiorsmq-ng": lambda: queue.send(BODY),
        }
        results: dict[str, dict[int, list[float]]] = {name: {1: [], 64: []} for name in contenders}
        for turn in range(rounds + 1):
            for name, send in contenders.items():
                for tasks, each in ((1, 500), (64, 60 if name == "aiorsmq's way" else 300)):
                    reached = await rate(send, tasks, each)
                    if turn:  # the first turn warms up connections and scripts
                        results[name][tasks].append(reached)
                    await queue.purge(leased=True)
            print(f"round {turn}/{rounds}", file=sys.stderr, end="\r")
        await rsmq.delete_queue("jobs")
    await redis.aclose()
    return {
        name: {f"{tasks} tasks": statistics.median(reached) for tasks, reached in by_tasks.items()}
        for name, by_tasks in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--url", help="server to use (default: an embedded one of its own)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="also write the medians to this file")
    options = parser.parse_args()
    if options.url:
        medians = asyncio.run(compare(options.url, options.rounds))
    else:
        with EmbeddedServer.ephemeral() as server:
            medians = asyncio.run(compare(server.url, options.rounds))
    theirs, ours = medians["aiorsmq's way"], medians["aiorsmq-ng"]
    print("sends/s (median)       aiorsmq's way    aiorsmq-ng   ratio")
    for tasks in ours:
        ratio = ours[tasks] / theirs[tasks]
        print(f"{tasks:<20}{theirs[tasks]:>16,.0f}{ours[tasks]:>14,.0f}{ratio:>7.1f}x")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(medians, file, indent=2)


if __name__ == "__main__":
    main()
