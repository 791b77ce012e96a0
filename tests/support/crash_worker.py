"""A worker process for the crash tests: handles messages, dies of some of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from aiorsmq_ng import RSMQ, Delivery, Retry, Worker

MAX_RECEIVES = 5


async def main(url: str, ns: str) -> None:
    async with RSMQ(url, ns=ns) as rsmq:
        worker = Worker(rsmq, concurrency=20, grace=5)
        done = rsmq.queue("done")

        @worker.handler("jobs", retry=Retry(MAX_RECEIVES, base=0.01, cap=0.1), vt=1)
        async def handle(body: str, message: Delivery) -> None:
            if body.startswith("poison"):
                os.kill(os.getpid(), signal.SIGKILL)
            await done.send(body)

        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
