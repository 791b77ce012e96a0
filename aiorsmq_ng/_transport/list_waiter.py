"""Waits on the server until a list has an element, and takes nothing.

A blocking pop that is cancelled may have taken an element whose reply is never read. So this one
moves the element at the right end of the list to where it is: ``BLMOVE list list RIGHT RIGHT``.
All clients that wait are woken, and nothing has changed for any of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from redis.asyncio.connection import AbstractConnection

from .driver import NotExecuted
from .error_mapping import describe
from .packing import pack

#: How much longer than the server may take the client waits for the reply, and for a connection.
_LATE_S = 5.0


class ListElementWaiter:
    """Waits for elements of lists, on one connection that is opened when it is needed."""

    def __init__(self, connection: Callable[[str], Awaitable[AbstractConnection]]) -> None:
        self._make = connection
        self._connection: AbstractConnection | None = None

    async def wait(self, key: str, seconds: int) -> None:
        """Return when the list *key* has an element, or after *seconds*."""
        answered = False
        try:
            with anyio.fail_after(_LATE_S):
                if self._connection is None:
                    self._connection = await self._make(key)
                    await self._connection.connect()  # type: ignore[no-untyped-call]
                packed = pack(("BLMOVE", key, key, "RIGHT", "RIGHT", seconds))
                await self._connection.send_packed_command(packed, check_health=False)
            with anyio.fail_after(seconds + _LATE_S):
                await self._connection.read_response(
                    disable_decoding=True,
                    timeout=seconds + 2 * _LATE_S,  # later than the line above: it returns None
                )
            answered = True
        except Exception as error:
            # Whatever it is, the caller learns more by looking for itself.
            raise NotExecuted(describe(error)) from error
        finally:
            if not answered:
                await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; a wait on the server ends with it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with anyio.CancelScope(shield=True):
                await connection.disconnect(nowait=True)
