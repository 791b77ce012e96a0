"""A peer of a subscription: writes down what it is given, then acknowledges it; until killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from aiorsmq_ng import RSMQ


async def main(url: str, consumer: str, peer: str, file: str) -> None:
    """Observe for ever; SIGTERM ends it between two rounds."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with RSMQ(url) as rsmq:
        subscription = await rsmq.topic("storm").subscribe(consumer, peer=peer)
        while not stop.is_set():
            found = await subscription.observe(wait=0.5)
            if found:
                out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                # One write is whole or not at all, also for a process that is killed.
                os.write(out, b"".join(message.body + b"\n" for message in found))
                os.close(out)
                await asyncio.gather(*(message.ack() for message in found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
