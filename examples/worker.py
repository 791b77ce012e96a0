"""A worker with two handlers: typed bodies, a retry policy, a timeout, middleware.

``worker`` is a name of the module, so the command line can run it as a service, until Ctrl-C::

    export RSMQ_URL=embedded://
    rsmqctl worker run examples.worker:worker
    rsmqctl message send -n example-orders -m '{"number": 7, "city": "Graz"}'

Run it with ``python examples/worker.py`` to see it serve a few orders and stop. It talks to the
server in ``RSMQ_URL``, or starts an embedded one. Its last line is: done
"""

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any

from aiorsmq_ng import RSMQ, Delivery, Retry, Worker
from aiorsmq_ng.worker import Next

URL = os.environ.get("RSMQ_URL", "embedded://")
ORDERS, MAILS = "example-orders", "example-mails"

worker = Worker(URL, concurrency=4, grace=10)


@dataclass
class Order:
    """What the handler gets."""

    number: int
    city: str


@worker.middleware
async def measure(message: Delivery, call_next: Next) -> Any:
    started = time.perf_counter()
    try:
        return await call_next()
    finally:
        print(f"  {message.queue}: {1000 * (time.perf_counter() - started):.0f} ms")


@worker.handler(ORDERS, retry=Retry(max_receives=5, base=2, cap=60), timeout=30)
async def ship(order: Order) -> None:
    await asyncio.sleep(0.05)
    await worker.rsmq.queue(MAILS).send(f"Order {order.number} is on its way to {order.city}.")


@worker.handler(MAILS, vt=10)
async def mail(text: str, message: Delivery) -> None:
    print(f"mail {message.id[:10]}, delivery {message.rc}: {text}")


def stop_after(count: int) -> None:
    """Stop the worker when it has handled *count* messages."""
    left = count

    @worker.middleware
    async def counting(_: Delivery, call_next: Next) -> Any:
        nonlocal left
        result = await call_next()
        left -= 1
        if left == 0:
            worker.stop()
        return result


async def main() -> None:
    cities = ["Graz", "Lima", "Oslo", "Pune"]
    async with RSMQ(URL) as rsmq:
        orders = await rsmq.create_queue(ORDERS, exist_ok=True)
        await orders.send_many(Order(number, city) for number, city in enumerate(cities, 1))
        stop_after(2 * len(cities))
        try:
            await worker.run()  # ends when stopped, here by the middleware
            health = worker.health
            print(f"{health.state}: {health.done} done, {health.failed} failed")
        finally:
            await rsmq.delete_queue(ORDERS)
            await rsmq.delete_queue(MAILS)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
