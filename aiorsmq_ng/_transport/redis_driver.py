"""Driver for Redis on connections of redis-py, without its retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
from redis import exceptions as driver_errors
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection

from .._protocol.operation import Argument, Reply
from ..errors import RSMQError
from . import redis_versions
from .driver import NotExecuted, ReplyLost
from .error_mapping import ANSWERS, describe, has_stepped_down, raise_mapped, refused_at_connect
from .list_waiter import ListElementWaiter
from .packing import pack
from .permits import Permits
from .pipelined_connection import ConnectionInUse, PipelinedConnection
from .primary_check import is_confirmed, primaries_named
from .script_calls import Command, RedisDriver, first_words
from .subscribed_connection import ConnectionListener

if TYPE_CHECKING:
    from .call import Call
    from .first_attempts import FirstAttempt

#: A connection that was idle for this many seconds is checked (PING) before it is used.
HEALTH_S = 15

#: After a reply slower than this many seconds, check that the primary has not changed.
_LATE_S = 0.5
#: Concurrent calls per connection, if connections are shared (pipelining).
_JOINED = 8
#: No limit: more than any pool has.
_MANY = 1 << 30

#: Called when the server cannot be reached; restarts an embedded server.
Revive = Callable[[], Awaitable[None]]


class PoolDriver(RedisDriver):
    """Runs commands on connections of a redis-py pool.

    redis-py repeats a command when its reply is lost, which duplicates sends and strands receives.
    Using the connection directly avoids that, with any settings of the pool, and saves most of
    the client's time per call. With ``keep`` the driver keeps connections between calls instead of
    returning them to the pool each time. With ``direct``, the number of connections for calls, it
    bypasses redis-py's stream, too, and pipelines calls of the same tick on one connection. Both
    are only for a pool that belongs to this client.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        keep: bool,
        direct: int = 0,
        revive: Revive | None = None,
        closing: Callable[[], Awaitable[None]] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._pool = pool
        self._keep = keep
        self._pipelined: dict[AbstractConnection, PipelinedConnection] | None = (
            {} if direct else None
        )
        self._permits = Permits(direct or _MANY)
        # Connections in use that further calls may join; the one acquired in this tick.
        self._shared: set[PipelinedConnection] = set()
        self._joinable: PipelinedConnection | None = None
        # Those with attempts that are not written yet.
        self._begun: list[PipelinedConnection] = []
        self._revive = revive
        self._closing = closing
        # Raises if this server must not be used any more.
        self._check = check
        self._idle: list[AbstractConnection] = []
        self._has_sentinels = hasattr(pool, "sentinel_manager")

    async def execute(self, command: Command) -> Reply:
        """Run *command* once."""
        begun, command.begun = command.begun, None
        if begun is not None:
            used, packed, asked = begun.connection, b"", begun.reply
        else:
            if self._check is not None:
                self._check()
            packed, asked = pack(command.words), None
            # WAIT and WAITAOF are about the last write of a connection: that must be this command.
            asks = command.follow_up or (
                command.min_replicas and command.needs_confirmation and self._has_sentinels
            )
            used = await self._join_or_acquire(packed, alone=bool(asks))
        began_at = asyncio.get_running_loop().time()
        try:
            command.written = True
            reply = await (asked or used.ask(packed))
            if command.follow_up is not None:
                command.confirmation = await confirm(used.connection, command.follow_up)
            if self._has_sentinels and await self._is_replaced(used, command, reply, began_at):
                used.broken = True
                await self._discard_idle()
        except ANSWERS as error:
            if has_stepped_down(error):
                # The next server at this address, or one that sentinels name, may be the primary.
                used.broken = True
                await self._discard_idle()
            raise_mapped(error)
        except BaseException as error:
            # Other calls that wait for replies on it fail at once.
            used.broken = True
            await _cut(used.connection)
            if not isinstance(error, Exception):
                # It timed out or was cancelled; idle connections lead to the same server.
                await self._discard_idle()
                raise
            # redis-py may raise AttributeError and the like on a connection that is lost.
            raise ReplyLost(describe(error)) from error
        finally:
            await self._release(used)
        return reply

    @property
    def calls_per_connection(self) -> int:
        """Number of concurrent calls for each connection."""
        return 1 if self._pipelined is None else _JOINED

    @property
    def immediate(self) -> PoolDriver | None:
        """The driver itself; not if calls need a wait, or a question to sentinels."""
        return None if self._pipelined is None or self._has_sentinels else self

    def begin(self, call: Call, attempt: FirstAttempt) -> bool:
        """Get *attempt* ready, if a connection is known to be in step; see ``ImmediateDriver``."""
        if self._check is not None:
            self._check()
        packed = pack(first_words(call))
        used = self._join_or_take(packed, call.began_at)
        if used is None:
            return False
        used.users += 1
        used.prepare(packed, attempt)
        attempt.connection = used
        self._begun.append(used)
        return True

    def write_begun(self) -> None:
        """Write all attempts that were begun since the last time."""
        for used in self._begun:
            used.write()
        self._begun.clear()
        self._joinable = None

    def end(self, used: PipelinedConnection, now: float) -> bool:
        """Give back the connection of an attempt, unless it must be discarded."""
        if used.broken:
            return False
        used.users -= 1
        if not used.users:
            self._note_unused(used, now)
            self._idle.append(used.connection)
            self._permits.release()
        return True

    def listener(self) -> ConnectionListener:
        """Return a listener on a connection of its own; those of the pool are for calls."""
        pool = self._pool
        return ConnectionListener(lambda: pool.connection_class(**pool.connection_kwargs))

    def list_waiter(self) -> ListElementWaiter:
        """Return a waiter on a connection of its own: it blocks."""
        pool = self._pool

        async def connection(_key: str) -> AbstractConnection:
            return pool.connection_class(**pool.connection_kwargs)

        return ListElementWaiter(connection)

    async def aclose(self) -> None:
        """Return all connections to the pool, and close them if the pool belongs to this client."""
        while self._idle:
            await self._pool.release(self._idle.pop())
        if self._keep:
            await self._pool.disconnect()
        if self._closing is not None:
            await self._closing()

    async def _join_or_acquire(self, packed: bytes, *, alone: bool) -> ConnectionInUse:
        """Return a connection for one call: that of this tick, else an idle one, else a new one.

        If all are in use, the one with the fewest calls in flight.
        """
        used: ConnectionInUse | None = None if alone else self._joinable
        if used is None or not used.can_join(packed):
            used = None if alone or not self._permits.all_in_use else self._least_used(packed)
        if used is None:
            used = await self._acquire_wrapped()
            if not alone and isinstance(used, PipelinedConnection):
                self._shared.add(used)
                self._joinable = used
                asyncio.get_running_loop().call_soon(self._end_of_tick)
        used.users += 1
        return used

    def _least_used(self, packed: bytes) -> PipelinedConnection | None:
        joined = [used for used in self._shared if used.can_join(packed)]
        return min(joined, key=lambda used: used.users, default=None)

    def _join_or_take(self, packed: bytes, now: float) -> PipelinedConnection | None:
        """Return a connection for one call, as above; ``None`` if that needs waiting."""
        used = self._joinable
        if used is not None and used.can_join(packed):
            return used
        if self._permits.all_in_use:
            return self._least_used(packed)
        if not self._idle or self._pipelined is None:
            return None
        used = self._pipelined.get(self._idle[-1])
        if used is None or not used.is_at_rest(now):
            return None
        self._idle.pop()
        self._permits.take_now()
        self._shared.add(used)
        self._joinable = used
        return used

    def _end_of_tick(self) -> None:
        self._joinable = None

    async def _acquire_wrapped(self) -> ConnectionInUse:
        await self._permits.acquire()
        try:
            connection = await self._acquire()
        except BaseException:
            self._permits.release()
            raise
        if self._pipelined is None:
            return ConnectionInUse(connection)
        wrapped = self._pipelined.get(connection)
        if wrapped is None or not wrapped.belongs_to(connection):
            wrapped = self._pipelined[connection] = PipelinedConnection(connection)
        return wrapped

    async def _release(self, used: ConnectionInUse) -> None:
        used.users -= 1
        if used.broken and used is self._joinable:
            self._joinable = None
        if used.users:
            return
        self._note_unused(used, asyncio.get_running_loop().time())
        try:
            if used.broken:
                await self._discard(used.connection)
            else:
                await self._put_back(used.connection)
        finally:
            self._permits.release()

    def _note_unused(self, used: ConnectionInUse, now: float) -> None:
        if isinstance(used, PipelinedConnection):
            self._shared.discard(used)
        if used is self._joinable:
            self._joinable = None
        # If it is not broken, it has just answered.
        used.connection.next_health_check = now + HEALTH_S

    async def _acquire(self) -> AbstractConnection:
        while self._idle:
            connection = self._idle.pop()
            try:
                if self._leads_to_primary(connection) and await usable(connection):
                    return connection
            except BaseException:
                await self._discard(connection)
                raise
            await self._discard(connection)
        try:
            fresh: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
            return fresh
        except (driver_errors.RedisError, OSError, RSMQError) as error:
            refused_at_connect(error)
            if self._revive is not None:
                await self._revive()
            raise NotExecuted(describe(error)) from error

    async def _put_back(self, connection: AbstractConnection) -> None:
        if self._keep:
            self._idle.append(connection)
        else:
            await self._pool.release(connection)

    def _leads_to_primary(self, connection: AbstractConnection) -> bool:
        """Return False if sentinels have named another primary for a newer connection.

        The former primary may be alive, and consider itself the primary for a while.
        """
        primary = getattr(self._pool, "master_address", None)
        return primary is None or primary == (
            getattr(connection, "host", None),
            getattr(connection, "port", None),
        )

    async def _is_replaced(
        self, used: ConnectionInUse, command: Command, reply: Reply, began_at: float
    ) -> bool:
        """Return True if sentinels name another primary; they are asked only in doubt.

        A primary that was unreachable for a while may have a successor and not know it yet. Its
        writes from then on will be lost. ``ReplyLost`` if the reply holds messages and the
        sentinels do not confirm the primary.
        """
        connection = used.connection
        late = asyncio.get_running_loop().time() - began_at > _LATE_S
        if command.min_replicas and not await is_confirmed(
            partial(confirm, connection), command, reply
        ):
            late = False
        elif not late:
            return False
        named = await primaries_named(self._pool)
        if named == {(getattr(connection, "host", None), getattr(connection, "port", None))}:
            return False
        # A sender learns in any case that its message was not confirmed.
        if late or (command.follow_up is not None and not named):
            return bool(named)
        await self._discard_idle()
        raise ReplyLost("the sentinels do not confirm that the server is the primary")

    async def _discard_idle(self) -> None:
        while self._idle:
            await self._discard(self._idle.pop())

    async def _discard(self, connection: AbstractConnection) -> None:
        if self._pipelined is not None:
            self._pipelined.pop(connection, None)
        try:
            await _cut(connection)
        finally:
            with anyio.CancelScope(shield=True):
                await self._pool.release(connection)


async def confirm(connection: AbstractConnection, words: Sequence[Argument]) -> Reply:
    """Run WAIT or WAITAOF: ask how far the last write of this connection was replicated."""
    packed = pack(words)
    await connection.send_packed_command(packed, check_health=False)
    try:
        return await connection.read_response(disable_decoding=True)
    except driver_errors.ResponseError as error:
        return str(error)


async def _cut(connection: AbstractConnection) -> None:
    with anyio.CancelScope(shield=True):
        await connection.disconnect(nowait=True)


async def usable(connection: AbstractConnection) -> bool:
    """Return True if a kept connection is alive and in step (no unread reply, not closed)."""
    try:
        if not connection.is_connected or await redis_versions.has_unread(connection):
            return False
        await connection.check_health()  # type: ignore[no-untyped-call]
    except Exception:
        return False
    return True
