"""Send, receive, pop and delete many messages by few calls.

Concurrent single calls become batches by themselves, too; the last part shows it.

Run it with ``python examples/batches.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import asyncio
import os
import time
import uuid

from aiorsmq_ng import RSMQ, MessageTooLong

URL = os.environ.get("RSMQ_URL", "embedded://")


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL) as rsmq:
        queue = await rsmq.create_queue(name, maxsize=1024)
        try:
            ids = await queue.send_many([{"number": i} for i in range(10)])
            print(f"sent {len(ids)} messages by one call")

            try:
                await queue.send_many(["short", "x" * 2000])
            except MessageTooLong as error:
                print(f"all or none: {error}")

            deliveries = await queue.receive_many(4)
            print("received in order:", [delivery.json()["number"] for delivery in deliveries])
            await asyncio.gather(*(delivery.ack() for delivery in deliveries))
            print("acked them, again by one call: acks of the same moment travel together")

            popped = await queue.pop_many(3)
            print("popped:", [message.json()["number"] for message in popped])

            deleted = await queue.delete_many(ids)
            print(f"deleted {len(deleted)} of {len(ids)} ids: the others were gone already")

            started = time.perf_counter()
            await asyncio.gather(*(queue.send(f"single {i}") for i in range(2000)))
            took = time.perf_counter() - started
            print(f"2000 tasks, each sending one message: {2000 / took:.0f} messages per second")
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
