"""redis-py behind the Driver seam: connections without its retries, errors mapped in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
from hiredis import pack_command
from redis import exceptions as driver_errors
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection

from .._protocol.operation import Argument, Reply
from ..errors import RSMQError
from . import redis_versions
from .driver import Heard, NotExecuted, ReplyLost
from .error_mapping import ANSWERS, describe, has_stepped_down, raise_mapped, refused_at_connect
from .pipelined import ConnectionInUse, PipelinedConnection
from .primary_check import is_confirmed, masters_named
from .redis_calls import Command, RedisDriver

#: A connection that has rested so many seconds is asked for a sign of life before it is used.
HEALTH_S = 15
#: Seconds of silence after which a wake-up connection is pinged, and then given up.
_SILENCE_S = 10.0

#: A reply that takes so many seconds may be that of a master that was replaced meanwhile.
_LATE_S = 0.5
#: Calls that it pays to make at a time, for each connection that they can share.
_JOINED = 8
#: More than anybody's pool has.
_MANY = 1 << 30

#: Called when the server cannot be reached, to bring it back if it is ours.
Revive = Callable[[], Awaitable[None]]


class PoolDriver(RedisDriver):
    """Runs commands on connections of a redis-py pool.

    redis-py repeats a command when its reply is lost, which doubles sends and strands receives.
    Talking to the connection itself leaves that out, whatever the pool's settings, and saves most
    of the client's time per call. ``keep`` holds connections between calls instead of handing
    them back each time. ``direct`` leaves out redis-py's stream, too, and lets calls of the same
    moment share a connection; it is the number of connections for calls. Both only for a pool of
    our own.
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
        self._free = asyncio.Semaphore(direct or _MANY)
        # Connections in use that others may join, and the one that was taken in this very tick.
        self._shared: set[ConnectionInUse] = set()
        self._joinable: ConnectionInUse | None = None
        self._revive = revive
        self._closing = closing
        # Raises if nothing may be sent to this server any more.
        self._check = check
        self._idle: list[AbstractConnection] = []
        self._has_sentinels = hasattr(pool, "sentinel_manager")

    async def execute(self, command: Command) -> Reply:
        """Run *command* once."""
        if self._check is not None:
            self._check()
        packed = pack_command(tuple(command.words))  # type: ignore[arg-type]
        # What is said about the last write of a connection must be about this one.
        asks = command.follow_up or (
            command.min_replicas and command.needs_confirmation and self._has_sentinels
        )
        used = await self._join_or_acquire(packed, alone=bool(asks))
        began_at = asyncio.get_running_loop().time()
        try:
            command.written = True
            reply = await used.ask(packed)
            if command.follow_up is not None:
                command.confirmation = await confirm(used.connection, command.follow_up)
            if self._has_sentinels and await self._is_replaced(used, command, reply, began_at):
                used.broken = True
                await self._discard_idle()
        except ANSWERS as error:
            if has_stepped_down(error):
                # The next server at its address, or one named by sentinels, may be the primary.
                used.broken = True
                await self._discard_idle()
            raise_mapped(error)
        except BaseException as error:
            # Other callers that wait for replies on it fail at once.
            used.broken = True
            await _cut(used.connection)
            if not isinstance(error, Exception):
                # Given up for its silence; the connections that wait lead to the same peer.
                await self._discard_idle()
                raise
            # redis-py lets AttributeError and the like escape from a connection that dies.
            raise ReplyLost(describe(error)) from error
        finally:
            await self._release(used)
        return reply

    @property
    def calls_per_connection(self) -> int:
        """How many calls it pays to make at a time, for each connection."""
        return 1 if self._pipelined is None else _JOINED

    def listener(self) -> ConnectionListener:
        """Return a listener on a connection of its own; the pool's are for calls."""
        pool = self._pool
        return ConnectionListener(lambda: pool.connection_class(**pool.connection_kwargs))

    async def aclose(self) -> None:
        """Hand all connections back, and close them if the pool is ours."""
        while self._idle:
            await self._pool.release(self._idle.pop())
        if self._keep:
            await self._pool.disconnect()
        if self._closing is not None:
            await self._closing()

    async def _join_or_acquire(self, packed: bytes, *, alone: bool) -> ConnectionInUse:
        """Return a connection for one call: that of others in this tick, a free one, a new one.

        If all are in use, one with few calls.
        """
        used = None if alone else self._joinable
        if used is None or not used.can_join(packed):
            joined = [] if alone or not self._free.locked() else self._shared
            used = min(
                (used for used in joined if used.can_join(packed)),
                key=lambda used: used.users,
                default=None,
            )
        if used is None:
            used = await self._acquire_wrapped()
            if not alone and self._pipelined is not None:
                self._shared.add(used)
                self._joinable = used
                asyncio.get_running_loop().call_soon(self._end_of_tick)
        used.users += 1
        return used

    def _end_of_tick(self) -> None:
        self._joinable = None

    async def _acquire_wrapped(self) -> ConnectionInUse:
        await self._free.acquire()
        try:
            connection = await self._acquire()
        except BaseException:
            self._free.release()
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
        self._shared.discard(used)
        if used is self._joinable:
            self._joinable = None
        try:
            if used.broken:
                await self._discard(used.connection)
            else:
                # It has shown that it is alive.
                now = asyncio.get_running_loop().time()
                used.connection.next_health_check = now + HEALTH_S
                await self._put_back(used.connection)
        finally:
            self._free.release()

    async def _acquire(self) -> AbstractConnection:
        while self._idle:
            connection = self._idle.pop()
            try:
                if self._leads_to_master(connection) and await usable(connection):
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

    def _leads_to_master(self, connection: AbstractConnection) -> bool:
        """Return True if it still does, if sentinels were asked meanwhile for another connection.

        The former master may be alive, and take itself for the master for a while.
        """
        master = getattr(self._pool, "master_address", None)
        return master is None or master == (
            getattr(connection, "host", None),
            getattr(connection, "port", None),
        )

    async def _is_replaced(
        self, used: ConnectionInUse, command: Command, reply: Reply, began_at: float
    ) -> bool:
        """Return True if sentinels name another master; they are asked if it is doubtful.

        A master that was silent for a while may have a successor without knowing it. What it does
        then is forgotten soon. ``ReplyLost`` if the reply matters and they do not vouch for it.
        """
        connection = used.connection
        late = asyncio.get_running_loop().time() - began_at > _LATE_S
        if command.min_replicas and not await is_confirmed(
            partial(confirm, connection), command, reply
        ):
            late = False
        elif not late:
            return False
        named = await masters_named(self._pool)
        if named == {(getattr(connection, "host", None), getattr(connection, "port", None))}:
            return False
        # A sender learns anyway that its message is not confirmed.
        if late or (command.follow_up is not None and not named):
            return bool(named)
        await self._discard_idle()
        raise ReplyLost("the sentinels do not vouch for the master")

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


class ConnectionListener:
    """Listens on one connection. Silence is probed, because a dead peer is silent too.

    redis-py's own PubSub reconnects behind the scenes, and takes a second connection when two
    tasks find the first one dead; here a lost connection is an error and the end of the listener.
    """

    def __init__(self, connection: Callable[[], AbstractConnection]) -> None:
        self._make = connection
        self._connection: AbstractConnection | None = None
        self._probed = False

    async def subscribe(self, *channels: str) -> None:
        """Add channels."""
        await self._send("SUBSCRIBE", *channels)

    async def unsubscribe(self, *channels: str) -> None:
        """Drop channels."""
        await self._send("UNSUBSCRIBE", *channels)

    async def next_heard(self) -> Heard | None:
        """Wait for a publication, or for a new subscription to stand.

        ``None`` for anything else; ``NotExecuted`` when the connection is lost.
        """
        with mapped_errors():
            if self._connection is None:
                raise NotExecuted("the wake-up connection is closed")
            message = await self._connection.read_response(
                disable_decoding=True, timeout=_SILENCE_S, push_request=True
            )
        if message is None:
            if self._probed:
                raise NotExecuted("the wake-up connection gives no answer")
            self._probed = True
            await self._send("PING")
            return None
        self._probed = False
        if isinstance(message, list) and message[0] in (b"message", b"subscribe"):
            text = message[2] if message[0] == b"message" else None
            return Heard(message[1].decode(), text)
        return None

    async def aclose(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with anyio.CancelScope(shield=True):
                await connection.disconnect(nowait=True)

    async def _send(self, *words: str) -> None:
        # A handshake whose reply is lost would otherwise be waited for without end.
        with mapped_errors(), anyio.fail_after(_SILENCE_S):
            if self._connection is None:
                self._connection = self._make()
                await self._connection.connect()  # type: ignore[no-untyped-call]
            packed = pack_command(words)  # type: ignore[arg-type]
            await self._connection.send_packed_command(packed, check_health=False)


class mapped_errors:  # noqa: N801 - reads as a statement
    """Turn whatever a wake-up connection raises into ``NotExecuted`` (a final error stays)."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, driver_errors.RedisError):
            refused_at_connect(error)
        if isinstance(error, Exception) and not isinstance(error, NotExecuted | RSMQError):
            raise NotExecuted(describe(error)) from error


async def confirm(connection: AbstractConnection, words: Sequence[Argument]) -> Reply:
    """Ask what WAIT and WAITAOF tell: how far the last write of this connection has got."""
    packed = pack_command(tuple(words))  # type: ignore[arg-type]
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
