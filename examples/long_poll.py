"""Wait for messages without asking over and over, and see how long the waits take.

A waiting receive ends when a message is sent, when a delayed message becomes visible, when a lease
runs out, or when its time is up.

Run it with ``python examples/long_poll.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import asyncio
import os
import time
import uuid

from aiorsmq_ng import RSMQ, Queue

URL = os.environ.get("RSMQ_URL", "embedded://")


async def wait(queue: Queue, seconds: float) -> float:
    """Wait for one message, ack it, and return when the wait was over."""
    started = time.perf_counter()
    delivery = await queue.receive(wait=seconds)
    ended = time.perf_counter()
    text = "nothing" if delivery is None else repr(delivery.text)
    print(f"  got {text} after {ended - started:.3f} s")
    if delivery is not None:
        await delivery.ack()
    return ended


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL) as rsmq:
        queue = await rsmq.create_queue(name)
        try:
            print("an empty queue, waiting 0.3 s at most:")
            await wait(queue, 0.3)

            print("a producer sends while we wait up to 10 s:")
            waiting = asyncio.create_task(wait(queue, 10))
            await asyncio.sleep(0.5)
            sent = time.perf_counter()
            await queue.send("wake up")
            ended = await waiting
            print(f"  that is {1000 * (ended - sent):.1f} ms after the send began")

            print("a message with a delay of 0.4 s:")
            await queue.send("later", delay=0.4)
            await wait(queue, 10)

            print("a message that a consumer holds for 0.3 s and forgets:")
            await queue.send("forgotten")
            await queue.receive(vt=0.3)
            await wait(queue, 10)
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
