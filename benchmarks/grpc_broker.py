"""What the broker costs: the same work through it and directly on Redis, in one run.

Server, broker and client are processes of their own on this machine. Every figure is the median of
some rounds. In every round each way has two turns at the same work, the second in reverse order
(A B C C B A), and the next round begins with another way: the library on Redis, a plain stub
through the broker, the library's client through the broker. The last two are also compared by the
processor time of the client's process and of the broker's. A client of GOMQ that publishes one
message after another is compared with calls of which a server of grpc.aio does nothing at all.

    python benchmarks/grpc_broker.py [--rounds 8] [--messages 2000] [--steps TEXT] [--write]

``--steps batches --rounds 20`` settles one row in about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
from intervals import interval
from pages import put, where

from aiorsmq_ng import RSMQ
from aiorsmq_ng.rpc import routeguide_pb2, routeguide_pb2_grpc
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.servers import free_ports

BODY = b"x" * 100
#: Calls in flight at the same time, and messages in a batch.
WINDOW, BATCH = 32, 100
SOURCES = [pb.Source(queue="bench")]
Work = Callable[[], Awaitable[object]]
#: The ways, in the order of the table.
WAYS = DIRECT, STUB, CLIENT = "direct", "stub", "client"


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
            yield queues, f"grpc://{address}", process.pid
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


async def at_once(count: int, work: Work) -> list[float]:
    """Make *count* calls with some in flight at the same time; none is timed."""
    left = iter(range(count))

    async def lane() -> None:
        for _ in left:
            await work()

    await asyncio.gather(*(lane() for _ in range(WINDOW)))
    return []


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

    async def send(self) -> str:
        """Send one message, and read its id."""
        return (await self._queues.Send(pb.SendRequest(queue="bench", bodies=[BODY]))).ids[0]

    async def send_batch(self) -> list[str]:
        """Send a batch, and read the ids."""
        request = pb.SendRequest(queue="bench", bodies=[BODY] * BATCH)
        return list((await self._queues.Send(request)).ids)

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


Way = ByLibrary | ByBroker


@dataclass(frozen=True)
class Step:
    """One kind of work that every way has a turn at in every round."""

    name: str
    #: Do the work; return the milliseconds of single calls, if they are of interest.
    run: Callable[[Way, int], Awaitable[list[float]]]
    #: Messages of a turn, as a multiple of what was asked for; at least ``BATCH``.
    share: float = 1
    #: Whether the messages must be in the queue before.
    takes: bool = False

    def messages(self, asked: int) -> int:
        """Return the messages of one turn, in whole batches."""
        return max(1, round(asked * self.share / BATCH)) * BATCH


async def send_batches(way: Way, count: int) -> list[float]:
    for _ in range(count // BATCH):
        await way.send_batch()
    return []


async def consume(way: Way, count: int) -> list[float]:
    await way.consume(count)
    return []


STEPS = (
    Step("send, one at a time", lambda way, n: one_by_one(n, way.send), 0.1),
    Step("receive and ack, one at a time", lambda way, n: one_by_one(n, way.cycle), 0.1, True),
    Step(f"send, {WINDOW} at a time", lambda way, n: at_once(n, way.send)),
    Step(f"receive and ack, {WINDOW} at a time", lambda way, n: at_once(n, way.cycle), takes=True),
    Step(f"send in batches of {BATCH}", send_batches, 20),
    Step(f"consume, {BATCH} unsettled", consume, takes=True),
)


@dataclass(frozen=True)
class Turn:
    """What one way did in one turn."""

    rate: float
    #: Processor time of the client's process and of the broker's per message, with all threads.
    client_us: float
    broker_us: float
    times: list[float]

    def __add__(self, other: Turn) -> Turn:
        """Return both turns of a round as one."""
        return Turn(
            2 / (1 / self.rate + 1 / other.rate),
            (self.client_us + other.client_us) / 2,
            (self.broker_us + other.broker_us) / 2,
            self.times + other.times,
        )


#: Step -> way -> one turn per round.
Turns = dict[str, dict[str, list[Turn]]]


def spent(pid: int) -> float:
    """Return the seconds of processor time of another process; 0 where there is no /proc."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


async def turn(step: Step, way: Way, rsmq: RSMQ, messages: int, broker: int) -> Turn:
    """Empty the queue, fill it if the step takes messages, and measure the step alone."""
    count = step.messages(messages)
    queue = rsmq.queue("bench")
    await queue.purge(leased=True)
    if step.takes:
        for _ in range(count // BATCH):
            await queue.send_many([BODY] * BATCH)
    gc.collect()
    brokers, busy, started = spent(broker), time.process_time(), time.perf_counter()
    times = await step.run(way, count)
    took, busy = time.perf_counter() - started, time.process_time() - busy
    return Turn(count / took, busy / count * 1e6, (spent(broker) - brokers) / count * 1e6, times)


async def take_turns(
    ways: dict[str, Way], steps: Sequence[Step], play: Callable[..., Awaitable[Turn]], rounds: int
) -> Turns:
    """Play every step round by round, each way twice in a round: A B C C B A, then B C A A C B.

    *play* is given the step, the way, and whether it only warms up.
    """
    turns: Turns = {step.name: {name: [] for name in ways} for step in steps}
    names = list(ways)
    for step in steps:
        for number in range(rounds + 1):
            at = number % len(names)
            order = names[at:] + names[:at]
            made = {name: await play(step, ways[name], not number) for name in order}
            for name in reversed(order) if number else ():  # the first round only warms up
                made[name] += await play(step, ways[name], False)
                turns[step.name][name].append(made[name])
    return turns


async def measure(
    rounds: int, messages: int, chosen: str = ""
) -> tuple[Turns, list[tuple[float, float]]]:
    """Return the turns of each way; and rates of empty calls, and of a lone client of GOMQ.

    With *chosen*, only of steps that have it in their name.
    """
    steps = [step for step in STEPS if chosen in step.name]
    async with (
        PrivateServer() as server,
        RSMQ(server.url) as rsmq,
        broker(server.url) as (queues, url, pid),
        RSMQ(url) as remote,
        empty() as nothing,
    ):
        await rsmq.create_queue("bench")
        ways = dict(zip(WAYS, (ByLibrary(rsmq), ByBroker(queues), ByLibrary(remote)), strict=True))

        async def play(step: Step, way: Way, warm_up: bool) -> Turn:
            return await turn(step, way, rsmq, BATCH if warm_up else messages, pid)

        turns = await take_turns(ways, steps, play, rounds)
        addresses = (nothing, url.removeprefix("grpc://"))
        lone = [
            tuple([await asyncio.to_thread(publishes, at, messages) for at in addresses])
            for _ in range(0 if chosen else rounds)
        ]
    return turns, lone


def lone_table(rates: list[tuple[float, float]]) -> list[str]:
    """Return the table of the lone publisher; its ratio is that of the medians."""
    nothing, published = map(statistics.median, zip(*rates, strict=True))
    figures = f"{nothing:,.0f} | {published:,.0f} | {published / nothing:.2f}"
    return [
        f"| one call after another, median of {len(rates)} rounds | empty call | by broker | |",
        "|---|--:|--:|--:|",
        f"| lone GOMQ publisher: messages/s | {figures} |",
    ]


def table(turns: Turns) -> list[str]:
    """Return the table of the ways beside direct; a ratio is that of the medians."""
    rounds = len(next(iter(turns.values()))[DIRECT])
    what = f"bodies of {len(BODY)} bytes, median of {rounds} rounds"
    lines = [
        f'| {what} | direct | by broker | | `RSMQ("grpc://...")` | |',
        "|---|--:|--:|--:|--:|--:|",
    ]
    for step, by_way in turns.items():
        rows = {": messages/s": lambda made: made.rate}
        if by_way[DIRECT][0].times:
            rows = {
                ": ms (median)": lambda made: statistics.median(made.times),
                ": ms (99 %)": lambda made: statistics.quantiles(made.times, n=100)[98],
            }
        for unit, value in rows.items():
            direct, *others = (statistics.median(map(value, by_way[way])) for way in WAYS)
            digits = 2 if ": ms" in unit else 0
            cells = [f"{direct:,.{digits}f}"]
            for other in others:
                cells += [f"{other:,.{digits}f}", f"{other / direct:.2f}"]
            lines.append(f"| {step}{unit} | {' | '.join(cells)} |")
    return lines


def client_table(turns: Turns) -> list[str]:
    """Return the table of our client beside a plain stub, both through the broker.

    A ratio is the median over the rounds of the ratio within the round; processor time is that of
    a message.
    """
    rounds = len(next(iter(turns.values()))[STUB])
    what = f'`RSMQ("grpc://...")` beside a plain stub, median of {rounds} rounds'
    heads = [what, "rate, client / stub", "95 % of the median"]
    heads += ["us of the client's process: stub", "client", "of the broker: stub", "client"]
    lines = [f"| {' | '.join(heads)} |", "|---|--:|--:|--:|--:|--:|--:|"]
    for step, by_way in turns.items():
        stub, client = by_way[STUB], by_way[CLIENT]
        rates = [c.rate / s.rate for c, s in zip(client, stub, strict=True)]
        low, high = interval(rates)
        cells = [step, f"{statistics.median(rates):.2f}", f"{low:.2f} to {high:.2f}"]
        for column in ("client_us", "broker_us"):
            spent_us = ([getattr(made, column) for made in way] for way in (stub, client))
            cells += [f"{statistics.median(values):.1f}" for values in spent_us]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--steps", default="", help="only steps that have this in their name")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/reports/grpc.md"
    )
    parser.add_argument("--empty", metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.empty:
        asyncio.run(serve_empty(given.empty))
    load = os.getloadavg()[0]
    if given.steps and given.write:
        parser.error("a page is written with all steps only")
    turns, lone = asyncio.run(measure(given.rounds, given.messages, given.steps))
    lines = [*table(turns), "", *client_table(turns), ""]
    lines += [*lone_table(lone), ""] if lone else []
    lines.append(where(load))
    print(*lines, sep="\n")
    if given.write:
        put("reports/grpc.md", "benchmarks/grpc_broker.py", lines)


if __name__ == "__main__":
    main()
