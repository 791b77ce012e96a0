"""RedisMQ's verbs: push, pop, ack, recover, inspect.

A consumer pops three messages, acknowledges one and dies. Another one looks at what was left
behind and takes it over.

Run it with ``python examples/reliable_queue.py``. It talks to the server in ``RSMQ_URL``, or starts
an embedded one. Its last line is: done
"""

import asyncio
import os
import uuid

from aiorsmq_ng import RSMQ
from aiorsmq_ng.compat.redismq import ReliableQueue

URL = os.environ.get("RSMQ_URL", "embedded://")


async def main() -> None:
    key = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL) as rsmq:
        try:
            first = ReliableQueue(rsmq, key, create=True)
            second = ReliableQueue(rsmq, key)
            ids = await first.push("msg1", "msg2", "msg3", "msg4")
            print(f"pushed {len(ids)} messages; the queue was made by that")

            popped = await first.pop(3)
            print("the first consumer popped", [body.decode() for _, body in popped])
            print("acknowledged:", len(await first.ack(ids[0])), "message; then it dies")

            await asyncio.sleep(0.1)
            print("undelivered:", [body.decode() for _, body in await second.inspect(-1, 1)])
            for _, body, _, elapsed_ms, deliveries in await second.inspect(0, 10, pending=True):
                print(f"delivered: {body.decode()}, {elapsed_ms} ms ago, {deliveries} delivery")

            recovered = await second.recover(10, elapsed_ms=50)
            print("the second consumer recovered", [body.decode() for _, body in recovered])

            late = await first.ack(*ids[:3])
            print(f"the first one lives after all, and may acknowledge {len(late)} messages")
            print("the second one may:", len(await second.ack(*(id for id, _ in recovered))))

            urgent = ReliableQueue(rsmq, f"{key}-urgent", create=True)
            await urgent.push("now!")
            try:
                for source, _, body in await ReliableQueue.pop_any([urgent, second], 5, block=1):
                    name = "urgent" if source == urgent.key else "ordinary"
                    print(f"popped in order of priority: {body.decode()!r} ({name})")
            finally:
                await rsmq.delete_queue(urgent.key)
            print("left:", await second.info())
        finally:
            await rsmq.delete_queue(key)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
