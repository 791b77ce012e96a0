"""How operations behave with many messages waiting: queues of several depths, taking turns."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from typing import Any

from aiorsmq_ng import RSMQ, Queue
from aiorsmq_ng.testing import PrivateServer

from ..table import grouped
from ..timing import percentile, server_cpu

TITLE = "Growth"
DEPTHS = (1, 1_000, 100_000, 1_000_000, 5_000_000)
ROUNDS, CYCLES = 9, 300
OPERATIONS = ("send", "receive", "ack")
#: A waiting message with a body of 100 bytes takes less than this on the server.
MESSAGE_BYTES = 500
#: A queue that would take longer to fill is left out.
FILL_LIMIT_S = 180


async def measure(seconds: float) -> dict[str, Any]:
    """Fill the queues, then send, receive and acknowledge in each, round by round."""
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        rows, left_out = await _fill_all(server, rsmq)
        depths = list(rows)
        turns: dict[int, list[dict[str, float]]] = {depth: [] for depth in depths}
        for number in range(ROUNDS + 1):
            for depth in depths[number % len(depths) :] + depths[: number % len(depths)]:
                queue = rsmq.queue(f"depth{depth}")
                turn = await _turn(server, queue, CYCLES if number else CYCLES // 10)
                if number:  # the first round only warms up
                    turns[depth].append(turn)
        for depth, made in turns.items():
            for column in made[0]:
                rows[depth][column] = statistics.median(turn[column] for turn in made)
            began = time.perf_counter()
            await rsmq.queue(f"depth{depth}").attributes()
            rows[depth]["attributes_ms"] = round((time.perf_counter() - began) * 1000, 3)
    return {"rows": list(rows.values()), "left_out": left_out}


async def _fill_all(
    server: PrivateServer, rsmq: RSMQ
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """Fill a queue for every depth; return what each message takes, and what was left out."""
    rows: dict[int, dict[str, Any]] = {}
    left_out: dict[int, str] = {}
    per_s = 0.0
    for depth in DEPTHS:
        if depth * MESSAGE_BYTES > _free_bytes() // 2:
            left_out[depth] = "not enough memory"
        elif depth > 100_000 and depth / per_s > FILL_LIMIT_S:
            left_out[depth] = f"filling would take {depth / per_s:.0f} s"
        else:
            queue = await rsmq.create_queue(f"depth{depth}")
            before = await _memory(server)
            per_s = depth / await _fill(queue, depth)
            size = (await _memory(server) - before) / depth
            rows[depth] = {"depth": depth, "bytes_per_message": round(size)}
    return rows, left_out


async def _fill(queue: Queue, depth: int) -> float:
    left, batch = depth, 1000
    began = time.perf_counter()

    async def work() -> None:
        nonlocal left
        while left > 0:
            count = min(batch, left)
            left -= count
            await queue.send_many(["x" * 100] * count)

    await asyncio.gather(*(work() for _ in range(4)))
    return time.perf_counter() - began


async def _turn(server: PrivateServer, queue: Queue, cycles: int) -> dict[str, float]:
    """Return one turn: times of single calls, and what a cycle costs the server."""
    times: dict[str, list[float]] = {name: [] for name in OPERATIONS}
    clock, before = time.perf_counter, await server_cpu(server)
    for _ in range(cycles):
        start = clock()
        await queue.send("x" * 100)
        sent = clock()
        message = await queue.receive()
        received = clock()
        assert message is not None
        await message.ack()
        done = clock()
        for name, took in zip(
            OPERATIONS, (sent - start, received - sent, done - received), strict=True
        ):
            times[name].append(took)
    spent = await server_cpu(server) - before
    columns = {"server_us_per_cycle": round(spent / cycles * 1e6, 1)}
    for name in OPERATIONS:
        columns[f"{name}_p50_ms"] = percentile(times[name], 50) or 0.0
        columns[f"{name}_p99_ms"] = percentile(times[name], 99) or 0.0
    return columns


async def _memory(server: PrivateServer) -> int:
    return int((await server.info("memory"))["used_memory"])


def _free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def markdown(result: dict[str, Any]) -> str:
    """Return the table."""
    heads = ("waiting", "bytes each", "server us, a cycle", "send p50 / p99 ms")
    heads += ("receive p50 / p99 ms", "ack p50 / p99 ms", "attributes ms")
    lines = ["| " + " | ".join(heads) + " |", "|--:" * len(heads) + "|"]
    for row in result["rows"]:
        cells = [
            grouped(row["depth"]),
            str(row["bytes_per_message"]) if row["depth"] > 1 else "",
            f"{row['server_us_per_cycle']:.0f}",
            *(f"{row[f'{name}_p50_ms']:.2f} / {row[f'{name}_p99_ms']:.2f}" for name in OPERATIONS),
            f"{row['attributes_ms']:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    for depth, why in result["left_out"].items():
        lines += ["", f"Left out: {grouped(int(depth))} waiting messages ({why})."]
    return "\n".join(lines) + "\n"
