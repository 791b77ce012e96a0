"""A peer of a subscription: writes down what it is given, then acknowledges it; until killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from aiorsmq_ng import RSMQ, Delivery, LeaseLost, Options

#: On a machine that has much else to do.
PATIENT = Options(connect_timeout=60, deadline=120)


async def main(url: str, consumer: str, mode: str, vt: str, peer: str, file: str) -> None:
    """Observe for ever; SIGTERM ends it between two rounds."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with RSMQ(url, options=PATIENT) as rsmq:
        topic = rsmq.topic("storm")
        subscription = await topic.subscribe(
            consumer, mode=mode, peer=peer, vt=int(vt), peer_timeout=int(vt)
        )
        while not stop.is_set():
            found = await subscription.observe(wait=0.5)
            if found:
                out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                # One write is whole or not at all, also for a process that is killed.
                os.write(out, b"".join(message.body + b"\n" for message in found))
                os.close(out)
                done = await asyncio.gather(*map(Delivery.ack, found), return_exceptions=True)
                # One that was taken for dead, because its machine was slow, has lost its leases.
                for error in done:
                    if error is not None and not isinstance(error, LeaseLost):
                        raise error


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:7]))
