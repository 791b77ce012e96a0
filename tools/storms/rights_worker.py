"""A worker with the rights of a consumer: writes down what it is given; until killed or stopped."""

from __future__ import annotations

import asyncio
import os
import sys

from aiorsmq_ng import RSMQ, Delivery, Options, Retry, Worker

#: Far more deliveries than a message can lose by workers that are killed.
RETRY = Retry(30, base=0.01, cap=0.02)
PATIENT = Options(connect_timeout=60, deadline=120)


async def main(url: str, token: str, file: str) -> None:
    """Serve the queue ``jobs``; say so once it has begun."""
    rsmq = RSMQ(url, token=token or None, options=PATIENT)
    worker = Worker(rsmq, concurrency=8, grace=20)

    @worker.handler("jobs", vt=2, retry=RETRY)
    async def handle(message: Delivery) -> None:
        key = message.body.split(b" ", 1)[0]
        out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(out, key + b"\n")
        os.close(out)
        if key.startswith(b"bad"):
            await message.reject("it is bad")
        if key.startswith(b"worse"):
            raise ValueError("it never works")

    @worker.on_start
    async def begun() -> None:
        os.write(1, b"begun\n")

    async with rsmq:
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
