"""Hostile clients of the broker beside an honest one: what it notices, and what the broker holds.

The hostile one is a process of its own: ``python -m tools.storms.hostile KIND ADDRESS`` goes on
until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import grpc.aio

from aiorsmq_ng import RSMQ
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.servers import free_ports
from tests.support.http2 import RawClient, raw_client

from ..lab import Verdict
from .broker import _rss_mb

TOKENS = {name: f"the-token-of-the-{name}-client" for name in ("honest", "hostile")}
HEADERS = [("authorization", f"Bearer {TOKENS['hostile']}")]
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
MIB = 1024 * 1024
#: What the hostile one finds in its queue: some MB, to be asked for again and again.
SIZE, MESSAGES = 60_000, 1000
#: Pause of the honest client between two rounds of send, receive and ack.
PAUSE_S = 0.02

Attack = Callable[[str], Awaitable[None]]


def half_sent(method: str, headers: list[tuple[str, str]], connections: int = 4) -> Attack:
    """Begin messages of 4 MiB, 200 on each connection, and never end them; then again."""

    async def attack(address: str) -> None:
        async def one() -> None:
            while True:
                async with raw_client(address) as client:
                    for _ in range(200):
                        client.push(client.open(method, missing=4 * MIB, headers=headers), 4 * MIB)
                    await client.quiet(1.0)

        await asyncio.gather(*(one() for _ in range(connections)))

    return attack


def unread(method: str, request: Any, streams: int = 50, connections: int = 4) -> Attack:
    """Ask for as much as there is, on several connections, and read none of it."""

    async def attack(address: str) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(connections):
                client: RawClient = await stack.enter_async_context(raw_client(address))
                client.reads = False
                for _ in range(streams):
                    client.open(method, request.SerializeToString(), headers=HEADERS)
            await asyncio.Event().wait()

    return attack


def many(method: str, message: bytes, streams: int, headers: list[tuple[str, str]]) -> Attack:
    """Open many streams, 900 per connection, and leave them open."""

    async def attack(address: str) -> None:
        async with AsyncExitStack() as stack:
            for first in range(0, streams, 900):
                client: RawClient = await stack.enter_async_context(raw_client(address))
                for _ in range(first, min(streams, first + 900)):
                    client.open(method, message, headers=headers)
            await asyncio.Event().wait()

    return attack


def flood(headers: list[tuple[str, str]], width: int = 16) -> Attack:
    """Make calls under ever new request ids, as fast as they are answered."""

    async def attack(address: str) -> None:
        async with grpc.aio.insecure_channel(address, OPTIONS) as channel:
            queues = QueuesStub(channel)

            async def lane() -> None:
                while True:
                    id = pb.RequestId(id=uuid4().hex)
                    request = pb.ReceiveRequest(sources=[pb.Source(queue="empty")], request=id)
                    with suppress(grpc.RpcError):
                        await queues.Receive(request, metadata=headers)

            await asyncio.gather(*(lane() for _ in range(width)))

    return attack


_STOCK = [pb.Source(queue="stock")]
_AGAIN = pb.ReceiveRequest(sources=_STOCK, count=1000, vt_ms=0, max_bytes=64 * MIB)
ATTACKS: dict[str, Attack] = {
    "requests half sent, no token": half_sent("/aiorsmq.v1.Queues/Send", []),
    "requests half sent": half_sent("/aiorsmq.v1.Queues/Send", HEADERS),
    "200 Receives not read": unread("/aiorsmq.v1.Queues/Receive", _AGAIN),
    "200 Consumes not read": unread(
        "/aiorsmq.v1.Queues/Consume", pb.ConsumeRequest(sources=_STOCK, max_unsettled=1000)
    ),
    "4 100 Watches": many(
        "/aiorsmq.v1.Queues/Watch", pb.WatchRequest(queues=["stock"]).SerializeToString(), 4100,
        HEADERS,
    ),
    "9 000 Health/Watch, no token": many("/grpc.health.v1.Health/Watch", b"", 9000, []),
    "calls without a pause": flood(HEADERS),
    "calls without a pause, no token": flood([]),
}  # fmt: skip


async def beside(attack: str | None, seconds: float) -> tuple[dict[str, Any], Verdict | None]:
    """Let an honest client work for *seconds* beside an attack; return what came of it."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.toml"
        tokens.write_text(
            "".join(
                f'[{name}]\ntoken = "{token}"\nroles = ["producer", "consumer"]\n'
                for name, token in TOKENS.items()
            )
        )
        tokens.chmod(0o600)
        async with PrivateServer() as server, RSMQ(server.url) as rsmq:
            for name in ("jobs", "stock", "empty"):
                await rsmq.create_queue(name)
            for _ in range(0, MESSAGES, 100):
                await rsmq.queue("stock").send_many([bytes(SIZE)] * 100)
            broker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", server.url, "serve", "grpc"),
                *("--listen", address, "--tokens", str(tokens), "--grace", "0.2"),
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                return await _watched(broker.pid, address, attack, seconds), None
            finally:
                broker.kill()
                await broker.wait()


async def _watched(pid: int, address: str, attack: str | None, seconds: float) -> dict[str, Any]:
    async with grpc.aio.insecure_channel(address, OPTIONS) as channel:
        honest = Honest(QueuesStub(channel))
        await honest.round(wait_for_ready=True)
        before_mb = peak_mb = _rss_mb(pid)
        hostile = attack and await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tools.storms.hostile", attack, address),
            stderr=asyncio.subprocess.DEVNULL,
        )
        honest.times_ms.clear()
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                await honest.round(timeout=30)
                peak_mb = max(peak_mb, _rss_mb(pid))
                await asyncio.sleep(PAUSE_S)
        finally:
            if hostile:
                with suppress(ProcessLookupError):
                    hostile.kill()
                await hostile.wait()
    times = sorted(honest.times_ms)
    return {
        "honest calls": len(times) + honest.failed,
        "failed": honest.failed,
        "median ms": statistics.median(times),
        "p99 ms": times[int(len(times) * 0.99)],
        "broker MB before": before_mb,
        "at most": peak_mb,
    }


class Honest:
    """Sends, receives and acks one message after the other, and looks at the clock."""

    def __init__(self, queues: QueuesStub) -> None:
        self._queues = queues
        self._how = {"metadata": [("authorization", f"Bearer {TOKENS['honest']}")]}
        self.times_ms: list[float] = []
        self.failed = 0

    async def round(self, **how: Any) -> None:
        """Make the three calls."""
        queues = self._queues
        await self._make(queues.Send, pb.SendRequest(queue="jobs", bodies=[b"x"]), **how)
        got = await self._make(
            queues.Receive, pb.ReceiveRequest(sources=[pb.Source(queue="jobs")]), **how
        )
        if got is not None and got.deliveries:
            receipts = [delivery.receipt for delivery in got.deliveries]
            await self._make(queues.Ack, pb.AckRequest(receipts=receipts), **how)

    async def _make(self, call: Any, request: Any, **how: Any) -> Any:
        began = time.monotonic()
        try:
            answer = await call(request, **self._how, **how)
        except grpc.RpcError:
            self.failed += 1
            return None
        self.times_ms.append((time.monotonic() - began) * 1000)
        return answer


def scenes(seconds: float) -> dict[str, Any]:
    """Return every attack, and none, by its name."""
    calm = {"no attack": beside(None, seconds)}
    return calm | {name: beside(name, seconds) for name in ATTACKS}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--short"]:
        for title, scene in scenes(5).items():
            sys.stdout.write(f"{title}: {json.dumps(asyncio.run(scene)[0])}\n")
            sys.stdout.flush()
    else:
        asyncio.run(ATTACKS[sys.argv[1]](sys.argv[2]))
