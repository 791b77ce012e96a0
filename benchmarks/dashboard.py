"""What open pages of the dashboard cost the server: ``python benchmarks/dashboard.py``.

Counts script calls per second with 0, 1 and 10 open overviews of 1000 queues, and with 10 open
pages of one queue, on a private server.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from contextlib import AsyncExitStack, contextmanager

import httpx
import uvicorn
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ
from aiorsmq_ng.dashboard import dashboard
from aiorsmq_ng.testing import PrivateServer


class Server(uvicorn.Server):
    """A server that leaves signals alone."""

    @contextmanager
    def capture_signals(self):
        """Let signals do what they do."""
        yield


async def script_calls(raw: Redis) -> int:
    found = await raw.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


async def measure(address: str, path: str, pages: int, raw: Redis, seconds: float) -> float:
    """Return script calls per second while *pages* are open."""
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(pages):
            web = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
            stream = await stack.enter_async_context(web.stream("GET", address + path))
            readers.append(asyncio.create_task(drain(stream)))
        await asyncio.sleep(5)
        before = await script_calls(raw)
        await asyncio.sleep(seconds)
        calls = await script_calls(raw) - before
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return calls / seconds


async def drain(stream: httpx.Response) -> None:
    async for _ in stream.aiter_bytes():
        pass


async def main(queues: int, seconds: float) -> None:
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        raw = Redis.from_url(server.url)
        for n in range(queues):
            await (await rsmq.create_queue(f"queue-{n}")).send("x")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            app = dashboard(rsmq)
            web = Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
            serving = asyncio.create_task(web.serve(sockets=[listening]))
            address = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1/events"
            for what, path, pages in (
                ("overviews", "", 0),
                ("overviews", "", 1),
                ("overviews", "", 10),
                ("pages of one queue", "?queue=queue-1", 10),
            ):
                rate = await measure(address, path, pages, raw, seconds)
                print(f"{pages:3} {what}, {queues} queues: {rate:6.1f} script calls/s")
            web.should_exit = True
            await serving
        await raw.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    asyncio.run(main(given.queues, given.seconds))
