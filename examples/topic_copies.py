"""Give every instance of a service its own copy of each event, to clear its cache, say.

One instance keeps everything for the service. If it vanishes, what it has not handled passes to
the instance that gives the next sign of life, so the service as a whole misses nothing.

Run it with ``python examples/topic_copies.py``. It talks to the server in ``RSMQ_URL``, or starts
an embedded one. Its last line is: done
"""

import os
import uuid

import anyio

from aiorsmq_ng import RSMQ, Subscription

URL = os.environ.get("RSMQ_URL", "embedded://")


async def drain(subscription: Subscription) -> list[str]:
    texts = []
    for message in await subscription.observe():
        texts.append(message.text)
        await message.ack()
    return texts


async def main() -> None:
    async with RSMQ(URL) as rsmq:
        changes = rsmq.topic(f"example-{uuid.uuid4().hex[:8]}")
        try:
            one = await changes.subscribe(
                "cache", mode="broadcast", peer="host-1", peer_timeout=0.1
            )
            two = await changes.subscribe(
                "cache", mode="broadcast", peer="host-2", peer_timeout=0.1
            )
            await changes.publish("price of 4711")
            print(f"host-1 clears {await drain(one)}")
            print(f"host-2 clears {await drain(two)}")
            await changes.publish("price of 4712")
            await anyio.sleep(0.2)  # both have died
            three = await changes.subscribe("cache", mode="broadcast", peer="host-3")
            await changes.publish("price of 4713")
            print(f"host-3 clears {await drain(three)}")
        finally:
            await changes.delete()
    print("done")


if __name__ == "__main__":
    anyio.run(main)
