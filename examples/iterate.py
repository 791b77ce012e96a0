"""Handle messages with ``async for`` and ``async with``, by several consumers side by side.

The block around a message renews its lease, acks at the end, and gives the message back if it
raises: here one handler fails once, and the message comes again.

Run it with ``python examples/iterate.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import os
import uuid

import anyio

from aiorsmq_ng import RSMQ, Queue

URL = os.environ.get("RSMQ_URL", "embedded://")
CONSUMERS = 3
MESSAGES = 12


async def handle(consumer: int, text: str, attempt: int) -> None:
    if text == "job 5" and attempt == 1:
        raise RuntimeError("no luck this time")
    await anyio.sleep(0.05)
    print(f"consumer {consumer} has handled {text!r} at attempt {attempt}")


async def consume(consumer: int, queue: Queue, handled: list[str], stop: anyio.CancelScope) -> None:
    async for message in queue:
        try:
            async with message:
                await handle(consumer, message.text, message.rc)
        except RuntimeError as error:
            print(f"consumer {consumer} gives {message.text!r} back: {error}")
            continue
        handled.append(message.text)
        if len(handled) == MESSAGES:
            stop.cancel()


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    handled: list[str] = []
    async with RSMQ(URL) as rsmq:
        queue = await rsmq.create_queue(name)
        try:
            async with anyio.create_task_group() as tasks:
                for consumer in range(1, CONSUMERS + 1):
                    tasks.start_soon(consume, consumer, queue, handled, tasks.cancel_scope)
                for i in range(MESSAGES):
                    await queue.send(f"job {i}")
            left = (await queue.attributes()).msgs
            print(f"{len(set(handled))} different messages handled, {left} left")
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    anyio.run(main)
