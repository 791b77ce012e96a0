"""Groups of servers on loopback: replication, sentinels, clusters."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Any, Self

from aiorsmq_ng.embedded import find_binary
from aiorsmq_ng.errors import InvalidValue, Unavailable
from aiorsmq_ng.testing.servers import (
    HOST,
    READY_S,
    Persistence,
    PrivateServer,
    eventually,
    free_ports,
)

SLOTS = 16384
_MIGRATE_MS = 5000


class Group(ABC):
    """Servers that belong together: started together, killed together."""

    def __init__(self) -> None:
        #: All servers of the group, also those that were killed.
        self.servers: list[PrivateServer] = []

    async def start(self) -> Self:
        """Start the servers and wait until they know each other."""
        try:
            await self._build()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Kill all servers and remove their folders."""
        for server in self.servers:
            await server.aclose()
        self.servers.clear()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        running = sum(server.running for server in self.servers)
        return f"<{type(self).__name__}, {running} of {len(self.servers)} servers running>"

    @abstractmethod
    async def _build(self) -> None:
        """Start the servers and make them know each other."""

    async def _launch(self, servers: list[Any]) -> None:
        self.servers += servers
        await asyncio.gather(*(server.start() for server in servers))


class Replication(Group):
    """A master and its replicas; a failover is what the test makes of it.

    *words* are settings for every server, as on the command line.
    """

    def __init__(self, *words: str, replicas: int = 1, persistence: Persistence = "none") -> None:
        super().__init__()
        self._words = words
        self._count = replicas
        self._persistence: Persistence = persistence
        #: The master that was started, or promoted last, and the replicas that were started.
        self.master: PrivateServer = PrivateServer(*words, persistence=persistence)
        self.replicas: list[PrivateServer] = []

    async def caught_up(self) -> None:
        """Wait until every replica that runs has all that the master has written so far."""
        goal = int((await self.master.info("replication"))["master_repl_offset"])

        async def reached() -> bool:
            states = [await r.info("replication") for r in self.replicas if r.running]
            return all(int(state.get("slave_repl_offset", 0)) >= goal for state in states)

        await eventually(reached, "the replicas have caught up")

    async def promote(self, replica: PrivateServer) -> None:
        """Make *replica* the master, and let the other replicas that run follow it."""
        await replica.command("REPLICAOF", "NO", "ONE")
        self.replicas.remove(replica)
        self.master = replica
        for other in self.replicas:
            if other.running:
                await other.command("REPLICAOF", HOST, replica.port)
                await eventually(other.is_synchronized, "a replica follows the new master")

    async def _build(self) -> None:
        await self._launch([self.master])
        for _ in range(self._count):
            self.replicas.append(await self.master.replica())
            self.servers.append(self.replicas[-1])


class SentinelServer(PrivateServer):
    """A sentinel that watches one master."""

    def __init__(self, master_port: int, *, service: str, quorum: int, down_after_ms: int) -> None:
        super().__init__()
        self._settings = (
            f"sentinel monitor {service} {HOST} {master_port} {quorum}\n"
            f"sentinel down-after-milliseconds {service} {down_after_ms}\n"
            f"sentinel failover-timeout {service} 5000\n"
        )

    @property
    def _configuration(self) -> Path:
        return self.folder / "sentinel.conf"

    def _arguments(self) -> list[str]:
        if not self._configuration.exists():
            where = f"port {self.port}\nbind {HOST}\ndir {self.folder}\n"
            self._configuration.write_text(where + self._settings)
        return [str(self._configuration), "--sentinel"]


class SentinelGroup(Replication):
    """A master, replicas, and sentinels that promote a replica when the master is silent.

    Kill or pause ``master``, then ``await failed_over()``. *down_after_ms* is how long a master
    must be silent. Use it with clients by ``url``.
    """

    service = "mymaster"

    def __init__(
        self,
        *words: str,
        replicas: int = 1,
        sentinels: int = 3,
        down_after_ms: int = 500,
        persistence: Persistence = "none",
    ) -> None:
        super().__init__(*words, replicas=replicas, persistence=persistence)
        self._watchers = sentinels
        self._down_after_ms = down_after_ms
        self.sentinels: list[SentinelServer] = []

    @property
    def url(self) -> str:
        """The address for clients: the sentinels, and the name of what they watch."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}"

    async def failed_over(self) -> PrivateServer:
        """Wait until all sentinels name another master than before, and return it.

        From then on it is ``master``.
        """
        before = self.master

        async def changed() -> bool:
            ports = {await self._named_by(s) for s in self.sentinels if s.running}
            if len(ports) != 1 or ports == {before.port}:
                return False
            (self.master,) = (s for s in self.servers if s.port in ports)
            return (await self.master.info("replication"))["role"] == "master"

        await eventually(changed, "the sentinels promote a replica", 2 * READY_S)
        self.replicas = [s for s in (*self.replicas, before) if s is not self.master]
        return self.master

    async def settled(self, within_s: float = 2 * READY_S) -> PrivateServer:
        """Wait until all others that run follow the master that the sentinels name, and return it.

        From then on it is ``master``. A machine that stalls can make sentinels promote another one
        at any time.
        """
        members = [self.master, *self.replicas]

        async def agreed() -> bool:
            ports = {await self._named_by(s) for s in self.sentinels if s.running}
            masters = [s for s in members if {s.port} == ports]
            if not masters or (await masters[0].info("replication"))["role"] != "master":
                return False
            others = [s for s in members if s is not masters[0] and s.running]
            return all([await other.is_synchronized() for other in others])

        await eventually(agreed, "all follow the master that the sentinels name", within_s)
        ports = {await self._named_by(s) for s in self.sentinels if s.running}
        (self.master,) = (s for s in members if s.port in ports)
        self.replicas = [s for s in members if s is not self.master]
        return self.master

    async def _named_by(self, sentinel: PrivateServer) -> int:
        words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return int((await sentinel.command(*words))[1])

    async def _build(self) -> None:
        await super()._build()
        self.sentinels = [
            SentinelServer(
                self.master.port,
                service=self.service,
                quorum=self._watchers // 2 + 1,
                down_after_ms=self._down_after_ms,
            )
            for _ in range(self._watchers)
        ]
        await self._launch(self.sentinels)
        for sentinel in self.sentinels:
            await eventually(partial(self._knows_all, sentinel), "the sentinels know all")

    async def _knows_all(self, sentinel: PrivateServer) -> bool:
        words = await sentinel.command("SENTINEL", "MASTER", self.service)
        known = dict(zip(words[::2], words[1::2], strict=True))
        return (
            int(known[b"num-other-sentinels"]) == self._watchers - 1
            and int(known[b"num-slaves"]) == self._count
            and known[b"flags"] == b"master"
        )


class ClusterNode(PrivateServer):
    """A server in cluster mode."""

    #: The port on which the nodes talk to each other.
    bus_port = 0

    async def id(self) -> str:
        """Return the name by which the nodes know it."""
        return str((await self.command("CLUSTER", "MYID")).decode())

    def _choose_ports(self) -> None:
        self.port, self.bus_port = free_ports(2)

    def _arguments(self) -> list[str]:
        own = ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
        return [*super()._arguments(), *own, "--cluster-node-timeout", "2000"]


class Cluster(Group):
    """A cluster: *masters* that share the slots, and *replicas* of each. Needs a server of 7.0.

    Use it with clients by ``url``, and a namespace in braces. A master that is killed is replaced
    by its replica after about 4 s; without replicas its slots are gone until ``restart``.
    """

    def __init__(
        self, *words: str, masters: int = 3, replicas: int = 0, persistence: Persistence = "none"
    ) -> None:
        super().__init__()
        if masters < 3:
            raise InvalidValue(f"a cluster has at least 3 masters, not {masters}")

        def make(count: int) -> list[ClusterNode]:
            return [ClusterNode(*words, persistence=persistence) for _ in range(count)]

        #: The servers that were started as masters, and as replicas.
        self.masters = make(masters)
        self.replicas = make(masters * replicas)

    @property
    def url(self) -> str:
        """The address for clients."""
        return "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in self._nodes())

    async def slot_of(self, key: str) -> int:
        """Return the slot of *key*; all keys of a namespace in braces have one slot."""
        return int(await self._anyone().command("CLUSTER", "KEYSLOT", key))

    async def owner(self, slot: int) -> ClusterNode:
        """Return the master that serves *slot*, as the nodes see it now."""
        for first, last, master, *_ in await self._anyone().command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                (node,) = (n for n in self._nodes() if n.port == master[1])
                return node
        raise Unavailable(f"no node of the cluster serves slot {slot}")

    async def move_slot(self, slot: int, to: ClusterNode, *, pause_s: float = 0.0) -> int:
        """Move *slot* to the master *to* while clients use it; return how many keys moved.

        Keys go one by one by MIGRATE, with *pause_s* before each: meanwhile the slot is half here
        and half there.
        """
        source = await self.owner(slot)
        if source is to:
            return 0
        await to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", await source.id())
        await source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", await to.id())
        moved = 0
        while keys := await source.command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            await asyncio.sleep(pause_s)
            reply = await source.command("MIGRATE", HOST, to.port, keys[0], 0, _MIGRATE_MS)
            moved += reply == b"OK"
        for node in dict.fromkeys((to, source, *self._nodes())):
            # After failovers, other nodes are masters than those that were started as such.
            if node.running and (await node.info("replication"))["role"] == "master":
                await node.command("CLUSTER", "SETSLOT", slot, "NODE", await to.id())
        return moved

    async def failed_over(self, slot: int) -> ClusterNode:
        """Wait until a node that runs serves *slot*, after its master was killed; return it."""

        async def replaced() -> bool:
            return (await self.owner(slot)).running

        await eventually(replaced, f"another node serves slot {slot}", 2 * READY_S)
        await self.healthy()
        return await self.owner(slot)

    async def healthy(self) -> None:
        """Wait until all nodes that run say that every slot is served."""

        async def served() -> bool:
            states = [await n.command("CLUSTER", "INFO") for n in self._nodes() if n.running]
            return all(b"cluster_state:ok" in state for state in states)

        await eventually(served, "all slots are served", 2 * READY_S)

    def _nodes(self) -> list[ClusterNode]:
        return [*self.masters, *self.replicas]

    def _anyone(self) -> ClusterNode:
        for node in self._nodes():
            if node.running:
                return node
        raise Unavailable("no node of the cluster runs")

    async def _build(self) -> None:
        binary = find_binary()
        if binary.version < (7, 0, 0):
            raise Unavailable(f"a cluster needs a server of version 7.0 or newer, not {binary}")
        await self._launch(self._nodes())
        share = SLOTS / len(self.masters)
        for i, node in enumerate(self.masters):
            bounds = round(i * share), round((i + 1) * share) - 1
            await node.command("CLUSTER", "ADDSLOTSRANGE", *bounds)
        first, *others = self._nodes()
        for epoch, node in enumerate(self._nodes(), start=1):
            await node.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for node in others:
            await first.command("CLUSTER", "MEET", HOST, node.port, node.bus_port)
        for node in self._nodes():
            await eventually(partial(self._knows_all, node), "the nodes have met")
        for i, node in enumerate(self.replicas):
            master = self.masters[i % len(self.masters)]
            await node.command("CLUSTER", "REPLICATE", await master.id())
        for node in self.replicas:
            await eventually(node.is_synchronized, "the replicas have everything")
        await self.healthy()
        await eventually(self._shows_replicas, "the replicas are shown to clients")

    async def _knows_all(self, node: ClusterNode) -> bool:
        known = f"cluster_known_nodes:{len(self._nodes())}\r\n".encode()
        return known in await node.command("CLUSTER", "INFO")

    async def _shows_replicas(self) -> bool:
        for node in self._nodes():
            shown = await node.command("CLUSTER", "SLOTS")
            if sum(len(entry) - 2 for entry in shown) != len(self._nodes()):
                return False
        return True
