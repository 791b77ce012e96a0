"""A process that waits for messages, and prints how long each was under way."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable

from aiorsmq_ng import RSMQ, Options, Queue


async def wait_for_messages(queue: Queue, tell: Callable[[float], object]) -> None:
    """Receive and ack for ever; a body is the time at which it was sent."""
    while True:
        if (message := await queue.receive(wait=60)) is not None:
            took = time.monotonic() - float(message.text)
            await message.ack()
            tell(took)


async def main(url: str) -> None:
    """Wait until killed."""
    async with RSMQ(url, options=Options(connect_timeout=60, deadline=60)) as rsmq:
        await wait_for_messages(rsmq.queue("jobs"), lambda took: os.write(1, f"{took}\n".encode()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
