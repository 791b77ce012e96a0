"""Clients that do not read: ``python -m tools.storms.slow_readers [--readers 60]``.

Each opens a Consume stream for a thousand messages on a connection of its own, reads one event and
no more. Reports how much the broker has taken for them, and whether all of it comes back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack

import grpc
import grpc.aio

from aiorsmq_ng import RSMQ
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.servers import free_ports

from .broker import _rss_mb

SIZE, OPTIONS = 60_000, [("grpc.use_local_subchannel_pool", 1)]


async def run(readers: int, messages: int = 8000) -> dict[str, float]:
    """Let *readers* open streams and not read them; *messages* are there for them."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        for _ in range(0, messages, 100):
            await queue.send_many([bytes(SIZE)] * 100)
        broker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", server.url),
            *("serve", "grpc", "--listen", address, "--grace", "1"),
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, OPTIONS))
            await QueuesStub(channel).GetInfo(pb.GetInfoRequest(), wait_for_ready=True)
            before_mb = _rss_mb(broker.pid)
            request = pb.ConsumeRequest(
                sources=[pb.Source(queue="jobs")], max_unsettled=1000, vt_ms=600_000
            )
            streams = []
            for _ in range(readers):
                channel = await stack.enter_async_context(
                    grpc.aio.insecure_channel(address, OPTIONS)
                )
                streams.append(QueuesStub(channel).Consume(request))
                await streams[-1].read()
            leased, steady = -1, 0
            while steady < 10:
                now = (await queue.attributes()).leased
                steady = steady + 1 if now == leased else 0
                leased = now
                await asyncio.sleep(0.2)
            peak_mb = _rss_mb(broker.pid)
            for stream in streams:
                stream.cancel()
            async with asyncio.timeout(120):
                while (await queue.attributes()).ready < messages:
                    await asyncio.sleep(0.1)
        broker.terminate()
        await broker.wait()
        return {
            "readers": readers,
            "messages": messages,
            "bytes_each": SIZE,
            "leased_for_them": leased,
            "given_back": (await queue.attributes()).ready,
            "broker_rss_mb_before": before_mb,
            "broker_rss_mb_with_readers": peak_mb,
            "broker_exit": broker.returncode or 0,
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=60)
    sys.stdout.write(json.dumps(asyncio.run(run(parser.parse_args().readers)), indent=2) + "\n")
