"""A cluster whose slots move and whose nodes die."""

from __future__ import annotations

import asyncio

import pytest

from aiorsmq_ng import RSMQ, DurabilityUnmet, Options
from tools.lab import Cluster

NS = "{rsmq}"


@pytest.fixture(scope="module")
async def cluster():
    """Three masters without replicas."""
    async with Cluster() as cluster:
        yield cluster


async def half_moved(cluster: Cluster, slot: int):
    """Move all keys of *slot*, and leave it open whose it is."""
    source = await cluster.owner(slot)
    target = next(node for node in cluster.masters if node is not source)
    await target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", await source.id())
    await source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", await target.id())
    for key in await source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        await source.command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
    return source, target


async def finish(cluster: Cluster, slot: int, target) -> None:
    for node in (target, *cluster.masters):
        await node.command("CLUSTER", "SETSLOT", slot, "NODE", await target.id())


async def test_keys_that_have_moved_already_are_used_where_they_are(cluster):
    async with RSMQ(cluster.url, ns=NS, options=Options(deadline=5)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send_many(["a"] * 30)

        async def look():
            await queue.peek()
            await queue.attributes()
            await queue.peek(1)

        # Several connections to every node: a redirection must stay on one of them.
        await asyncio.gather(*(look() for _ in range(4)))
        slot = await cluster.slot_of(f"{NS}:jobs")
        _, target = await half_moved(cluster, slot)
        try:
            await asyncio.gather(*(look() for _ in range(20)))
        finally:
            await finish(cluster, slot, target)
        assert (await queue.attributes()).msgs == 30
        await rsmq.delete_queue("jobs")


async def test_redirections_do_not_break_what_others_are_doing(cluster):
    """A pop whose connection is dropped destroys a message; only the network may do that."""
    async with RSMQ(cluster.url, ns=NS, options=Options(deadline=20)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send_many([str(n) for n in range(600)])
        slot = await cluster.slot_of(f"{NS}:jobs")
        popped: list[str] = []

        async def pop():
            while message := await queue.pop():
                popped.append(message.text)

        async def move():
            for target in (*cluster.masters, *cluster.masters):
                await cluster.move_slot(slot, target, pause_s=0.02)

        await asyncio.gather(move(), *(pop() for _ in range(8)))
        assert sorted(map(int, popped)) == list(range(600))
        await rsmq.delete_queue("jobs")


async def test_replicated_send_without_replicas_says_so(cluster):
    async with RSMQ(
        cluster.url, ns=NS, options=Options(deadline=5, durability="replicated:1")
    ) as rsmq:
        queue = await rsmq.create_queue("jobs")
        with pytest.raises(DurabilityUnmet):
            await queue.send("a")
        assert (await queue.attributes()).totalsent == 1
        await rsmq.delete_queue("jobs")


async def test_node_that_died_is_waited_for_and_replaced():
    async with Cluster(replicas=1) as cluster:
        options = Options(deadline=30, durability="replicated:1")
        async with RSMQ(cluster.url, ns=NS, options=options) as rsmq:
            queue = await rsmq.create_queue("jobs")
            sent = await queue.send_many(["a", "b"])
            assert {id.durability for id in sent} == {"replicated:1"}
            (await cluster.owner(await cluster.slot_of(f"{NS}:jobs"))).kill()
            await asyncio.sleep(0.5)  # its connections are seen to be closed

            # Not executed as long as no server is there: even this verb may wait.
            assert (await queue.pop()).text == "a"
            assert (await queue.pop()).text == "b"
