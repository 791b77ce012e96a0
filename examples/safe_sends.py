"""Send so that nothing is stored twice, also if the network or your process fails.

A reply that gets lost is asked for again by the client itself. Two cases are left to you: the
outcome could not be learnt before the deadline, and your process was restarted in between.

Run it with ``python examples/safe_sends.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import asyncio
import os
import uuid

from aiorsmq_ng import RSMQ, Options, Queue, SendUnknown

URL = os.environ.get("RSMQ_URL", "embedded://")


async def send_surely(queue: Queue, body: str) -> str:
    """Send, and wait as long as it takes to know that the message is stored, once."""
    try:
        return await queue.send(body)
    except SendUnknown as error:
        unknown = error
    while True:
        if unknown.token is None:
            raise unknown  # the client was closed
        try:
            return (await queue.resend(unknown.token))[0]
        except SendUnknown as error:
            unknown = error


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    async with RSMQ(URL, options=Options(deadline=5, dedup_window=3600)) as rsmq:
        queue = await rsmq.create_queue(name)
        try:
            id = await send_surely(queue, "charge order 7")
            print(f"stored, once: {id[:10]}...")

            # After a restart a token is forgotten. A key that belongs to the work itself keeps
            # the second copy away, even if the first was consumed already.
            first = await queue.send("ship order 7", dedup_key="ship-7")
            async for message in queue:
                async with message:
                    print(f"handled: {message.text}")
                    if message.id == first:
                        break
            again = await queue.send("ship order 7", dedup_key="ship-7")
            left = (await queue.attributes()).msgs
            print(f"sent again: duplicate is {again.duplicate}, {left} messages in the queue")
        finally:
            await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
