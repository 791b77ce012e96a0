"""A job that runs four times as long as its lease, and what happens without renewal.

The lease is short, so that the message of a crashed process is back soon; it is renewed while the
handler runs, so no other consumer receives it. Work that blocks goes into a thread: a blocked
event loop cannot renew anything.

Run it with ``python examples/long_job.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import asyncio
import os
import time
import uuid

from aiorsmq_ng import RSMQ, Delivery, LeaseLost, Queue, Worker

URL = os.environ.get("RSMQ_URL", "embedded://")
LEASE, JOB = 1.0, 4.0


async def count_renewals(message: Delivery, job: asyncio.Task[None]) -> int:
    """Look at the end of the lease until *job* is done, and count how often it moved."""
    renewals, end = 0, message.lease.expires_at
    while not job.done():
        await asyncio.wait([job], timeout=0.02)
        if message.lease.expires_at > end:
            renewals, end = renewals + 1, message.lease.expires_at
    return renewals


async def with_renewal(rsmq: RSMQ, queue: Queue) -> None:
    worker, started = Worker(rsmq), asyncio.Event()

    @worker.handler(queue.name, vt=LEASE)
    async def handle(message: Delivery) -> None:
        started.set()
        began = time.perf_counter()
        job = asyncio.create_task(asyncio.to_thread(time.sleep, JOB))
        renewals = await count_renewals(message, job)
        took = time.perf_counter() - began
        print(f"a job of {took:.1f} s on a lease of {LEASE:g} s: {renewals} renewals")
        worker.stop()

    await queue.send("long job")
    serving = asyncio.create_task(worker.run())
    await started.wait()
    rival = await queue.receive(wait=JOB - 1)
    print("a rival that waits meanwhile gets", "nothing" if rival is None else repr(rival.text))
    await serving
    attributes = await queue.attributes()
    print(f"left in the queue: {attributes.msgs}, handled: {worker.health.done}")


async def without_renewal(queue: Queue) -> None:
    await queue.send("the same without renewal")
    slow = await queue.receive(vt=0.3)
    other = await queue.receive(wait=5)
    if slow is None or other is None:
        raise SystemExit("the message did not come back")
    print(f"after the lease another consumer has it, at delivery {other.rc}")
    try:
        await slow.ack()
    except LeaseLost as error:
        print(f"  the slow one is refused: {error}")
    await other.ack()


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL) as rsmq:
        queue = await rsmq.create_queue(name)
        try:
            await with_renewal(rsmq, queue)
            await without_renewal(queue)
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
