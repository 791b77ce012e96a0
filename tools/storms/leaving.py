"""Every way to leave a consumer, under live traffic; nothing may stay leased without a holder."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from aiorsmq_ng import RSMQ, ClientClosed, Consumer, Delivery, Queue, Unavailable, Worker
from aiorsmq_ng.testing import PrivateServer

from ..lab import Verdict, Violation

Figures = tuple[dict[str, Any], Verdict | None]

#: Far longer than a run: a lease that is not ended is still there when they are counted.
VT = 600.0
PREFETCH = 8
#: How long leases may take to end once all consumers have left.
SETTLE_S = 40.0
#: The longest time after which a consumer is left, in seconds; most replies come within it.
_SOON = 0.008
#: How long work on a message takes: often a tick, now and then as long as a reply.
_PAUSES = (0, 0.0005, 0, 0, 0.001)


class Left(Exception):
    """Raised by whatever makes a consumer end."""


async def _work(consumer: Consumer, most: int | None = None) -> None:
    """Ack messages until *most* are done, or for ever; what is cut short is released."""
    done = 0
    async for message in consumer:
        async with message:
            await asyncio.sleep(_PAUSES[done % len(_PAUSES)])
        done += 1
        if done == most:
            break


def _messages(queue: Queue) -> Consumer:
    return queue.consume(prefetch=PREFETCH, vt=VT)


async def by_break(queue: Queue, chance: random.Random) -> None:
    """Break out of the loop, and let go of the consumer."""
    await _work(_messages(queue), chance.randint(1, 6))


async def by_block(queue: Queue, chance: random.Random) -> None:
    """Break out of the loop inside ``async with``."""
    async with _messages(queue) as consumer:
        await _work(consumer, chance.randint(1, 6))


async def by_timeout(queue: Queue, chance: random.Random) -> None:
    """Let the time run out around the loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(chance.random() * _SOON):
            await _work(_messages(queue))


async def by_scope(queue: Queue, chance: random.Random) -> None:
    """Let a cancel scope of AnyIO end around the loop."""
    with anyio.move_on_after(chance.random() * _SOON):
        async with _messages(queue) as consumer:
            await _work(consumer)


async def by_sibling(queue: Queue, chance: random.Random) -> None:
    """Let another task of the same task group fail."""

    async def fail() -> None:
        await asyncio.sleep(chance.random() * _SOON)
        raise Left

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_work(_messages(queue)))
            tasks.create_task(_work(_messages(queue)))
            tasks.create_task(fail())


async def by_another_task(queue: Queue, chance: random.Random) -> None:
    """Close the consumer from another task while the loop waits or works."""
    consumer = _messages(queue) if chance.random() < 0.8 else queue.consume(vt=VT)
    working = asyncio.create_task(_work(consumer))
    await asyncio.sleep(chance.random() * _SOON)
    await consumer.aclose()
    await working


async def by_cancellation(queue: Queue, chance: random.Random) -> None:
    """Cancel the task at a random tick, sometimes twice."""

    async def work() -> None:
        async with _messages(queue) as consumer:
            await _work(consumer)

    working = asyncio.create_task(work())
    for _ in range(chance.randint(1, 2)):
        for _ in range(chance.randint(0, 40)):
            await asyncio.sleep(0)
        working.cancel()
    await asyncio.wait([working])


async def by_forgetting(queue: Queue, chance: random.Random) -> None:
    """Take some by hand, and forget the consumer."""
    consumer = _messages(queue)
    for _ in range(chance.randint(0, 3)):
        await (await anext(consumer)).ack()
    for _ in range(chance.randint(0, 20)):
        await asyncio.sleep(0)


async def by_collector(queue: Queue, chance: random.Random) -> None:
    """Forget the consumer in a cycle that the collector finds in another thread."""
    consumer = _messages(queue)
    await _work(consumer, chance.randint(1, 3))
    cycle: list[Any] = [consumer]
    cycle.append(cycle)
    del consumer, cycle
    await asyncio.to_thread(gc.collect)


async def by_pausing_a_worker(queue: Queue, chance: random.Random) -> None:
    """Pause, resume and stop a worker of the same client."""
    worker = Worker(queue.rsmq, concurrency=2, prefetch=PREFETCH)  # type: ignore[attr-defined]

    @worker.handler(queue.name, vt=VT)
    async def handle(_: Delivery) -> None:
        await asyncio.sleep(0)

    running = asyncio.create_task(worker.run(signals=False))
    for _ in range(chance.randint(0, 3)):
        await asyncio.sleep(chance.random() * _SOON)
        worker.pause()
        await asyncio.sleep(chance.random() * _SOON)
        worker.resume()
    await asyncio.sleep(chance.random() * _SOON)
    worker.stop()
    await running


async def by_client(queue: Queue, chance: random.Random) -> None:
    """Close the client first, the consumer afterwards."""
    async with RSMQ(queue.url, ns=queue.ns) as own:  # type: ignore[attr-defined]
        consumer = _messages(own.queue(queue.name))

        async def work() -> None:
            async for message in consumer:
                # What is in hand can be settled by a client that stays.
                await queue.delivery(message.receipt).ack()

        working = asyncio.create_task(work())
        await asyncio.sleep(chance.random() * _SOON)
    with suppress(Unavailable, ClientClosed):
        await working
    await consumer.aclose()


async def _work_without_a_name(queue: Queue) -> None:
    """Ack messages for ever; only the loop itself refers to its consumer."""
    async for message in _messages(queue):
        async with message:
            await asyncio.sleep(0)


async def by_kept_task(queue: Queue, chance: random.Random) -> None:
    """Cancel the task, and keep it."""
    working = asyncio.create_task(_work_without_a_name(queue))
    await asyncio.sleep(chance.random() * _SOON)
    working.cancel()
    await asyncio.wait([working])
    _kept.append(working)


async def by_kept_timeout(queue: Queue, chance: random.Random) -> None:
    """Let the time run out around the loop, and keep the error."""
    try:
        await asyncio.wait_for(_work_without_a_name(queue), chance.random() * _SOON)
    except TimeoutError as error:
        _kept.append(error)


async def by_kept_group(queue: Queue, chance: random.Random) -> None:
    """Let another task of the same task group fail, and keep the tasks and the group's error."""

    async def fail() -> None:
        await asyncio.sleep(chance.random() * _SOON)
        raise Left

    try:
        async with asyncio.TaskGroup() as tasks:
            _kept.append(tasks.create_task(_work_without_a_name(queue)))
            tasks.create_task(fail())
    except ExceptionGroup as errors:
        _kept.append(errors)


async def by_cancelling_a_worker(queue: Queue, chance: random.Random) -> None:
    """Cancel a worker once, twice or by a scope, or not at all, and close its client."""

    async def handle(_: Delivery) -> None:
        await asyncio.sleep(chance.choice((0, 0.001, VT)))

    async with RSMQ(queue.url, ns=queue.ns) as own:  # type: ignore[attr-defined]
        worker = Worker(own, concurrency=2, prefetch=PREFETCH)
        worker.handler(queue.name, vt=VT)(handle)
        times = chance.randint(0, 3)
        if times == 3:
            with anyio.move_on_after(chance.random() * 4 * _SOON):
                await worker.run(signals=False)
            return
        running = asyncio.create_task(worker.run(signals=False))
        await asyncio.sleep(chance.random() * 4 * _SOON)
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0)
        if times:
            await asyncio.wait([running])
    await asyncio.gather(running, return_exceptions=True)


#: What a program keeps after it has left: each refers to the frames that it went through.
_kept: list[object] = []

WAYS: dict[str, Callable[[Queue, random.Random], Awaitable[None]]] = {
    "break": by_break,
    "async with and break": by_block,
    "asyncio.timeout": by_timeout,
    "anyio.move_on_after": by_scope,
    "a failing sibling": by_sibling,
    "aclose in another task": by_another_task,
    "cancelled at a random tick": by_cancellation,
    "forgotten": by_forgetting,
    "collected in another thread": by_collector,
    "a worker paused and stopped": by_pausing_a_worker,
    "the client closed first": by_client,
    "a worker cancelled, or its client closed": by_cancelling_a_worker,
    "cancelled, the task kept": by_kept_task,
    "timed out, the error kept": by_kept_timeout,
    "a failing sibling, its error kept": by_kept_group,
}


@asynccontextmanager
async def _traffic(url: str, ns: str, chance: random.Random) -> AsyncIterator[None]:
    """Send messages of many sizes of batches, by a client of their own."""
    async with RSMQ(url, ns=ns) as rsmq:
        queue = rsmq.queue("jobs")

        async def send() -> None:
            while True:
                await queue.send_many(["x"] * chance.randint(1, 6))
                await asyncio.sleep(chance.random() * 0.002)

        sending = [asyncio.create_task(send()) for _ in range(2)]
        try:
            yield
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)


async def leave(
    url: str, ns: str, name: str, *, rounds: int, seconds: float = 0.0, seed: int = 0
) -> dict[str, Any]:
    """Leave a consumer by one way, again and again, and count what stays: leases, and consumers.

    *rounds* at least, and for *seconds* at least.
    """
    chance, way = random.Random(seed), WAYS[name]
    loop = asyncio.get_running_loop()
    async with RSMQ(url, ns=ns) as rsmq:
        queue = await rsmq.create_queue("jobs", exist_ok=True)
        queue.rsmq, queue.url = rsmq, url  # type: ignore[attr-defined] # for some ways
        until, done = loop.time() + seconds, 0
        async with _traffic(url, ns, chance):
            while done < rounds or loop.time() < until:
                async with asyncio.timeout(60):
                    await way(queue, chance)
                done += 1
        gc.collect()
        figures = await _left_behind(rsmq, queue)
        with anyio.move_on_after(SETTLE_S):
            while any(figures[f"still {what}"] for what in ("leased", "renewed", "present")):
                await asyncio.sleep(0.02)
                figures = await _left_behind(rsmq, queue)
        _kept.clear()
        await rsmq.delete_queue("jobs")
        return {"rounds": done, **figures}


async def _left_behind(rsmq: RSMQ, queue: Queue) -> dict[str, Any]:
    """Count what consumers of *rsmq* hold, once no call of it may still take or give back."""
    await rsmq._transport.quiet(SETTLE_S)
    attributes, stats = await queue.attributes(), await queue.stats()
    return {
        "messages": attributes.totalsent, "handed out": attributes.totalrecv,
        "still leased": attributes.leased,
        "still renewed": len(rsmq._keeper.kept()),
        "still present": sum(c.consumers for c in stats.consumers),
    }  # fmt: skip


async def by_way(name: str, seconds: float) -> Figures:
    """Return the figures of one way, on a server of its own, for the report."""
    async with PrivateServer() as server:
        figures = await leave(server.url, "leaving", name, rounds=100, seconds=seconds)
    verdict = Verdict(stranded=figures["still leased"] + figures["still renewed"])
    if verdict.stranded:
        verdict.violations.append(Violation("O7", f"{verdict.stranded} leases have no holder"))
    return figures, verdict
