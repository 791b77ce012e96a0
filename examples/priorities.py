"""One worker for three queues: in strict order, and in an order drawn by weights.

Strict: a queue is served when those before it are empty. Weighted: heavier queues come first more
often, and none of them starves.

Run it with ``python examples/priorities.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import asyncio
import os
import uuid
from collections import Counter
from itertools import groupby
from typing import Literal

from aiorsmq_ng import RSMQ, Worker

URL = os.environ.get("RSMQ_URL", "embedded://")
WEIGHTS = {"urgent": 6, "normal": 3, "bulk": 1}


async def serve(
    rsmq: RSMQ, names: dict[str, str], order: Literal["strict", "weighted"], count: int
) -> list[str]:
    """Handle *count* messages and return their bodies in that order."""
    # What is leased ahead has been chosen; with prefetch=1 that is one message.
    worker = Worker(rsmq, concurrency=1, prefetch=1, order=order)
    handled: list[str] = []

    async def handle(body: str) -> None:
        handled.append(body)
        if body == "normal" and order == "strict" and handled.count("normal") == 1:
            await rsmq.queue(names["urgent"]).send("urgent")  # comes late, goes first
        if len(handled) == count:
            worker.stop()

    for level, weight in WEIGHTS.items():
        worker.handler(names[level], weight=weight)(handle)
    await worker.run()
    return handled


async def main() -> None:
    run = uuid.uuid4().hex[:8]
    names = {level: f"example-{run}-{level}" for level in WEIGHTS}
    async with RSMQ(URL) as rsmq:
        queues = {level: await rsmq.create_queue(name) for level, name in names.items()}
        try:
            for level in reversed(WEIGHTS):
                await queues[level].send_many([level] * 5)
            handled = await serve(rsmq, names, "strict", 16)
            print("strict:", ", ".join(f"{len(list(g))} {body}" for body, g in groupby(handled)))

            for level in WEIGHTS:
                await queues[level].send_many([level] * 200)
            counts = Counter(await serve(rsmq, names, "weighted", 200))
            print("weighted, first 200:", ", ".join(f"{counts[x]} {x}" for x in WEIGHTS))
        finally:
            for name in names.values():
                await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
