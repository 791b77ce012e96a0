"""Handle messages in batches, here to write rows to a database with one statement.

A batch is handed over as soon as it is full, or a while after its first message came. What the
handler settles itself has that outcome; the rest is acked when it returns.

Run it with ``python examples/batch_handler.py``. It talks to the server in ``RSMQ_URL``, or starts
an embedded one. Its last line is: done
"""

import asyncio
import logging
import os
import sqlite3
import time
import uuid

from aiorsmq_ng import RSMQ, Delivery, InvalidValue, Worker

URL = os.environ.get("RSMQ_URL", "embedded://")
MESSAGES = 23
SIZE, WAIT = 10, 0.3


# The example rejects a message on purpose; a service wants to see the warning about it.
logging.getLogger("aiorsmq_ng.dead_letters").setLevel(logging.ERROR)


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    table = sqlite3.connect(":memory:")
    # The message id is the key: a message that comes twice makes one row.
    table.execute("CREATE TABLE readings (id TEXT PRIMARY KEY, celsius REAL)")
    async with RSMQ(URL) as rsmq:
        worker = Worker(rsmq)
        seen, began = 0, time.perf_counter()

        @worker.batch_handler(name, size=SIZE, wait=WAIT)
        async def store(batch: list[Delivery]) -> None:
            nonlocal seen
            rows = []
            for message in batch:
                try:
                    rows.append((message.id, message.json(float)))
                except InvalidValue as error:
                    await message.reject(str(error))
            with table:
                table.executemany("INSERT OR IGNORE INTO readings VALUES (?, ?)", rows)
            at = time.perf_counter() - began
            print(f"after {at:.2f} s a batch of {len(batch)}: {len(rows)} rows stored")
            seen += len(batch)
            if seen == MESSAGES:
                worker.stop()

        queue = await rsmq.create_queue(name)
        try:
            await queue.send_many([20 + n / 10 if n != 5 else "warm" for n in range(MESSAGES)])
            await worker.run()

            (stored,) = table.execute("SELECT count(*) FROM readings").fetchone()
            left = (await queue.attributes()).msgs
            print(f"{stored} rows in the table, {left} messages left in the queue")
            dead = rsmq.queue(queue.dead_letter)
            for message in await dead.peek():
                print(f"put aside: {message.text!r}, {await dead.reason(message.id)}")
        finally:
            await rsmq.delete_queue(name)
            await rsmq.delete_queue(queue.dead_letter)
            table.close()
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
