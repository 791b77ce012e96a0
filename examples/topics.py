"""Publish events; two services get all of them, one of them with two workers that share.

What is published before the first subscription waits for it. Each service has its own
queue, so a slow one does not hold up the other, and a message is handled at least once by each.

Run it with ``python examples/topics.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import os
import uuid
from collections.abc import Callable

import anyio

from aiorsmq_ng import RSMQ, Subscription

URL = os.environ.get("RSMQ_URL", "embedded://")
EVENTS = 8
Enough = Callable[[], None]


async def serve(name: str, subscription: Subscription, seen: list[int], enough: Enough) -> None:
    async for message in subscription:
        async with message:
            order = message.json()["order"]
            print(f"{name} handles order {order}")
        seen.append(order)
        enough()


async def main() -> None:
    orders = f"example-{uuid.uuid4().hex[:8]}"
    billing_seen: list[int] = []
    mail_seen: list[int] = []
    async with RSMQ(URL) as rsmq:
        topic = rsmq.topic(orders)
        try:
            await topic.publish({"order": 0})  # no subscription yet: it waits
            billing = await topic.subscribe("billing")
            mail = await topic.subscribe("mail")
            async with anyio.create_task_group() as tasks:

                def enough() -> None:
                    if len(billing_seen) == EVENTS and len(mail_seen) == EVENTS - 1:
                        tasks.cancel_scope.cancel()

                tasks.start_soon(serve, "billing 1", billing, billing_seen, enough)
                tasks.start_soon(serve, "billing 2", billing, billing_seen, enough)
                tasks.start_soon(serve, "mail", mail, mail_seen, enough)
                for number in range(1, EVENTS):
                    await topic.publish({"order": number})
            info = await topic.describe()
            print(f"subscribed: {[s.consumer for s in info.subscriptions]}")
            print(f"billing has handled {sorted(billing_seen)}, mail {sorted(mail_seen)}")
        finally:
            await topic.delete()
    print("done")


if __name__ == "__main__":
    anyio.run(main)
