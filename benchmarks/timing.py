"""Clocks and percentiles that every measurement uses."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from aiorsmq_ng.testing import PrivateServer


def percentile(times: Sequence[float], percent: int) -> float | None:
    """Return a percentile of *times* (seconds) in milliseconds."""
    if not times:
        return None
    return round(sorted(times)[-(-len(times) * percent // 100) - 1] * 1000, 4)


async def server_cpu(server: PrivateServer) -> float:
    """Return the seconds of processor time that a server has used."""
    found = await server.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def machine_cpu() -> float:
    """Return the seconds that all processors together were busy, where the system tells."""
    with suppress(OSError):
        user, nice, system, _idle, _wait, *interrupts = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
        )
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    return 0.0


async def rate(
    call: Callable[[int], Awaitable[object]], tasks: int, seconds: float
) -> tuple[float, list[float]]:
    """Let tasks make calls for so long; return calls per second and how long each took.

    The calls are counted from 0, and *call* is given the number.
    """
    clock = time.perf_counter
    times: list[float] = []
    made = 0
    began = clock()
    until = began + seconds

    async def work() -> None:
        nonlocal made
        while clock() < until:
            number, made = made, made + 1
            start = clock()
            await call(number)
            times.append(clock() - start)

    await asyncio.gather(*(work() for _ in range(tasks)))
    return len(times) / (clock() - began), times
