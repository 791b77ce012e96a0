"""The broker under faults: peers killed at random, the broker itself stopped and killed.

``python -m tools.storms.broker`` publishes by 4 publishers to 3 subscriptions with 2 peers each
that share them, and reports what every subscription received; ``--calm`` kills nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import grpc
import grpc.aio

from aiorsmq_ng import RSMQ
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub, TopicsStub
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.servers import free_ports

PUBLISHERS, SUBSCRIPTIONS, PEERS = 4, ("billing", "mail", "search"), 2
#: Publishes of one publisher under way.
WINDOW = 16
OPTIONS = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 500)]


@dataclass
class Report:
    """What came of it."""

    messages: int
    received: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    doubled: dict[str, int] = field(default_factory=dict)
    left_in_queues: int = 0
    peers_killed: int = 0
    broker_stops: list[str] = field(default_factory=list)
    publishes_repeated: int = 0
    seconds: float = 0.0
    broker_rss_mb: int = 0


class Peer:
    """A process that consumes; what it received is in a file, one number per line."""

    def __init__(self, program: list[str], address: str, consumer: str, folder: Path) -> None:
        self.consumer = consumer
        self.file = folder / f"{consumer}-{uuid4().hex[:8]}"
        self._words = [sys.executable, *program, address, consumer, str(self.file)]
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(*self._words)

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()


async def be_peer(address: str, consumer: str, file: str) -> None:
    """Consume for ever: note what comes, then acknowledge it."""
    who = pb.Subscriber(topic="storm", consumer=consumer, peer=str(os.getpid()))
    request = pb.ConsumeRequest(sources=[pb.Source(subscriber=who)], max_unsettled=200, vt_ms=5000)
    with Path(file).open("ab", buffering=0) as notes:  # noqa: ASYNC230 - a few bytes each
        while True:
            with suppress(grpc.RpcError):
                async with grpc.aio.insecure_channel(address, OPTIONS) as channel:
                    await _consume(QueuesStub(channel), request, notes)
            await asyncio.sleep(0.1)


async def _consume(queues: QueuesStub, request: pb.ConsumeRequest, notes) -> None:
    waiting: asyncio.Queue[str] = asyncio.Queue()

    async def ack() -> None:
        while True:
            receipts = [await waiting.get()]
            while not waiting.empty() and len(receipts) < 200:
                receipts.append(waiting.get_nowait())
            await queues.Ack(pb.AckRequest(receipts=receipts))

    acking = asyncio.ensure_future(ack())
    stream = queues.Consume(request)
    try:
        async for event in stream:
            notes.write(b"".join(delivery.body + b"\n" for delivery in event.deliveries))
            for delivery in event.deliveries:
                waiting.put_nowait(delivery.receipt)
            if acking.done():
                return
    finally:
        acking.cancel()
        stream.cancel()


class Storm:
    """One run."""

    #: What a peer runs, and further options of the broker.
    peer: ClassVar[list[str]] = [__file__, "--peer"]
    settings: ClassVar[tuple[str, ...]] = ()
    stub: ClassVar[Any] = TopicsStub

    def __init__(self, messages: int, folder: Path, url: str, seed: int) -> None:
        self._messages = messages
        self._folder = folder
        self._url = url
        self._chance = random.Random(seed)
        self._port = free_ports(1)[0]
        self.address = f"127.0.0.1:{self._port}"
        self.report = Report(messages)
        self._broker: asyncio.subprocess.Process | None = None
        self._peers: list[Peer] = []
        self._files: list[Peer] = []
        self._published = 0
        self._restarted = asyncio.Event()
        (folder / "receipts").write_bytes(os.urandom(32))

    async def run(self, *, kill: bool) -> Report:
        await self._start_broker()
        async with self._channel() as channel:
            for consumer in SUBSCRIPTIONS:
                await self._subscribe(self.stub(channel), consumer)
        for consumer in SUBSCRIPTIONS * PEERS:
            await self._start_peer(consumer)
        started = time.monotonic()
        watching = asyncio.ensure_future(self._watch_memory())
        faults = asyncio.ensure_future(self._make_faults()) if kill else None
        try:
            await asyncio.gather(*(self._publish(n) for n in range(PUBLISHERS)))
            if faults:
                # However fast all was published: both restarts belong to the storm.
                await asyncio.wait(
                    [faults, asyncio.ensure_future(self._restarted.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                faults.cancel()
            await self._until_all_is_received()
        finally:
            self.report.seconds = round(time.monotonic() - started, 1)
            watching.cancel()
            if faults:
                faults.cancel()
            for peer in self._peers:
                await peer.kill()
            await self._count()
            await self._stop_broker(signal.SIGTERM)
        return self.report

    def _channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.address, OPTIONS)

    async def _start_broker(self) -> None:
        with (self._folder / "broker.log").open("ab") as log:
            self._broker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", self._url, "serve", "grpc"),
                *("--listen", self.address, "--receipt-key", str(self._folder / "receipts")),
                *("--grace", "3", *self.settings),
                stderr=log,
            )

    async def _stop_broker(self, how: signal.Signals) -> None:
        assert self._broker is not None
        self._broker.send_signal(how)
        await self._broker.wait()
        self.report.broker_stops.append(f"{how.name} -> {self._broker.returncode}")

    async def _subscribe(self, topics: Any, consumer: str) -> None:
        who = pb.Subscriber(topic="storm", consumer=consumer)
        await topics.Subscribe(pb.SubscribeRequest(subscriber=who), wait_for_ready=True)

    async def _start_peer(self, consumer: str) -> None:
        peer = Peer(self.peer, self.address, consumer, self._folder)
        await peer.start()
        self._peers.append(peer)
        self._files.append(peer)

    async def _publish(self, publisher: int) -> None:
        """Publish this publisher's share, each message under a request id until it is answered."""
        numbers = iter(range(publisher, self._messages, PUBLISHERS))
        async with self._channel() as channel:
            topics = self.stub(channel)

            async def lane() -> None:
                for number in numbers:
                    await self._publish_one(topics, number)
                    self._published += 1

            await asyncio.gather(*(lane() for _ in range(WINDOW)))

    async def _publish_one(self, topics: Any, number: int) -> None:
        request = pb.PublishRequest(
            topic="storm",
            bodies=[b"%d" % number],
            request=pb.RequestId(id=uuid4().hex, durable=True),
        )
        await self._until_answered(topics, request)

    async def _until_answered(self, topics: Any, request: Any) -> None:
        while True:
            try:
                await topics.Publish(request, timeout=20, wait_for_ready=True)
                return
            except grpc.RpcError:
                self.report.publishes_repeated += 1
                await asyncio.sleep(0.05)

    async def _make_faults(self) -> None:
        """Kill a peer now and then; at one and at two thirds restart the broker."""
        restarts = [(1 / 3, signal.SIGTERM), (2 / 3, signal.SIGKILL)]
        while True:
            if not restarts:
                self._restarted.set()
            await asyncio.sleep(self._chance.uniform(2.0, 8.0) * min(1.0, self._messages / 10_000))
            if restarts and self._published >= restarts[0][0] * self._messages:
                await self._stop_broker(restarts.pop(0)[1])
                await self._start_broker()
            peer = self._peers.pop(self._chance.randrange(len(self._peers)))
            await peer.kill()
            self.report.peers_killed += 1
            await self._start_peer(peer.consumer)

    async def _until_all_is_received(self) -> None:
        async with RSMQ(self._url) as rsmq:
            quiet = 0
            while quiet < 5:
                found = (await rsmq.topic("storm").describe()).subscriptions
                left = sum(s.attributes.msgs for s in found if s.attributes)
                quiet = quiet + 1 if not left else 0
                await asyncio.sleep(0.2)

    async def _watch_memory(self) -> None:
        while True:
            with suppress(OSError, StopIteration):
                self.report.broker_rss_mb = max(
                    self.report.broker_rss_mb, _rss_mb(self._broker.pid)
                )
            await asyncio.sleep(1)

    async def _count(self) -> None:
        for consumer in SUBSCRIPTIONS:
            seen: Counter[int] = Counter()
            for peer in self._files:
                if peer.consumer == consumer and peer.file.exists():
                    lines = peer.file.read_bytes().split(b"\n")
                    seen.update(int(line) for line in lines if line)
            self.report.received[consumer] = seen.total()
            self.report.lost[consumer] = self._messages - len(seen)
            self.report.doubled[consumer] = seen.total() - len(seen)
        async with RSMQ(self._url) as rsmq:
            found = (await rsmq.topic("storm").describe()).subscriptions
            self.report.left_in_queues = sum(s.attributes.msgs for s in found if s.attributes)


def _rss_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) // 1024


async def storm(messages: int, *, kill: bool, seed: int = 1, kind: type[Storm] = Storm) -> Report:
    """Run one storm on a server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        async with PrivateServer() as server:
            return await kind(messages, Path(folder), server.url, seed).run(kill=kill)


def main() -> None:
    if sys.argv[1:2] == ["--peer"]:
        asyncio.run(be_peer(*sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--calm", action="store_true", help="kill nothing")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    report = asyncio.run(storm(given.messages, kill=not given.calm, seed=given.seed))
    sys.stdout.write(json.dumps(asdict(report), indent=2) + "\n")


if __name__ == "__main__":
    main()
