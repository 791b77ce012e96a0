"""Send messages, receive them, and end each delivery in one of three ways.

Run it with ``python examples/send_receive.py``. It talks to the server in ``RSMQ_URL``, or starts
an embedded one. Its last line is: done
"""

import asyncio
import os
import uuid

from aiorsmq_ng import RSMQ, Delivery, LeaseLost, Queue

URL = os.environ.get("RSMQ_URL", "embedded://")


async def receive(queue: Queue) -> Delivery:
    delivery = await queue.receive(wait=5)
    if delivery is None:
        raise SystemExit("nothing came within 5 seconds")
    print(f"received {delivery.text!r} for the {delivery.rc}. time")
    return delivery


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL) as rsmq:
        queue = await rsmq.create_queue(name, vt=30)
        try:
            await queue.send("first")
            delivery = await receive(queue)
            await delivery.ack()
            print("  acked: it is deleted")

            await queue.send("second")
            delivery = await receive(queue)
            await delivery.release()
            print("  released: it is visible again, and its receive count goes on")

            newer = await receive(queue)
            try:
                await delivery.ack()
            except LeaseLost as error:
                print(f"  the old receipt is refused: {error}")

            await newer.reject("example of a message that cannot be handled")
            dead = rsmq.queue(queue.dead_letter)
            print(f"  rejected: it is in queue {dead.name!r}")
            for message in await dead.peek():
                print(f"  there: {message.text!r}, because: {await dead.reason(message.id)}")
            await rsmq.delete_queue(dead.name)
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
