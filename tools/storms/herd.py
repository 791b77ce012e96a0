"""Herds: many clients lose their server at once, and many wait for few messages."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from aiorsmq_ng import RSMQ, Options, Queue, RSMQError
from aiorsmq_ng.testing import FaultProxy, PrivateServer

from ..lab import Verdict
from . import herd_peer
from .herd_peer import wait_for_messages

Figures = tuple[dict[str, Any], Verdict | None]

SPAN_S = 0.1


@contextmanager
def counted_connects(port: int) -> Iterator[list[float]]:
    """Yield the times of all attempts to connect to *port*, refused ones included."""
    attempts: list[float] = []
    original = asyncio.open_connection

    async def counting(*args: Any, **settings: Any) -> Any:
        if settings.get("port") == port:
            attempts.append(time.monotonic())
        return await original(*args, **settings)

    asyncio.open_connection = counting
    try:
        yield attempts
    finally:
        asyncio.open_connection = original


async def outage(seconds: float, clients: int = 300) -> Figures:
    """*clients* wait for messages; the server is gone for *seconds* and comes back."""
    async with (
        PrivateServer("--maxclients", "4000") as server,
        FaultProxy(server.url) as proxy,
        AsyncExitStack() as stack,
    ):
        herd = []
        for _ in range(clients):
            rsmq = RSMQ(proxy.url, options=Options(deadline=20))
            herd.append(await stack.enter_async_context(rsmq))
        queue = await herd[0].create_queue("jobs")
        errors: Counter[str] = Counter()
        waiters = [asyncio.create_task(_wait(r.queue("jobs"), errors)) for r in herd]
        try:
            await asyncio.sleep(1)
            with counted_connects(urlsplit(proxy.url).port or 0) as attempts:
                began = time.monotonic()
                await proxy.refuse()
                await asyncio.sleep(seconds)
                await proxy.resume()
                back = time.monotonic()
                async with asyncio.timeout(120):
                    while await _subscribers(server) < clients:
                        await asyncio.sleep(0.1)
                took = time.monotonic() - back
            await queue.send("over")
        finally:
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)
    spans = Counter(int((at - began) / SPAN_S) for at in attempts)
    figures = {
        "clients": clients,
        "outage s": round(back - began, 1),
        "attempts": len(attempts),
        "most per 100 ms": max(spans.values()),
        "all back after s": round(took, 1),
        "errors": dict(errors),
    }
    return figures, None


async def _wait(queue: Queue, errors: Counter[str]) -> None:
    while True:
        try:
            if (message := await queue.receive(wait=60)) is not None:
                await message.ack()
        except RSMQError as error:
            errors[type(error).__name__] += 1


async def _subscribers(server: PrivateServer) -> int:
    with suppress(RSMQError):
        return int((await server.command("PUBSUB", "NUMSUB", "rsmq:rt:jobs"))[1])
    return 0


async def few_for_many(_seconds: float, waiters: int = 100, messages: int = 50) -> Figures:
    """Count how often the server is asked for few messages that *waiters* of a process wait for."""
    async with PrivateServer() as server, RSMQ(server.url) as rsmq, RSMQ(server.url) as sender:
        queue = await rsmq.create_queue("jobs")
        waiting = [asyncio.create_task(queue.receive(wait=60)) for _ in range(waiters)]
        while await _subscribers(server) < 1:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        before = await _script_calls(server)
        jobs = sender.queue("jobs")
        for n in range(messages):
            await jobs.send(str(n))
            await asyncio.sleep(0.02)
        async with asyncio.timeout(30):
            while sum(task.done() for task in waiting) < messages:
                await asyncio.sleep(0.02)
        # Whatever is called besides the sends is a receive.
        receives = await _script_calls(server) - before - messages
        for task in waiting:
            task.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    got = {m.text for m in outcomes if m is not None and not isinstance(m, BaseException)}
    return {
        "waiters": waiters,
        "messages": messages,
        "served": len(got),
        "receive calls": receives,
        "per message": round(receives / messages, 2),
    }, None


async def wake_ups(
    *, processes: int = 0, clients: int = 0, rate: float = 50, messages: int = 500, stopped: int = 0
) -> Figures:
    """Send messages one by one to *processes*, or *clients* of this one, that wait for them.

    *stopped* of the processes are stopped before that, and miss what they are called for.
    """
    took: list[float] = []
    async with (
        PrivateServer("--maxclients", "4000") as server,
        RSMQ(server.url) as sender,
        AsyncExitStack() as stack,
    ):
        queue = await sender.create_queue("jobs")
        herd = [await _process(server.url, took, stack) for _ in range(processes)]
        for _ in range(clients):
            rsmq = await stack.enter_async_context(RSMQ(server.url, options=Options(deadline=60)))
            await _in_background(wait_for_messages(rsmq.queue("jobs"), took.append), stack)
        async with asyncio.timeout(300):
            while await _subscribers(server) < processes + clients:
                await asyncio.sleep(0.1)
        # They look less and less often at first.
        await asyncio.sleep(12)
        for process in herd[:stopped]:
            process.send_signal(signal.SIGSTOP)
        idle, idle_since = await _script_calls(server), time.monotonic()
        await asyncio.sleep(5)
        before, began = await _script_calls(server), time.monotonic()
        idle_per_s = (before - idle) / (began - idle_since)
        for _ in range(messages):
            await queue.send(str(time.monotonic()))
            await asyncio.sleep(1 / rate)
        async with asyncio.timeout(60):
            while len(took) < messages:
                await asyncio.sleep(0.05)
        scripts, lasted = await _script_calls(server) - before, time.monotonic() - began
    took.sort()
    return {
        "served": len(took),
        "messages/s": round(messages / lasted),
        "scripts per message": round(scripts / messages, 2),
        "scripts/s when idle": round(idle_per_s, 1),
        "p50 ms": round(took[len(took) // 2] * 1000, 1),
        "p99 ms": round(took[len(took) * 99 // 100] * 1000, 1),
        "longest ms": round(took[-1] * 1000, 1),
    }, None


async def _process(
    url: str, took: list[float], stack: AsyncExitStack
) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", herd_peer.__name__, url, stdout=asyncio.subprocess.PIPE
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.kill)

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            took.append(float(line))  # noqa: PERF401 - as they come

    await _in_background(read(), stack)
    return process


async def _in_background(work: Coroutine[Any, Any, None], stack: AsyncExitStack) -> None:
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


async def _script_calls(server: PrivateServer) -> int:
    stats = await server.info("commandstats")
    return sum(
        int(stats[f"cmdstat_{name}"].split(",")[0].removeprefix("calls="))
        for name in ("eval", "evalsha")
        if f"cmdstat_{name}" in stats
    )
