"""Share a queue with Go services that use rmq: publish with a trace, consume, reject, return.

A Go program that opens the same queue sees the same messages, and this one in its statistics.

Run it with ``python examples/share_with_go.py``. It talks to the server in ``RSMQ_URL``, or starts
an embedded one. Its last line is: done
"""

import asyncio
import os
import uuid

from aiorsmq_ng.rmq import Rmq

URL = os.environ.get("RSMQ_URL", "embedded://")


async def main() -> None:
    async with Rmq(URL, tag="example") as rmq:
        things = await rmq.queue(f"example-{uuid.uuid4().hex[:8]}")
        await things.publish({"n": 1}, headers={"traceparent": "00-ab-cd-01"})
        await things.publish({"n": 2})

        async with things.consume(prefetch=10) as deliveries:
            async with await anext(deliveries) as first:
                print("first:", first.json(), first.header("traceparent"))
            second = await anext(deliveries)
            await second.reject()
            print("rejected:", (await things.lengths()).rejected)

            await things.return_rejected()
            async with await anext(deliveries) as again:
                print("again:", again.json())

        stats = (await rmq.stats([things.name])).queues[things.name]
        print("left:", stats.ready, stats.rejected, stats.unacked)
        await things.destroy()
    print("done")


asyncio.run(main())
