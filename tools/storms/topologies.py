"""Failovers and migrations under load. Each function takes its length and returns its figures."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.testing import FaultProxy, PrivateServer
from aiorsmq_ng.testing.servers import READY_S, eventually

from ..lab import Cluster, SentinelGroup, Verdict, Violation
from ..lab.topologies import SentinelServer
from .scene import Load, Scene
from .steadfast import SteadfastScene

Figures = tuple[dict[str, Any], Verdict | None]
How = Literal["kill", "pause", "partition"]

#: A lease that was not given back ends soon enough for the queue to be drained. No consumer stops
#: waiting during a fault: what arrives then is given back, and would be a lease without a holder.
LOAD = Load(producers=4, consumers=6, vt=8.0, rate=200, deadline=20.0, wait=60.0)
#: Long enough for a busy machine: a master that has no replica yet, and is replaced for being slow
#: by one that lacks its last sends, would show them twice.
DOWN_AFTER_MS = 2000
#: Sentinels begin no second failover within twice their failover-timeout; what would be measured
#: is their patience.
FAILOVER_REST_S = 10.0
FOLLOWS = "the old master follows the new one"
#: Sentinels on a machine that stalls do nothing for half a minute.
FOLLOWS_WITHIN_S = 90.0
#: A replica that takes over knows nothing of the last acks and leases, so messages may come again
#: and counts restart. What was sent is another matter.
NOT_KEPT_BY_FAILOVER = ("O2", "O3", "O4")


async def sentinel_failover(
    seconds: float,
    how: How = "kill",
    durability: str = "replicated:1",
    deadline_s: float = LOAD.deadline,
) -> Figures:
    """Sentinel failover: the master is killed, stopped or cut off, and its replica takes over.

    With a deadline shorter than the failover, sends end as SendUnknown and are resumed.
    """
    kind = PartitionedGroup if how == "partition" else SentinelGroup
    group = kind(down_after_ms=DOWN_AFTER_MS)
    load = replace(LOAD, durability=durability, deadline=deadline_s)
    async with group, SteadfastScene(group.url, load=load) as scene:
        await scene.play_through(partial(_failovers, group, how, seconds))
        verdict = await _after_failover(scene)
        return scene.figures(verdict), verdict


async def _after_failover(scene: SteadfastScene) -> Verdict:
    """Judge what is promised: at the level ``replicated:1`` nothing is lost and nothing doubled.

    At the level ``memory`` a master that was stopped or cut off may still store, and deliver, what
    its successor knows nothing of; that is only counted.
    """
    verdict = await scene.verdict(skip=NOT_KEPT_BY_FAILOVER, drain_within_s=None)
    verdict.violations = [v for v in verdict.violations if v.oracle != "O1"]
    if scene.load.durability != "memory":
        if verdict.lost:
            verdict.violations.append(Violation("O1", f"{verdict.lost} acked messages are lost"))
        if verdict.copies:
            verdict.violations.append(Violation("O1", f"{verdict.copies} second copies were seen"))
    return verdict


async def _failovers(group: SentinelGroup, how: How, seconds: float, scene: SteadfastScene) -> None:
    until = scene.history.clock() + seconds
    while True:
        await asyncio.sleep(1)
        begun = scene.history.clock()
        scene.mark(how)
        if isinstance(group, PartitionedGroup):
            await _partition(group, scene)
            return
        before = group.master
        if how == "kill":
            before.kill()
        else:
            before.pause()
        await group.failed_over()
        if how == "kill":
            await before.restart()
            # The sentinels would say so, too, after ten seconds.
            await before.command("REPLICAOF", "127.0.0.1", group.master.port)
        else:
            before.resume()
        await group.settled(FOLLOWS_WITHIN_S)
        if scene.history.clock() >= until:
            await asyncio.sleep(1)
            return
        await asyncio.sleep(max(1, begun + FAILOVER_REST_S - scene.history.clock()))


async def _partition(group: PartitionedGroup, scene: SteadfastScene) -> None:
    """Cut the master off; a client on its side goes on sending to it."""
    before = group.master
    options = Options(deadline=3, durability=scene.load.durability)
    async with RSMQ(before.url, ns=scene.ns, options=options) as inside:
        queue = inside.queue("jobs")
        group.proxy.black_hole()
        cut_off = True

        async def go_on(number: int) -> None:
            n = 0
            while cut_off:
                n += 1
                await scene.send(queue, f"inside-{number}-{n}")
                await asyncio.sleep(0.02)

        senders = [asyncio.create_task(go_on(n)) for n in range(2)]
        await group.failed_over()
        await asyncio.sleep(1)
        cut_off = False
        await asyncio.gather(*senders)
    await group.proxy.resume()
    await eventually(partial(_follows, before, group), FOLLOWS, FOLLOWS_WITHIN_S)
    await asyncio.sleep(1)


async def _follows(server: PrivateServer, group: SentinelGroup) -> bool:
    info = await server.info("replication")
    return info["role"] == "slave" and info["master_link_status"] == "up"


class PartitionedGroup(SentinelGroup):
    """A master that its replica, the sentinels and the clients reach through a proxy."""

    proxy: FaultProxy

    async def failed_over(self) -> PrivateServer:
        """Wait until the sentinels name the replica."""
        (replica,) = self.replicas

        async def changed() -> bool:
            named = {await self._named_by(sentinel) for sentinel in self.sentinels}
            return named == {replica.port} and (await replica.info("replication"))["role"] == (
                "master"
            )

        await eventually(changed, "the sentinels promote the replica", 2 * READY_S)
        self.master = replica
        return replica

    async def aclose(self) -> None:
        """Kill all servers, and close the proxy."""
        await super().aclose()
        await self.proxy.aclose()

    async def _build(self) -> None:
        await self._launch([self.master])
        self.proxy = await FaultProxy(self.master.url).start()
        self.replicas = [await self.master.replica(by=self.proxy.url)]
        self.servers += self.replicas
        port = int(self.proxy.url.rpartition(":")[2].partition("/")[0])
        self.sentinels = [
            SentinelServer(port, service=self.service, quorum=2, down_after_ms=DOWN_AFTER_MS)
            for _ in range(3)
        ]
        await self._launch(self.sentinels)
        for sentinel in self.sentinels:
            await eventually(partial(self._knows_all, sentinel), "the sentinels know all")


async def cluster_migration(seconds: float, pause_s: float = 0.05) -> Figures:
    """Moving slot: the slot of the queue moves from node to node while it is in use."""
    async with Cluster() as cluster, SteadfastScene(cluster.url, "{storm}", LOAD) as scene:
        await scene.play_through(partial(_migrations, cluster, seconds, pause_s))
        verdict = await scene.verdict(drain_within_s=None)
        return scene.figures(verdict), verdict


async def _migrations(cluster: Cluster, seconds: float, pause_s: float, scene: Scene) -> None:
    until = scene.history.clock() + seconds
    slot = await cluster.slot_of(f"{scene.ns}:jobs")
    while scene.history.clock() < until:
        for target in cluster.masters:
            await asyncio.sleep(0.2)
            if await cluster.move_slot(slot, target, pause_s=pause_s):
                scene.mark("moved")


async def cluster_failover(
    seconds: float, how: Literal["kill", "pause"] = "kill", durability: str = "replicated:1"
) -> Figures:
    """Cluster failover: primary of the queue's slot is killed or paused; the replica takes over."""
    load = replace(LOAD, durability=durability)
    async with (
        Cluster(replicas=1) as cluster,
        SteadfastScene(cluster.url, "{storm}", load) as scene,
    ):
        await scene.play_through(partial(_cluster_failovers, cluster, how, seconds))
        verdict = await _after_failover(scene)
        return scene.figures(verdict), verdict


async def _cluster_failovers(cluster: Cluster, how: str, seconds: float, scene: Scene) -> None:
    until = scene.history.clock() + seconds
    slot = await cluster.slot_of(f"{scene.ns}:jobs")
    while True:
        await asyncio.sleep(1)
        before = await cluster.owner(slot)
        scene.mark(how)
        if how == "kill":
            before.kill()
            await cluster.failed_over(slot)
            await before.restart()
        else:
            before.pause()
            # It cannot be asked; any other node can.
            witness = next(n for n in cluster.servers if n is not before)
            await eventually(
                partial(_has_other_owner, witness, slot, before), "another node serves the slot"
            )
            before.resume()
        await eventually(before.is_synchronized, FOLLOWS, FOLLOWS_WITHIN_S)
        await asyncio.sleep(1)
        if scene.history.clock() >= until:
            return


async def _has_other_owner(witness: PrivateServer, slot: int, before: PrivateServer) -> bool:
    ranges = await witness.command("CLUSTER", "SLOTS")
    return any(first <= slot <= last and m[1] != before.port for first, last, m, *_ in ranges)
