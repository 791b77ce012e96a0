"""A connection of redis-py on which calls of the same moment are pipelined.

Theory of operation
-------------------

Rule 1: redis-py opens a connection and makes the handshake. At rest the connection is redis-py's:
its stream sees unsolicited data and the end of the connection.

Rule 2: while commands are in flight, the socket's data goes to a parser of our own, past the stream
and the coroutines that redis-py has in between. The protocol of the transport is switched with the
first command and switched back with the last reply.

Rule 3: replies come in the order of the commands, so a queue of futures is all the bookkeeping.

Rule 4: the first command is written at once. Those that follow while it is in flight are written
together at the end of the tick.

Rule 5: a future that is cancelled leaves a reply that has no reader. Its caller must close the
connection, and every other command in flight then loses its reply.

Rule 6: bytes beyond the last reply mean that the connection is out of step. They are handed to
redis-py's stream, where the next check finds them, and the connection is not used again.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable
from typing import Any, Protocol, cast

from hiredis import Reader
from redis import exceptions as driver_errors
from redis.asyncio.connection import AbstractConnection

from .._protocol.operation import Reply
from . import redis_versions

_MORE = object()
#: Limits of commands in flight on one connection, and of the bytes of a command that joins others.
MAX_IN_FLIGHT, MAX_SHARED_BYTES = 64, 1 << 16
#: Send buffer of a Unix socket. The default is smaller than a large call, which would be written in
#: two parts, with a turn of the event loop in between. TCP adapts its buffer.
UNIX_SEND_BYTES = 1 << 20


class ReplyReader(Protocol):
    """What gets the reply to a command: a future, or an attempt that acts on it at once."""

    def done(self) -> bool:
        """Return True if it wants no reply any more."""
        ...

    def set_result(self, reply: Any, /) -> None:
        """Take the reply."""

    def set_exception(self, error: Exception, /) -> None:
        """Take the error reply, or the error of the connection."""


class ConnectionInUse:
    """A connection in use through redis-py's own stream: one command at a time."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        #: Number of callers that use it; True if it must be discarded after them.
        self.users = 0
        self.broken = False

    def can_join(self, _packed: bytes) -> bool:
        """Return True if a command may be sent along with those in flight."""
        return False

    def ask(self, packed: bytes) -> Awaitable[Reply]:
        """Send a command; wait for the reply, or raise the error in its place."""
        return self._ask(packed)

    async def _ask(self, packed: bytes) -> Reply:
        await self.connection.send_packed_command(packed, check_health=False)
        return await self.connection.read_response(disable_decoding=True)


class PipelinedConnection(ConnectionInUse, asyncio.Protocol):
    """A connection on which commands of the same tick are pipelined, by the rules above."""

    def __init__(self, connection: AbstractConnection) -> None:
        super().__init__(connection)
        self._transport = redis_versions.transport_of(connection)
        self._stream = cast(asyncio.StreamReaderProtocol, self._transport.get_protocol())
        self._parser = Reader(
            protocolError=driver_errors.InvalidResponse,
            replyError=redis_versions.error_parser(connection),
            notEnoughData=_MORE,
        )
        self._replies: deque[ReplyReader] = deque()
        self._unwritten: list[bytes] = []
        peer = self._transport.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNIX_SEND_BYTES)

    def belongs_to(self, connection: AbstractConnection) -> bool:
        """Return False if *connection* was reopened since."""
        return self._transport is redis_versions.transport_of(connection)

    def can_join(self, packed: bytes) -> bool:
        """Return True if a command may be sent along with those in flight."""
        return (
            not self.broken
            # One that is being closed would take the command, and never answer.
            and not self._transport.is_closing()
            and self.users < MAX_IN_FLIGHT
            and len(packed) <= MAX_SHARED_BYTES
        )

    def ask(self, packed: bytes) -> asyncio.Future[Reply]:
        """Send a command; the future resolves to the reply, or raises the error reply.

        A caller that cancels the future must close the connection.
        """
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        if self._transport.is_closing():
            # It would accept the command, and the future would never resolve.
            reply.set_exception(driver_errors.ConnectionError("Connection closed."))
            return reply
        if not self._replies:
            self._transport.set_protocol(self)
            self._transport.write(packed)
        else:
            if not self._unwritten:
                loop.call_soon(self.write)
            self._unwritten.append(packed)
        self._replies.append(reply)
        return reply

    def is_at_rest(self, now: float) -> bool:
        """Return True if it is known without waiting to be idle, alive and in step."""
        connection = self.connection
        return (
            now <= connection.next_health_check
            and not self._transport.is_closing()
            and self.belongs_to(connection)
            and redis_versions.is_at_rest(connection)
        )

    def prepare(self, packed: bytes, reader: ReplyReader) -> None:
        """Write a command, or have it ready for ``write`` behind others; *reader* gets the reply.

        The first one is not kept: the server works on it while the others are encoded. Together
        they would be answered together, and client and server would wait for each other.
        """
        if self._replies:
            self._unwritten.append(packed)
        else:
            self._transport.set_protocol(self)
            self._transport.write(packed)
        self._replies.append(reader)

    def data_received(self, data: bytes) -> None:
        """Resolve the futures whose replies are complete."""
        replies, parser = self._replies, self._parser
        try:
            parser.feed(data)
            while replies:
                reply = parser.gets()
                if reply is _MORE:
                    return
                reader = replies.popleft()
                if not replies:
                    # Before the reply is acted on: that may use the connection again.
                    self._transport.set_protocol(self._stream)
                    if parser.has_data():
                        # Rule 6: the connection is out of step.
                        self._stream.data_received(data[-1:])
                if not reader.done():
                    if isinstance(reply, Exception):
                        reader.set_exception(reply)
                    else:
                        reader.set_result(reply)
        except driver_errors.InvalidResponse as error:
            self._fail(error)

    def eof_received(self) -> bool | None:
        """Handle the end of the server's stream."""
        self._fail(driver_errors.ConnectionError("Connection closed by server."))
        return self._stream.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a lost connection."""
        self._fail(exc or driver_errors.ConnectionError("Connection closed."))
        self._stream.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on: redis-py's stream keeps the state of the flow control."""
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on: redis-py's stream keeps the state of the flow control."""
        self._stream.resume_writing()

    def write(self) -> None:
        """Write the commands that gathered."""
        unwritten, self._unwritten = self._unwritten, []
        if unwritten and not self._transport.is_closing():
            self._transport.write(unwritten[0] if len(unwritten) == 1 else b"".join(unwritten))

    def _fail(self, error: Exception) -> None:
        while self._replies:
            reader = self._replies.popleft()
            if not reader.done():
                reader.set_exception(error)
