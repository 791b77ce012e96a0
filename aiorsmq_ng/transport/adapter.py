"""redis-py behind the Driver seam: connections without its retries, errors mapped in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

import anyio
from hiredis import pack_command
from redis import exceptions as driver_errors
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection

from ..errors import QueueFull, RSMQError, Unavailable
from ..protocol.operation import Argument, Reply
from . import tls
from .base import Command, NotExecuted, ReplyLost, ScriptMissing, WrongLayout
from .wire import Line, Wire

# What a server says when it cannot serve now but may soon: nothing ran. redis-py has classes for
# some of these and takes the code word off their text.
_TRY_LATER = (
    driver_errors.BusyLoadingError,
    driver_errors.ReadOnlyError,
    driver_errors.MasterDownError,
    driver_errors.ClusterDownError,
    driver_errors.TryAgainError,
)
_TRY_LATER_WORDS = (
    "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "CLUSTERDOWN", "TRYAGAIN"
)  # fmt: skip
# Words of servers, and of the cluster client, for keys that lie on different nodes.
_ACROSS_SLOTS = ("CROSSSLOT", "same slot", "same key slot", "non local")
_NO_ACCESS = ("NOAUTH", "WRONGPASS", "NOPERM")
#: A connection that has rested so many seconds is asked for a sign of life before it is used.
HEALTH_S = 15
#: Seconds of silence after which a wake-up connection is pinged, and then given up.
_SILENCE_S = 10.0

#: Calls that it pays to make at a time, for each connection that they can share.
_JOINED = 8
#: More than anybody's pool has.
_MANY = 1 << 30

#: Called when the server cannot be reached, to bring it back if it is ours.
Revive = Callable[[], Awaitable[None]]


class PoolDriver:
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
    ) -> None:
        self._pool = pool
        self._keep = keep
        self._wires: dict[AbstractConnection, Wire] | None = {} if direct else None
        self._free = asyncio.Semaphore(direct or _MANY)
        # Connections in use that others may join, and the one that was taken in this very tick.
        self._shared: set[Line] = set()
        self._boarding: Line | None = None
        self._revive = revive
        self._closing = closing
        self._idle: list[AbstractConnection] = []

    async def execute(self, command: Command) -> Reply:
        """Run *command* once."""
        packed = pack_command(tuple(command.words))  # type: ignore[arg-type]
        line = await self._board(packed, alone=command.then is not None)
        try:
            command.written = True
            reply = await line.ask(packed)
            if command.then is not None:
                command.confirmation = await confirm(line.connection, command.then)
        except driver_errors.ResponseError as error:
            # It became a replica; whoever answers to its address next may be the primary.
            line.spoilt |= isinstance(error, driver_errors.ReadOnlyError) or "READONLY" in str(
                error
            )
            explain(error)
        except BaseException as error:
            # Whoever else waits for replies on it learns of the end at once.
            line.spoilt = True
            await _cut(line.connection)
            if not isinstance(error, Exception):
                # Given up for its silence; the connections that wait lead to the same peer.
                await self._distrust()
                raise
            # redis-py lets AttributeError and the like escape from a connection that dies.
            raise ReplyLost(sentence(error)) from error
        finally:
            await self._leave(line)
        return reply

    @property
    def calls_per_connection(self) -> int:
        """How many calls it pays to make at a time, for each connection."""
        return 1 if self._wires is None else _JOINED

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

    async def _board(self, packed: bytes, *, alone: bool) -> Line:
        """Return a connection for one call: that of others in this tick, a free one, a new one.

        If all are in use, one with few calls.
        """
        line = None if alone else self._boarding
        if line is None or not line.takes(packed):
            joined = [] if alone or not self._free.locked() else self._shared
            line = min(
                (line for line in joined if line.takes(packed)),
                key=lambda line: line.users,
                default=None,
            )
        if line is None:
            line = await self._take_line()
            if not alone and self._wires is not None:
                self._shared.add(line)
                self._boarding = line
                asyncio.get_running_loop().call_soon(self._depart)
        line.users += 1
        return line

    def _depart(self) -> None:
        self._boarding = None

    async def _take_line(self) -> Line:
        await self._free.acquire()
        try:
            connection = await self._acquire()
        except BaseException:
            self._free.release()
            raise
        if self._wires is None:
            return Line(connection)
        wire = self._wires.get(connection)
        if wire is None or not wire.is_of(connection):
            wire = self._wires[connection] = Wire(connection)
        return wire

    async def _leave(self, line: Line) -> None:
        line.users -= 1
        if line.spoilt and line is self._boarding:
            self._boarding = None
        if line.users:
            return
        self._shared.discard(line)
        if line is self._boarding:
            self._boarding = None
        try:
            if line.spoilt:
                await self._discard(line.connection)
            else:
                # It has shown that it is alive.
                now = asyncio.get_running_loop().time()
                line.connection.next_health_check = now + HEALTH_S
                await self._put_back(line.connection)
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
            raise NotExecuted(sentence(error)) from error

    async def _put_back(self, connection: AbstractConnection) -> None:
        if self._keep:
            self._idle.append(connection)
        else:
            await self._pool.release(connection)

    def _leads_to_master(self, connection: AbstractConnection) -> bool:
        """Tell whether it still does, if sentinels were asked meanwhile for another connection.

        The former master may be alive, and take itself for the master for a while.
        """
        master = getattr(self._pool, "master_address", None)
        return master is None or master == (
            getattr(connection, "host", None),
            getattr(connection, "port", None),
        )

    async def _distrust(self) -> None:
        while self._idle:
            await self._discard(self._idle.pop())

    async def _discard(self, connection: AbstractConnection) -> None:
        if self._wires is not None:
            self._wires.pop(connection, None)
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

    async def next_channel(self) -> str | None:
        """Wait for a publication, or for a new subscription to stand, and return its channel.

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
            return str(message[1].decode())
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
            raise NotExecuted(sentence(error)) from error


def explain(error: Exception) -> NoReturn:
    """Raise what an error that the server answered with means. Nothing was written."""
    text = str(error)
    word = text.split(" ", 1)[0]
    if isinstance(error, driver_errors.NoScriptError) or word == "NOSCRIPT":
        raise ScriptMissing from None
    if "WRONGTYPE" in text:
        raise WrongLayout("wrongType") from None
    if isinstance(error, driver_errors.OutOfMemoryError) or "OOM command not allowed" in text:
        raise QueueFull(
            "redis is out of memory and stores nothing more; "
            "consume messages or raise its maxmemory"
        ) from None
    if _denied(error, word, text):
        raise Unavailable(f"redis refused access: {text}; check user, password and ACL") from None
    if isinstance(error, _TRY_LATER) or any(word in text for word in _TRY_LATER_WORDS):
        raise NotExecuted(text) from error
    if word in ("MOVED", "ASK") or isinstance(error, driver_errors.MovedError):
        raise Unavailable(
            "the server is part of a cluster; connect with redis+cluster:// "
            "and a namespace in braces such as '{rsmq}'"
        ) from None
    if any(words in text for words in _ACROSS_SLOTS):
        raise Unavailable(
            "a cluster keeps the keys of a queue on one node only if the namespace is in braces, "
            "such as ns='{rsmq}'"
        ) from None
    if "user_script" in text or "Lua" in text:
        raise WrongLayout("scriptFailed") from error
    # An unknown command is answered with its arguments, which may hold bodies.
    raise Unavailable(f"redis refused the command: {text.split(', with args', 1)[0]}") from None


def _is_of_replica(error: Exception) -> bool:
    return isinstance(error, driver_errors.ReadOnlyError) or "READONLY" in str(error)


def _denied(error: Exception, word: str, text: str) -> bool:
    return (
        isinstance(error, driver_errors.AuthenticationError | driver_errors.NoPermissionError)
        or word in _NO_ACCESS
        or "can't run this command" in text
        or "No permissions" in text
        or "no permissions" in text
        or "invalid username-password" in text
        or "invalid password" in text
    )


def refused_at_connect(error: Exception) -> None:
    """Raise if the server answered, but with a refusal; redis-py wraps that as an outage."""
    if isinstance(error, RSMQError):
        raise error
    if (sentence := tls.fault(error)) is not None:
        raise Unavailable(sentence) from None
    for cause in tls.chain(error):
        if isinstance(cause, driver_errors.ResponseError | driver_errors.AuthenticationError):
            explain(cause)


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
    """Tell whether a kept connection is alive and in step (no unread reply, not closed)."""
    try:
        if not connection.is_connected or await connection.can_read():
            return False
        await connection.check_health()  # type: ignore[no-untyped-call]
    except Exception:
        return False
    return True


def sentence(error: Exception) -> str:
    """Return a driver's error as text for ours; its repr would not say anything."""
    # After a colon in spaces the sentinel client lists its connections.
    return str(error).split(" : ", 1)[0].rstrip(".") or type(error).__name__
