"""Use queues through a broker: the same client, another URL.

A service that may not reach Redis is given ``RSMQ_URL=grpcs://broker:10001`` and a token in
``RSMQ_TOKEN``, and nothing else changes. Here the broker runs in the same process, in front of the
server that RSMQ_URL names. Needs the extra ``grpc``. Run it with RSMQ_URL set, or on
redis://localhost:6379. Its last line is: done: 3 orders, 0 left
"""

import asyncio
import secrets

from aiorsmq_ng import RSMQ
from aiorsmq_ng.broker import Broker, BrokerOptions, Tokens

QUEUE = "example-grpc-client"


async def service(rsmq: RSMQ) -> int:
    """Send and handle orders; it does not know what is behind *rsmq*."""
    queue = await rsmq.create_queue(QUEUE, vt=30, exist_ok=True)
    await queue.send_many([{"order": number} for number in range(3)])
    handled = 0
    async for message in queue.consume(prefetch=2):
        async with message:
            print("order", message.json()["order"])
        handled += 1
        if handled == 3:
            break
    return handled


async def main() -> None:
    token = secrets.token_urlsafe(24)
    options = BrokerOptions(listen=("127.0.0.1:0",))
    async with RSMQ() as redis, Broker(redis, options, Tokens.single(token)) as broker:
        async with RSMQ(f"grpc://{broker.addresses[0]}", token=token) as rsmq:
            handled = await service(rsmq)
            left = (await rsmq.queue(QUEUE).attributes()).msgs
        await redis.delete_queue(QUEUE)
    print(f"done: {handled} orders, {left} left")


asyncio.run(main())
