"""A program that ends with messages in hand: ``python -m tests.support.abrupt_program``.

Arguments: URL, namespace, what it does, how it ends, and whether the client is in a block.
"""

import asyncio
import sys
from contextlib import suppress

from aiorsmq_ng import RSMQ, Worker


class Blocks:
    """Messages in blocks, in tasks of their own."""

    def __init__(self, ending):
        self._ending = ending

    async def run(self, rsmq):
        queue, inside = rsmq.queue("jobs", vt=600), asyncio.Semaphore(0)

        async def work(message):
            async with message:
                inside.release()
                await asyncio.sleep(100)

        tasks = [asyncio.create_task(work(m)) for m in await queue.receive_many(3)]
        for _ in tasks:
            await inside.acquire()
        self._ending()
        await asyncio.sleep(100)


class PrefetchAndBlock(Blocks):
    """One message in a block, others leased ahead."""

    async def run(self, rsmq):
        async for message in rsmq.queue("jobs").consume(prefetch=10, vt=600):
            async with message:
                self._ending()
                await asyncio.sleep(100)


class BlocksInBackground(Blocks):
    """Three blocks have ended, and their acks are not sent yet."""

    async def run(self, rsmq):
        consumer = rsmq.queue("jobs").consume(prefetch=8, vt=600, settle="background")
        for message in [await anext(consumer) for _ in range(3)]:
            async with message:
                pass
        self._ending()
        await asyncio.sleep(100)


class Handlers(Blocks):
    """Messages with the handlers of a worker."""

    async def run(self, rsmq):
        worker, begun = Worker(rsmq, concurrency=3), []

        @worker.handler("jobs", vt=600)
        async def handle(message):
            begun.append(message)
            if len(begun) == 3:
                self._ending()
            await asyncio.sleep(100)

        await worker.run()


def end_of_main():
    raise RuntimeError("the end")


def system_exit():
    raise SystemExit(3)


def cancel_everything():
    for task in asyncio.all_tasks():
        task.cancel()


async def main(url, ns, program, ending, closing):
    rsmq = RSMQ(url, ns=ns)
    work = globals()[program](globals()[ending])
    if closing == "block":
        async with rsmq:
            await work.run(rsmq)
    else:
        await rsmq.open()
        await work.run(rsmq)


if __name__ == "__main__":
    with suppress(RuntimeError, SystemExit, asyncio.CancelledError):
        asyncio.run(main(*sys.argv[1:]))
