"""The short way to a reply, on a connection that redis-py opened and pools."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hiredis import Reader
from redis import exceptions as driver_errors
from redis.asyncio.connection import AbstractConnection

from ..protocol.operation import Reply

_MORE = object()


class Wire(asyncio.Protocol):
    """Asks on a connection, one command at a time.

    While a command is under way, what arrives goes to the parser and the reply to whoever waits,
    past the stream and the coroutines that redis-py has in between. Before and after, the
    connection is redis-py's: it makes the handshake, and what comes unasked, or the end, is seen
    where it always is.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        self._transport = _transport_of(connection)
        self._stream = cast(asyncio.StreamReaderProtocol, self._transport.get_protocol())
        self._parser = Reader(
            protocolError=driver_errors.InvalidResponse,
            replyError=connection._parser.parse_error,  # noqa: SLF001
            notEnoughData=_MORE,
        )
        self._reply: asyncio.Future[Reply] | None = None

    def is_of(self, connection: AbstractConnection) -> bool:
        """Tell whether it is still the one of *connection*, which may have been opened anew."""
        return self._transport is _transport_of(connection)

    def ask(self, packed: bytes) -> asyncio.Future[Reply]:
        """Send a command; the future is the reply, or an error in its place.

        Whoever cancels it must close the connection.
        """
        self._reply = reply = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            # It would take the command and never say a word.
            reply.set_exception(driver_errors.ConnectionError("Connection closed."))
            return reply
        self._transport.set_protocol(self)
        self._transport.write(packed)
        return reply

    def data_received(self, data: bytes) -> None:
        """Answer as soon as the reply is complete."""
        try:
            self._parser.feed(data)
            reply = self._parser.gets()
        except driver_errors.InvalidResponse as error:
            self._fail(error)
            return
        if reply is _MORE:
            return
        self._transport.set_protocol(self._stream)
        if self._parser.has_data():
            # More than was asked for: let the connection count as out of step.
            self._stream.data_received(data[-1:])
        if isinstance(reply, Exception):
            self._fail(reply)
        elif self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    def eof_received(self) -> bool | None:
        """Take note that the server says no more."""
        self._fail(driver_errors.ConnectionError("Connection closed by server."))
        return self._stream.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the connection is gone."""
        self._fail(exc or driver_errors.ConnectionError("Connection closed."))
        self._stream.connection_lost(exc)

    def pause_writing(self) -> None:
        """Keep the stream's count of what is not written yet."""
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        """Keep the stream's count of what is not written yet."""
        self._stream.resume_writing()

    def _fail(self, error: Exception) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)


def _transport_of(connection: AbstractConnection) -> asyncio.Transport:
    writer: Any = connection._writer  # noqa: SLF001 - redis-py has no public name for it
    return cast(asyncio.Transport, writer.transport)
