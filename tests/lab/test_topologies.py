"""Groups of private servers: replication, sentinel, cluster."""

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options, Unavailable
from tools.lab import Cluster, Replication, SentinelGroup

PATIENT = Options(deadline=30)


async def test_replica_has_what_the_master_has_and_can_take_its_place():
    async with Replication(replicas=2) as group:
        await group.master.command("SET", "key", "x")
        await group.caught_up()
        heir, other = group.replicas
        assert await heir.command("GET", "key") == b"x"
        with pytest.raises(Unavailable, match="read only replica"):
            await heir.command("SET", "key", "y")

        group.master.kill()
        await group.promote(heir)
        assert group.master is heir
        await heir.command("SET", "key", "y")
        await group.caught_up()
        assert await other.command("GET", "key") == b"y"


async def test_sentinels_promote_a_replica_of_a_killed_master_and_clients_follow():
    async with SentinelGroup() as group, RSMQ(group.url, options=PATIENT) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("before")
        await group.caught_up()
        before = group.master
        before.kill()

        assert await group.failed_over() is group.master is not before
        await queue.send("after")
        assert [m.text for m in await queue.peek()] == ["before", "after"]


async def test_sentinel_promotes_a_replica_of_a_paused_master():
    async with SentinelGroup(sentinels=1) as group:
        before = group.master
        before.pause()

        assert await group.failed_over() is not before
        assert group.replicas == [before]


@pytest.fixture(scope="module")
async def cluster():
    async with Cluster(replicas=1) as cluster:
        yield cluster


async def test_slot_moves_while_its_keys_are_in_use(cluster):
    async with RSMQ(cluster.url, ns="{a}", options=PATIENT) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("before")
        slot = await cluster.slot_of("{a}")
        source = await cluster.owner(slot)
        # Another test may have killed a master before.
        target = next(n for n in cluster.masters if n is not source and n.running)

        assert await cluster.move_slot(slot, target) == 4
        assert await cluster.owner(slot) is target
        assert await cluster.move_slot(slot, target) == 0
        await queue.send("after")
        assert [m.text for m in await queue.peek()] == ["before", "after"]
        assert await target.command("EXISTS", "{a}:jobs") == 1


async def test_replica_takes_the_slots_of_a_killed_master(cluster):
    slot = await cluster.slot_of("{b}")
    master = await cluster.owner(slot)
    master.kill()

    heir = await cluster.failed_over(slot)
    assert heir is not master
    async with RSMQ(cluster.url, ns="{b}", options=PATIENT) as rsmq:
        await rsmq.create_queue("jobs")
    assert await heir.command("EXISTS", "{b}:jobs:Q") == 1


def test_cluster_of_two_is_refused():
    with pytest.raises(InvalidValue, match="at least 3 masters"):
        Cluster(masters=2)
