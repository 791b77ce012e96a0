"""The subscribed connection, on which Redis publishes wake-ups; see ``notifier.py``."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from redis import exceptions as driver_errors
from redis.asyncio.connection import AbstractConnection

from ..errors import RSMQError
from .driver import Heard, NotExecuted
from .error_mapping import describe, refused_at_connect
from .packing import pack

#: Seconds without data after which a wake-up connection is pinged, and then dropped.
_SILENCE_S = 10.0


class ConnectionListener:
    """Listens on one connection. An idle connection is probed: a dead server is silent, too.

    redis-py's own PubSub reconnects by itself, and opens a second connection when two tasks find
    the first one dead. Here a lost connection is an error and the end of the listener.
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
        """Wait for a publication, or for the confirmation of a new subscription.

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
                raise NotExecuted("the wake-up connection does not answer")
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
        # Without a timeout, a lost reply of the handshake would block for ever.
        with mapped_errors(), anyio.fail_after(_SILENCE_S):
            if self._connection is None:
                self._connection = self._make()
                await self._connection.connect()  # type: ignore[no-untyped-call]
            packed = pack(words)
            await self._connection.send_packed_command(packed, check_health=False)


class mapped_errors:  # noqa: N801 - reads as a statement
    """Turn all errors of a wake-up connection into ``NotExecuted``, except final ones."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, driver_errors.RedisError):
            refused_at_connect(error)
        if isinstance(error, Exception) and not isinstance(error, NotExecuted | RSMQError):
            raise NotExecuted(describe(error)) from error
