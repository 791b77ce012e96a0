"""Queues of rmq behind sentinels, before and after a failover."""

from __future__ import annotations

import asyncio
from collections import Counter

from aiorsmq_ng import LeaseLost, Options
from aiorsmq_ng.rmq import Rmq
from tools.lab.topologies import SentinelGroup

from ..support.waiting import until

#: Calls outlast a failover on a machine that stalls.
OPTIONS = Options(connect_timeout=30, deadline=60)


async def test_consumers_and_publishers_go_on_after_a_failover():
    handled: Counter[bytes] = Counter()
    async with SentinelGroup() as group, Rmq(group.url, tag="svc", options=OPTIONS) as rmq:
        things = await rmq.queue("things")
        await things.publish(*(f"before-{n}" for n in range(50)))
        holding, gate = asyncio.Event(), asyncio.Event()

        async def consume() -> None:
            async for delivery in things.consume(prefetch=10):
                handled[delivery.body] += 1
                if len(handled) == 20:
                    holding.set()
                    await gate.wait()
                try:
                    await delivery.ack()
                except LeaseLost:
                    handled[delivery.body] -= 1

        task = asyncio.create_task(consume())
        await holding.wait()
        name = rmq.connection
        # What the replica does not have yet is lost with its master, and no client can help it.
        await group.caught_up()
        group.master.kill()
        published = asyncio.create_task(things.publish(*(f"after-{n}" for n in range(50))))
        await group.failed_over()
        await published
        gate.set()
        await until(lambda: len(+handled) == 100)

        async def all_settled() -> bool:
            queue = (await rmq.stats()).queues["things"]
            return (queue.ready, queue.unacked, queue.rejected) == (0, 0, 0)

        await until(all_settled)
        assert set(handled.values()) == {1}
        assert rmq.connection == name  # its heartbeat was replicated: it is the same connection
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
