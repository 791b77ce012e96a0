"""A worker process with all defaults, for the tests with poison: dies of some messages."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from aiorsmq_ng import RSMQ, Retry, Worker

MAX_RECEIVES = 3


async def main(url: str, ns: str, vt: str, work_s: str) -> None:
    async with RSMQ(url, ns=ns) as rsmq:
        worker = Worker(rsmq)
        done = rsmq.queue("done")

        @worker.handler("jobs", retry=Retry(MAX_RECEIVES), vt=float(vt))
        async def handle(body: str) -> None:
            if body.startswith("poison"):
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(float(work_s))
            await done.send(body)

        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
