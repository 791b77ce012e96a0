"""Many streams at once on the broker: ``python -m tools.storms.broker_streams [--streams 2000]``.

Opens Consume streams that each hold one message at a time, sends as many messages as there are
streams three times over, and reports how long it took and what the broker needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

import grpc
import grpc.aio

from aiorsmq_ng import RSMQ
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.servers import free_ports

from .broker import _rss_mb

CHANNELS, ROUNDS = 20, 3


async def run(streams: int) -> dict[str, float]:
    """Open *streams* streams, and give each of them some messages."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        broker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", server.url),
            *("serve", "grpc", "--listen", address),
            stderr=asyncio.subprocess.DEVNULL,
        )
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.aio.insecure_channel(address, options) for _ in range(CHANNELS)]
        stubs = [QueuesStub(channel) for channel in channels]
        await stubs[0].GetInfo(pb.GetInfoRequest(), wait_for_ready=True)
        before_mb = _rss_mb(broker.pid)
        seen: list[bytes] = []
        done, refused = asyncio.Event(), 0

        async def ack(stub: QueuesStub, receipts: list[str]) -> None:
            nonlocal refused
            while True:
                try:
                    await stub.Ack(pb.AckRequest(receipts=receipts))
                    return
                except grpc.RpcError as error:
                    # More calls at once than the broker takes: it says so, and we come again.
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    refused += 1
                    await asyncio.sleep(0.1)

        async def consume(stub: QueuesStub) -> None:
            request = pb.ConsumeRequest(sources=[pb.Source(queue="jobs")], max_unsettled=1)
            async for event in stub.Consume(request):
                seen.extend(delivery.body for delivery in event.deliveries)
                receipts = [delivery.receipt for delivery in event.deliveries]
                await ack(stub, receipts)
                if len(seen) >= ROUNDS * streams:
                    done.set()

        started = time.monotonic()
        tasks = [asyncio.create_task(consume(stubs[n % CHANNELS])) for n in range(streams)]
        while (await queue.stats()).consumers[:1] == ():
            await asyncio.sleep(0.1)
        while (await queue.stats()).consumers[0].consumers < streams:
            await asyncio.sleep(0.1)
        opened = time.monotonic()
        for number in range(ROUNDS):
            await queue.send_many([b"%d-%d" % (number, n) for n in range(streams)])
        async with asyncio.timeout(300):
            await done.wait()
            while (await queue.attributes()).msgs:
                await asyncio.sleep(0.05)
        ended = time.monotonic()
        peak_mb = _rss_mb(broker.pid)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in channels:
            await channel.close()
        broker.terminate()
        await broker.wait()
        return {
            "streams": streams,
            "messages": ROUNDS * streams,
            "lost": ROUNDS * streams - len(set(seen)),
            "doubled": len(seen) - len(set(seen)),
            "acks_refused_and_repeated": refused,
            "left": (await queue.attributes()).msgs,
            "seconds_to_open": round(opened - started, 1),
            "seconds_to_deliver": round(ended - opened, 1),
            "broker_rss_mb_before": before_mb,
            "broker_rss_mb_with_streams": peak_mb,
            "broker_exit": broker.returncode or 0,
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=2000)
    sys.stdout.write(json.dumps(asyncio.run(run(parser.parse_args().streams)), indent=2) + "\n")
