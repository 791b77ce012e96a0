"""``rsmqctl bench``: measures throughput and latency of the server on a temporary queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import click

import aiorsmq_ng

from .global_options import examples, global_options
from .output import Record, show_rows
from .session import run

COLUMNS = ("test", "messages", "seconds", "per_second", "p50_ms", "p99_ms")
#: Bodies of one send_many, and prefetch of the consumer that drains the queue.
_BATCH, _PREFETCH = 100, 100
#: Calls that warm up the connection, and are not measured.
_WARM_UP = 10


@click.command(
    epilog=examples(
        "$ rsmqctl bench -o table",
        "TEST                   MESSAGES  SECONDS  PER_SECOND  P50_MS  P99_MS",
        "send                       1000    0.214        4673   0.203   0.391",
        "send+receive+ack           1000    0.623        1605   0.604   0.912",
        "send x 64                 10000    0.301       33223   1.874   3.012",
        "send_many 100             10000    0.078      128205   0.731   1.204",
        "receive+ack x 64          10000    0.551       18149   3.412   5.120",
        "receive+ack ahead 100     11000    0.447       24609",
    )
)
@click.option(
    "--messages",
    type=click.IntRange(min=1, max=10_000_000),
    default=10_000,
    show_default=True,
    help="Messages of each test; tests that send one by one use a tenth of it.",
)
@click.option(
    "--senders",
    type=click.IntRange(min=1, max=10_000),
    default=64,
    show_default=True,
    help="Number of concurrent tasks that send or receive.",
)
@click.option(
    "--size",
    type=click.IntRange(min=1, max=65536),
    default=100,
    show_default=True,
    help="Size of a body in bytes.",
)
@global_options()
def bench(messages: int, senders: int, size: int) -> None:
    """Measure sending and receiving on your server.

    Six tests on a temporary queue in the namespace, which is deleted at the end, also after
    Ctrl-C: one send after the other; each message sent, received and acknowledged before the next;
    sends from --senders concurrent tasks; batches of 100; then all messages are received and
    acknowledged, first by the same number of tasks, one message each, then by one consumer with a
    prefetch of 100. p50_ms and p99_ms are times of single calls, or of a message from send to
    acknowledgement. The server is under load while this runs.
    """

    async def work(rsmq: aiorsmq_ng.RSMQ) -> list[Record]:
        import asyncio
        import secrets

        name = f"bench-{secrets.token_hex(4)}"
        creating = asyncio.create_task(rsmq.create_queue(name))
        try:
            queue = await asyncio.shield(creating)
            return await _measure(queue, messages, senders, secrets.token_hex(size)[:size])
        finally:
            # Ctrl-C may come while the queue is being created.
            await asyncio.wait([creating])
            if creating.exception() is None:
                await rsmq.delete_queue(name)

    show_rows(run(work), COLUMNS)


async def _measure(queue: aiorsmq_ng.Queue, messages: int, senders: int, body: str) -> list[Record]:
    for _ in range(_WARM_UP):
        await queue.send(body)
    await queue.purge()
    lone = max(1, messages // 10)
    batch = [body] * _BATCH

    async def send() -> None:
        await queue.send(body)

    async def take() -> None:
        if message := await queue.receive():
            await message.ack()

    async def cycle() -> None:
        await send()
        await take()

    async def send_many() -> None:
        await queue.send_many(batch)

    # A cycle receives what it sent, so it starts with an empty queue.
    whole = await _timed("send+receive+ack", lone, lone, 1, cycle)
    rows = [
        await _timed("send", lone, lone, 1, send),
        await _timed(f"send x {senders}", messages, messages, senders, send),
        await _timed(
            f"send_many {_BATCH}", max(1, messages // _BATCH) * _BATCH,
            max(1, messages // _BATCH), 1, send_many,
        ),
    ]  # fmt: skip
    left = sum(row["messages"] for row in rows) - messages
    rows += [
        await _timed(f"receive+ack x {senders}", messages, messages, senders, take),
        await _drain(queue, left),
    ]
    return [rows[0], whole, *rows[1:]]


async def _timed(
    test: str, messages: int, calls: int, tasks: int, call: Callable[[], Awaitable[None]]
) -> Record:
    """Run *calls* calls in concurrent tasks; return a row with their total time and percentiles."""
    import time

    import anyio

    times: list[float] = []
    left = calls

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            await call()
            times.append(time.perf_counter() - began)

    started = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(min(tasks, calls)):
            group.start_soon(work)
    row = _row(test, messages, time.perf_counter() - started)
    return {**row, "p50_ms": _percentile(times, 50), "p99_ms": _percentile(times, 99)}


async def _drain(queue: aiorsmq_ng.Queue, messages: int) -> Record:
    import asyncio
    import time

    started = time.perf_counter()
    acks: set[asyncio.Task[None]] = set()
    left = messages
    async with queue.consume(prefetch=_PREFETCH) as consumer:
        async for message in consumer:
            acks.add(asyncio.create_task(message.ack()))
            left -= 1
            if len(acks) >= _PREFETCH or not left:
                await asyncio.gather(*acks)
                acks.clear()
            if not left:
                break
    row = _row(f"receive+ack ahead {_PREFETCH}", messages, time.perf_counter() - started)
    return {**row, "p50_ms": None, "p99_ms": None}


def _row(test: str, messages: int, seconds: float) -> Record:
    return {
        "test": test,
        "messages": messages,
        "seconds": round(seconds, 3),
        "per_second": round(messages / seconds),
    }


def _percentile(times: Sequence[float], percent: int) -> float:
    """Return a percentile of the times, in milliseconds."""
    ordered = sorted(times)
    return round(ordered[-(-len(ordered) * percent // 100) - 1] * 1000, 3)
