"""Messages that cannot be handled: how they get into the dead-letter queue, and out again.

Three ways lead there: a handler that raises until the deliveries are used up, a body that is not
what the handler wants, and a message whose holders vanish without settling it. ``reason`` shows
which; ``redrive`` moves back what can be handled now.

Run it with ``python examples/dead_letters.py``. It talks to the server in ``RSMQ_URL``, or starts
an embedded one. Its last line is: done
"""

import asyncio
import logging
import os
import uuid
from dataclasses import dataclass

from aiorsmq_ng import RSMQ, Message, Queue, Retry, Worker

URL = os.environ.get("RSMQ_URL", "embedded://")
RETRY = Retry(max_receives=3, base=0.1, cap=1)

# The worker logs every failure with its traceback; the output below says enough.
logging.getLogger("aiorsmq_ng").addHandler(logging.NullHandler())


@dataclass
class Payment:
    """What the handler wants."""

    cents: int
    currency: str


def make_worker(rsmq: RSMQ, name: str, currencies: set[str]) -> Worker:
    worker = Worker(rsmq)

    @worker.handler(name, retry=RETRY)
    async def book(payment: Payment) -> None:
        if payment.currency not in currencies:
            raise LookupError(f"no rate for {payment.currency}")

    return worker


async def serve(worker: Worker, queue: Queue, dead: int) -> None:
    """Run *worker* until the queue is empty and *dead* messages were put aside."""
    running = asyncio.create_task(worker.run())
    stats = await queue.stats()
    while stats.attributes.msgs or stats.dead < dead:
        print(f"  ready {stats.ready}, hidden {stats.leased}, dead {stats.dead}")
        await asyncio.sleep(0.1)
        stats = await queue.stats()
    worker.stop()
    await running
    health = worker.health
    print(f"done {health.done}, tried again {health.failed}, given up {health.rejected}")


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL) as rsmq:
        await rsmq.create_queue(name)
        queue = rsmq.queue(name, retry=RETRY)
        dead = rsmq.queue(queue.dead_letter)
        try:
            await queue.send("kills its consumer")
            for _ in range(RETRY.max_receives):
                await queue.receive(vt=0)  # received, and never heard of again
            await queue.send_many([Payment(100, "EUR"), Payment(250, "NOK"), Payment(50, "PEN")])
            await queue.send({"cents": "a lot"})

            print("a worker that knows euros only:")
            await serve(make_worker(rsmq, name, {"EUR"}), queue, dead=4)

            print("the dead letters:")
            reasons: dict[str, str | None] = {}
            for message in await dead.peek(count=100):
                reasons[message.id] = await dead.reason(message.id)
                print(f"  {message.text}, received {message.rc} x: {reasons[message.id]}")

            def can_be_booked_now(message: Message) -> bool:
                return "NOK" in (reasons[message.id] or "")

            moved = await queue.redrive(where=can_be_booked_now, rate=100)
            print(f"a worker that knows crowns, too, for {moved} message moved back:")
            await serve(make_worker(rsmq, name, {"EUR", "NOK"}), queue, dead=3)
            print(f"{await dead.purge()} messages are beyond help and purged")
        finally:
            await rsmq.delete_queue(name)
            await rsmq.delete_queue(dead.name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
