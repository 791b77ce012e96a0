"""A connection of rmq: a name with a heartbeat, and the payloads that were taken under it.

Theory of operation
-------------------

Rule 1: a payload that was taken is in the unacked list of the connection until it is settled, so
it has an owner at every moment. The list is the truth; ``Held`` is what this process knows of it.

Rule 2: the heartbeat comes first, then the name, then the name of the queue, then the first take.
So a cleaner finds everything that a dead connection held, and never takes a new one for dead.

Rule 3: a name whose heartbeat was missing for a moment is never used again. A cleaner may have
found it dead, and Go's deletes the unacked list when it has emptied it. The connection counts as
lost: its deliveries are lost, and consumers go on under a new name.

Rule 4: nothing that was taken is searched for in this process at the end. What the unacked list
holds goes back to the front of the queue, in order; then the names are removed. The heartbeat is
left to expire: without it, a cleaner of Go would take the connection for dead and fail.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import string
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

import anyio

from .._protocol.operations.rmq import messages, registry
from .._protocol.rmq_keys import FOREIGN, RmqKeys, RmqLayout
from .._transport.transport import Transport
from ..errors import ClientClosed, RSMQError, Unavailable

if TYPE_CHECKING:
    from .delivery import RmqDelivery

logger = logging.getLogger("aiorsmq_ng.rmq")

#: How often the heartbeat is renewed, and how long one attempt may take.
BEAT_S, BEAT_TIMEOUT_S = 1.0, 5.0
#: Without a heartbeat for this long the connection counts as lost; on the server it ends after 60.
LOST_AFTER_S = 40.0
#: Payloads that one call gives back when the client ends without time for more.
_ALL = 1_000_000
_LETTERS = string.ascii_letters + string.digits


def unique_name(tag: str) -> str:
    """Return a name as rmq makes them: the tag, and six random letters or digits."""
    return f"{tag}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


class Held:
    """What a connection has taken from one queue: this process's side of an unacked list."""

    def __init__(self, connection: Connection, keys: RmqKeys) -> None:
        self.connection = connection
        self.keys = keys
        #: Deliveries that are not settled yet; how often each payload is among them.
        self.deliveries: set[RmqDelivery] = set()
        self._payloads: Counter[bytes] = Counter()
        # One take at a time: what is in the list and not known here was then taken by none.
        self._taking = asyncio.Lock()
        self._in_doubt = False

    async def take(self, wanted: int) -> list[bytes]:
        """Take up to *wanted* payloads, oldest first; those that a lost reply held come first.

        Returns none if the connection is lost.
        """
        connection, transport = self.connection, self.connection.transport
        async with self._taking:
            if not await connection.is_alive():
                return []
            if self._in_doubt and (strays := await self._find_strays()):
                return strays
            try:
                payloads = await transport.run(messages.take(self.keys, connection.name, wanted))
            except Unavailable as error:
                self._in_doubt |= error.executed is None
                raise
            if payloads is None:
                connection.lose("its heartbeat is gone from the server")
                return []
            self._payloads.update(payloads)
            return payloads

    async def look_for_strays(self) -> None:
        """Compare the length of the list with what is known: a lost take may have run late."""
        async with self._taking:
            found = await self.connection.transport.run(
                messages.unacked(self.keys, self.connection.name)
            )
            self._in_doubt |= found.length > self._payloads.total()

    def settled(self, payloads: Sequence[bytes]) -> None:
        """Forget payloads that are no longer in the list."""
        known = self._payloads
        for payload in payloads:
            if known[payload] > 1:
                known[payload] -= 1
            else:
                del known[payload]

    def doubt(self) -> None:
        """Compare the list with what is known before the next take: a settlement has failed."""
        self._in_doubt = True

    async def _find_strays(self) -> list[bytes]:
        """Return the payloads in the list that are not known here."""
        # Copied first: what is settled while the list is read may still be in the reply.
        known, strays = self._payloads.copy(), []
        found = await self.connection.transport.run(
            messages.unacked(self.keys, self.connection.name, payloads=True)
        )
        for payload in found.payloads:
            if known[payload] > 0:
                known[payload] -= 1
            else:
                strays.append(payload)
        self._in_doubt = False
        self._payloads.update(strays)
        return strays


class Connection:
    """One name in ``rmq::connections``, with its heartbeat."""

    def __init__(self, transport: Transport, layout: RmqLayout, tag: str) -> None:
        self.name = unique_name(tag)
        self.transport = transport
        self.layout = layout
        #: True once its heartbeat was missing; its deliveries may be anywhere.
        self.lost = False
        #: Numbers of deliveries, for their ids in logs.
        self.numbers = count(1)
        self._retired = False
        self._alive_at = 0.0
        self._held: dict[str, Held] = {}
        self._heartbeat = layout.heartbeat(self.name)

    async def open(self) -> None:
        """Begin to beat, and register the name."""
        self._alive_at = asyncio.get_running_loop().time()
        await self.transport.run(registry.beat(self._heartbeat, first=True))
        await self.transport.run(registry.add(self.layout.connections, self.name))
        self.transport.closers.add(self._give_back_nowait)
        self.transport.spawn(self._keep_beating)

    async def hold(self, keys: RmqKeys) -> Held:
        """Return what it holds of a queue, after registering that it consumes the queue."""
        held = self._held.get(keys.queue)
        if held is None:
            await self.transport.run(registry.add(self.layout.consumed(self.name), keys.queue))
            held = self._held.setdefault(keys.queue, Held(self, keys))
        return held

    async def is_alive(self) -> bool:
        """Return True if no cleaner can have found it dead; after a stall the server is asked."""
        if not self.lost and asyncio.get_running_loop().time() - self._alive_at > LOST_AFTER_S / 2:
            await self._beat()
        return not self.lost and not self._retired

    def lose(self, why: str) -> None:
        """Count as lost: tell the holders of all deliveries."""
        if self.lost:
            return
        self.lost = True
        if self._retired:
            return
        logger.warning("connection %r of rmq is lost: %s", self.name, why)
        for held in self._held.values():
            for delivery in tuple(held.deliveries):
                delivery.lease.lose()

    async def retire(self) -> None:
        """Give back what the connection still has, and remove its names. Idempotent."""
        self._retired = True
        run, layout = self.transport.run, self.layout
        damage: Exception | None = None
        for held in self._held.values():
            try:
                while (await run(messages.retire(held.keys, self.name, dead=False))).left > 0:
                    pass
                await run(registry.remove(layout.consumed(self.name), held.keys.queue))
            except FOREIGN as error:
                # The other queues get back what is theirs; the name stays for a cleaner.
                damage = error
        if damage is not None:
            raise damage
        await run(registry.remove(layout.connections, self.name))
        self.transport.closers.discard(self._give_back_nowait)

    async def _keep_beating(self) -> None:
        while not self.lost and not self._retired:
            await anyio.sleep(BEAT_S)
            try:
                await self._beat()
            except ClientClosed:
                return
            except Exception:
                # If it were raised, it would end all tasks of the client.
                logger.exception("the heartbeat of %r failed; please report it", self.name)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        began_at, alive = loop.time(), None
        try:
            with anyio.move_on_after(BEAT_TIMEOUT_S):
                alive = await self.transport.run(registry.beat(self._heartbeat))
        except ClientClosed:
            raise
        except RSMQError as error:
            logger.debug("heartbeat of %r: %s", self.name, error)
        if alive:
            # Counted from before the request: never later than on the server.
            self._alive_at = began_at
        elif alive is False:
            self.lose("its heartbeat had expired")
        elif loop.time() - self._alive_at > LOST_AFTER_S:
            self.lose(f"no heartbeat for {LOST_AFTER_S:g} s")

    def _give_back_nowait(self) -> None:
        """Begin to give back everything, for a client that ends with no time to retire.

        The names stay: a cleaner finds nothing to move, and removes them.
        """
        for held in self._held.values():
            operation = messages.retire(held.keys, self.name, dead=False, count=_ALL)
            self.transport.submit(operation, closing=True)


class Connections:
    """The present connection of a client. A lost one is replaced when one is needed."""

    def __init__(self, transport: Transport, layout: RmqLayout, tag: str) -> None:
        self.layout = layout
        self._transport = transport
        self._tag = tag
        self._present: Connection | None = None
        self._opening = asyncio.Lock()

    @property
    def name(self) -> str | None:
        """Name of the present connection; ``None`` if the client has not consumed yet."""
        return None if self._present is None else self._present.name

    async def present(self) -> Connection:
        """Return a connection that is alive as far as is known, opening one if needed."""
        async with self._opening:
            before = self._present
            if before is None or before.lost:
                connection = Connection(self._transport, self.layout, self._tag)
                await connection.open()
                self._present = connection
                if before is not None:
                    # What its holders lost goes back to the queue, unless a cleaner was there.
                    self._transport.spawn(self._retire, before)
            assert self._present is not None  # noqa: S101 - made above
            return self._present

    async def retire(self) -> None:
        """End the present connection: leave nothing for a cleaner."""
        if self._present is not None:
            await self._present.retire()

    async def _retire(self, connection: Connection) -> None:
        try:
            await connection.retire()
        except RSMQError as error:
            logger.warning("what %r held is left to a cleaner: %s", connection.name, error)
