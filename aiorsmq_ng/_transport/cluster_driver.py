"""Driver for a Redis Cluster: each command goes to the node that has its keys.

redis-py's cluster client finds the node. It does not execute the commands, for three reasons: it
may send ASKING and the command after it on different connections, it drops all connections when
slots have moved, and it does not distinguish a command that was never written from a lost reply.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, Connection
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError

from .._protocol.operation import Reply
from . import redis_versions
from .driver import NotExecuted, ReplyLost
from .error_mapping import ANSWERS, describe, has_stepped_down, raise_mapped, refused_at_connect
from .list_waiter import ListElementWaiter
from .packing import pack, raw
from .primary_check import is_confirmed
from .redis_driver import confirm, usable
from .script_calls import Command, RedisDriver
from .subscribed_connection import ConnectionListener

#: Redirections that one attempt follows; the next attempt comes after a pause.
_REDIRECTIONS = 5
_ASKING = pack(("ASKING",))


class ClusterDriver(RedisDriver):
    """Runs commands on a Redis Cluster and follows its redirections."""

    calls_per_connection = 1

    def __init__(
        self,
        client: RedisCluster,
        *,
        own: bool,
        guard: Callable[[tuple[str, int]], object] | None = None,
    ) -> None:
        self._client = client
        self._own = own
        # Raises for a node that must not be used; a redirection can name any node.
        self._guard = guard
        # True after a node failed: other nodes may have its slots now.
        self._outdated = False

    async def execute(self, command: Command) -> Reply:
        """Run *command* once, on the node that holds its keys."""
        node, asking = await self._find(command), False
        for _ in range(_REDIRECTIONS):
            try:
                return await self._run(node, command, asking)
            except MovedError as moved:
                command.written = False
                node, asking = await self._follow(moved), False
            except AskError as ask:
                command.written = False
                node, asking = self._node_at(ask), True
            except ANSWERS as error:
                # Slots without a primary, or a primary that became a replica.
                self._outdated |= isinstance(error, ClusterDownError) or has_stepped_down(error)
                raise_mapped(error)
        raise NotExecuted("the keys are being moved between nodes")

    def listener(self) -> ConnectionListener:
        """Return a listener; publications reach every node of a cluster."""

        def connection() -> Connection:
            node = self._client.get_random_node()
            return node.connection_class(**node.connection_kwargs)

        return ConnectionListener(connection)

    def list_waiter(self) -> ListElementWaiter:
        """Return a waiter on a connection of its own to the node that has the list."""

        async def connection(key: str) -> AbstractConnection:
            node = await self._find(Command((), key))
            if self._guard is not None:
                self._guard((node.host, int(node.port)))
            return node.connection_class(**node.connection_kwargs)

        return ListElementWaiter(connection)

    async def aclose(self) -> None:
        """Close the redis-py client, unless it belongs to the caller."""
        if self._own:
            await self._client.aclose()

    async def _find(self, command: Command) -> ClusterNode:
        """Return the node that serves *command*, by the slots known so far."""
        nodes = self._client.nodes_manager
        try:
            await self._client.initialize()
            if self._outdated:
                self._outdated = False
                await nodes.initialize()
            if command.key is None:
                return self._client.get_random_node()
            return nodes.get_node_from_slot(self._client.keyslot(raw(command.key)))
        except Exception as error:  # redis-py also raises errors that are no RedisErrors
            self._outdated = True
            refused_at_connect(error)
            raise NotExecuted(describe(error)) from error

    async def _follow(self, moved: MovedError) -> ClusterNode:
        nodes = self._client.nodes_manager
        await redis_versions.follow(nodes, moved)
        return nodes.get_node_from_slot(moved.slot_id)

    def _node_at(self, ask: AskError) -> ClusterNode:
        node = self._client.get_node(ask.host, ask.port)
        if node is None:
            self._outdated = True
            raise NotExecuted("the keys are being moved to a node that is not known yet")
        return node

    async def _run(self, node: ClusterNode, command: Command, asking: bool) -> Reply:
        """Run *command* on *node*; errors that the server answers are raised as they are."""
        connection = await self._connection(node)
        try:
            command.written = True
            packed = pack(command.words)
            if asking:
                # ASKING holds for the next command on its connection.
                packed = _ASKING + packed
            await connection.send_packed_command(packed, check_health=False)
            if asking:
                with suppress(ResponseError):  # then the command is redirected again
                    await connection.read_response(disable_decoding=True)
            reply = await connection.read_response(disable_decoding=True)
            if command.follow_up is not None:
                command.confirmation = await confirm(connection, command.follow_up)
            if command.min_replicas and not asking:
                await self._check_owner(node, connection, command, reply)
        except ANSWERS:
            raise
        except BaseException as error:
            self._outdated = True
            await _disconnect(connection)
            if not isinstance(error, Exception):
                raise
            raise ReplyLost(describe(error)) from error
        finally:
            redis_versions.release(node, connection)
        return reply

    async def _check_owner(
        self, node: ClusterNode, connection: Connection, command: Command, reply: Reply
    ) -> None:
        """Raise ``ReplyLost`` if other nodes name a new owner of the keys; asked only in doubt.

        A node that was unreachable may have been replaced and not know it yet. Its writes from then
        on will be lost.
        """
        if await is_confirmed(partial(confirm, connection), command, reply):
            return
        nodes = self._client.nodes_manager
        try:
            # The node itself is asked last: it may not know its successor.
            await redis_versions.ask_for_nodes(nodes, last=node)
            owner = nodes.get_node_from_slot(self._client.keyslot(raw(command.key or "")))
        except Exception as error:
            if command.follow_up is not None:
                return  # the sender learns from the confirmation that it failed
            raise ReplyLost("neither a replica nor another node confirms the primary") from error
        if owner.name != node.name:
            raise ReplyLost("another node has the keys now")

    async def _connection(self, node: ClusterNode) -> Connection:
        """Return a connection to *node* that is open and in step (no unread reply)."""
        if self._guard is not None:
            self._guard((node.host, int(node.port)))
        connection = node.acquire_connection()
        try:
            if redis_versions.should_reconnect(connection) or not await usable(connection):
                await _disconnect(connection)
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException as error:
            self._outdated = True
            await _disconnect(connection)
            redis_versions.release(node, connection)
            if not isinstance(error, Exception):
                raise
            refused_at_connect(error)
            raise NotExecuted(describe(error)) from error
        return connection


async def _disconnect(connection: Connection) -> None:
    with anyio.CancelScope(shield=True):
        await connection.disconnect(nowait=True)
