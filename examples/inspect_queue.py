"""Look into a queue without changing it, then empty it.

Run it with ``python examples/inspect_queue.py``. It talks to the server in ``RSMQ_URL``, or starts
an embedded one. Its last line is: done
"""

import asyncio
import os
import uuid

from aiorsmq_ng import RSMQ, Queue

URL = os.environ.get("RSMQ_URL", "embedded://")


async def describe(queue: Queue) -> None:
    found = await queue.attributes()
    print(f"{found.msgs} messages: {found.ready} ready, {found.delayed} delayed,", end=" ")
    print(f"{found.leased} leased; sent {found.totalsent}, received {found.totalrecv}")


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL) as rsmq:
        queue = await rsmq.create_queue(name, vt=30)
        try:
            await queue.send_many([f"job {i}" for i in range(6)])
            await queue.send("tomorrow", delay=86400)
            await queue.receive_many(2)
            await describe(queue)

            print("ready, oldest first:", [m.text for m in await queue.peek(count=2)])
            print("ready, the last one:", [m.text for m in await queue.peek(start=-1)])

            await asyncio.sleep(0.2)
            for held in await queue.pending():
                print(f"leased: {held.text!r}, {held.deliveries} delivery, idle for {held.idle} s")

            changed = await queue.set_attributes(vt=60)
            print(f"the queue's vt is {changed.vt} s now")

            print(f"purge removes {await queue.purge()}: what is not leased")
            await describe(queue)
            print(f"purge(leased=True) removes the other {await queue.purge(leased=True)}")
            await describe(queue)
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
