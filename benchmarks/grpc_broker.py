"""What the broker costs: the same work through it and directly on Redis, in one run.

Server, broker and client are processes of their own on this machine. Every figure is the median of
some rounds, and the rounds of both ways take turns. A client of GOMQ that publishes one message
after another is compared with calls of which a server of grpc.aio does nothing at all.

    python benchmarks/grpc_broker.py [--rounds 5] [--messages 2000] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio
from pages import put, where

from aiorsmq_ng import RSMQ
from aiorsmq_ng.rpc import routeguide_pb2, routeguide_pb2_grpc
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.servers import free_ports

BODY = b"x" * 100
#: Calls under way at the same time, and messages in a batch.
WINDOW, BATCH = 32, 100
SOURCES = [pb.Source(queue="bench")]
Work = Callable[[], Awaitable[object]]


@asynccontextmanager
async def broker(url: str):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", url, "serve", "grpc", "--listen", address),
        *("--gomq", "copy"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            queues = QueuesStub(channel)
            await queues.GetInfo(pb.GetInfoRequest(), wait_for_ready=True, timeout=60)
            yield queues, f"grpc://{address}"
    finally:
        process.terminate()
        await process.wait()


class Empty(routeguide_pb2_grpc.RouteGuideServicer):
    """What a call costs of which nothing comes."""

    async def Publish(self, _: object, __: object) -> routeguide_pb2.Result:  # noqa: N802
        """Do nothing."""
        return routeguide_pb2.Result()


async def serve_empty(address: str) -> None:
    server = grpc.aio.server()
    routeguide_pb2_grpc.add_RouteGuideServicer_to_server(Empty(), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


@asynccontextmanager
async def empty():
    address = f"127.0.0.1:{free_ports(1)[0]}"
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--empty", address)
    try:
        yield address
    finally:
        process.terminate()
        await process.wait()


def publishes(address: str, count: int) -> float:
    """Return how many messages a lone client of GOMQ publishes per second."""
    with grpc.insecure_channel(address) as channel:
        publish = routeguide_pb2_grpc.RouteGuideStub(channel).Publish
        record = routeguide_pb2.PublishRecord(key="bench", payload=BODY)
        for _ in range(50):  # warms up
            publish(record, wait_for_ready=True, timeout=60)
        started = time.perf_counter()
        for _ in range(count):
            publish(record)
        return count / (time.perf_counter() - started)


async def one_by_one(count: int, work: Work) -> list[float]:
    """Return how long each of *count* calls took, in milliseconds."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await work()
        times.append((time.perf_counter() - started) * 1000)
    return times


async def at_once(count: int, work: Work) -> float:
    """Return calls per second with some under way at the same time."""
    left = iter(range(count))

    async def lane() -> None:
        for _ in left:
            await work()

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(WINDOW)))
    return count / (time.perf_counter() - started)


class ByLibrary:
    """The library, on Redis or through the broker."""

    def __init__(self, rsmq: RSMQ) -> None:
        self._queue = rsmq.queue("bench")

    async def send(self) -> None:
        """Send one message."""
        await self._queue.send(BODY)

    async def send_batch(self) -> None:
        """Send a batch."""
        await self._queue.send_many([BODY] * BATCH)

    async def cycle(self) -> None:
        """Receive one message and acknowledge it."""
        delivery = await self._queue.receive()
        assert delivery is not None
        await delivery.ack()

    async def consume(self, count: int) -> None:
        """Consume *count* messages, and acknowledge them."""
        async with self._queue.consume(prefetch=BATCH) as consumer:
            pending = []
            async for delivery in consumer:
                pending.append(delivery.ack())
                if len(pending) == BATCH or len(pending) == count:
                    count -= len(pending)
                    await asyncio.gather(*pending)
                    pending.clear()
                if not count:
                    return


class ByBroker:
    """The broker, from a client that knows only gRPC."""

    def __init__(self, queues: QueuesStub) -> None:
        self._queues = queues

    async def send(self) -> None:
        """Send one message."""
        await self._queues.Send(pb.SendRequest(queue="bench", bodies=[BODY]))

    async def send_batch(self) -> None:
        """Send a batch."""
        await self._queues.Send(pb.SendRequest(queue="bench", bodies=[BODY] * BATCH))

    async def cycle(self) -> None:
        """Receive one message and acknowledge it."""
        got = await self._queues.Receive(pb.ReceiveRequest(sources=SOURCES))
        await self._queues.Ack(pb.AckRequest(receipts=[got.deliveries[0].receipt]))

    async def consume(self, count: int) -> None:
        """Consume *count* messages, and acknowledge them."""
        stream = self._queues.Consume(pb.ConsumeRequest(sources=SOURCES, max_unsettled=BATCH))
        async for event in stream:
            receipts = [delivery.receipt for delivery in event.deliveries]
            await self._queues.Ack(pb.AckRequest(receipts=receipts))
            count -= len(receipts)
            if not count:
                break
        stream.cancel()


async def round_of(way: ByLibrary | ByBroker, rsmq: RSMQ, messages: int) -> dict[str, float]:
    await rsmq.queue("bench").purge(leased=True)
    few = max(100, messages // 10)
    found: dict[str, float] = {}
    for name, work in (("send", way.send), ("receive and ack", way.cycle)):
        times = await one_by_one(few, work)
        found[f"{name}, one at a time: ms (median)"] = statistics.median(times)
        found[f"{name}, one at a time: ms (99 %)"] = statistics.quantiles(times, n=100)[98]
    found[f"send, {WINDOW} at a time: messages/s"] = await at_once(messages, way.send)
    found[f"receive and ack, {WINDOW} at a time: messages/s"] = await at_once(messages, way.cycle)
    batches = max(1, messages // BATCH)
    started = time.perf_counter()
    for _ in range(batches):
        await way.send_batch()
    found[f"send in batches of {BATCH}: messages/s"] = (
        batches * BATCH / (time.perf_counter() - started)
    )
    started = time.perf_counter()
    await way.consume(batches * BATCH)
    found[f"consume, {BATCH} unsettled: messages/s"] = (
        batches * BATCH / (time.perf_counter() - started)
    )
    return found


async def measure(
    rounds: int, messages: int
) -> tuple[list[list[dict[str, float]]], list[tuple[float, float]]]:
    """Return the rounds of each way; and rates of empty calls, and of a lone client of GOMQ."""
    async with (
        PrivateServer() as server,
        RSMQ(server.url) as rsmq,
        broker(server.url) as (queues, url),
        RSMQ(url) as remote,
        empty() as nothing,
    ):
        await rsmq.create_queue("bench")
        ways = [ByLibrary(rsmq), ByBroker(queues), ByLibrary(remote)]
        for way in ways:
            await round_of(way, rsmq, 200)  # warms up
        results: list[list[dict[str, float]]] = [[] for _ in ways]
        for _ in range(rounds):
            for way, kept in zip(ways, results, strict=True):
                kept.append(await round_of(way, rsmq, messages))
        addresses = (nothing, url.removeprefix("grpc://"))
        lone = [
            tuple([await asyncio.to_thread(publishes, at, messages) for at in addresses])
            for _ in range(rounds)
        ]
    return results, lone


def lone_table(rates: list[tuple[float, float]]) -> list[str]:
    """Return the table of the lone publisher; its ratio is that of the medians."""
    nothing, published = map(statistics.median, zip(*rates, strict=True))
    figures = f"{nothing:,.0f} | {published:,.0f} | {published / nothing:.2f}"
    return [
        f"| one call after another, median of {len(rates)} rounds | empty call | by broker | |",
        "|---|--:|--:|--:|",
        f"| lone GOMQ publisher: messages/s | {figures} |",
    ]


def table(results: list[list[dict[str, float]]]) -> list[str]:
    """Return the table of the documentation; a ratio is that of the medians."""
    what = f"bodies of {len(BODY)} bytes, median of {len(results[0])} rounds"
    lines = [
        f'| {what} | direct | by broker | | `RSMQ("grpc://...")` | |',
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in results[0][0]:
        direct, *others = (statistics.median(r[name] for r in kept) for kept in results)
        digits = 2 if ": ms" in name else 0
        cells = [f"{direct:,.{digits}f}"]
        for other in others:
            cells += [f"{other:,.{digits}f}", f"{other / direct:.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/reports/grpc.md"
    )
    parser.add_argument("--empty", metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.empty:
        asyncio.run(serve_empty(given.empty))
    load = os.getloadavg()[0]
    results, lone = asyncio.run(measure(given.rounds, given.messages))
    lines = [*table(results), "", *lone_table(lone), "", where(load)]
    print(*lines, sep="\n")
    if given.write:
        put("reports/grpc.md", "benchmarks/grpc_broker.py", lines)


if __name__ == "__main__":
    main()
