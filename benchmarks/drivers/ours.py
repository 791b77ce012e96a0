"""aiorsmq-ng itself.

Further arguments: ``uvloop`` for that event loop, ``forgetful`` for scripts that remember no calls.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

from forgetful import forget
from talk import Job, Peer, serve

import aiorsmq_ng


class Ours(Peer):
    """Public names only, used as the documentation says."""

    packages = ("redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect."""
        self.rsmq = await aiorsmq_ng.RSMQ(url, ns="bench").open()

    async def reset(self) -> None:
        """Make the queue."""
        self.queue = await self.rsmq.create_queue("jobs", maxsize=-1)

    async def send(self, body: str) -> None:
        """Send one message."""
        await self.queue.send(body)

    async def send_many(self, bodies: list[str]) -> None:
        """Send messages by one call."""
        await self.queue.send_many(bodies)

    async def take(self) -> None:
        """Receive one message and acknowledge it."""
        message = await self.queue.receive()
        assert message is not None
        await message.ack()

    async def consume(self, job: Job, times: list[float]) -> None:
        """Iterate over the queue; acknowledge a batch at a time, while the next one is taken."""
        left, batch, going = job.messages, list[aiorsmq_ng.Delivery](), set[asyncio.Task[Any]]()
        async with self.queue.consume(prefetch=job.batch) as consumer:
            async for message in consumer:
                batch.append(message)
                left -= 1
                if len(batch) * 2 >= job.batch or not left:
                    if len(going) > 1:
                        done, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                        await asyncio.gather(*done)
                    going.add(asyncio.create_task(self.queue.ack_many(batch)))
                    batch = []
                if not left:
                    break
            await asyncio.gather(*going)


if "forgetful" in sys.argv:
    forget()  # the package loads its scripts later, when they are first needed
loops = import_module("uvloop" if "uvloop" in sys.argv else "asyncio")
serve(Ours(), run=loops.run)
