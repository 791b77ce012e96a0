"""Intercepts of the proxy: single requests whose reply is dropped, or which are held back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from .._protocol.scripts import load
from ..errors import InvalidValue

#: Says which requests are meant: bytes that occur in them, or a function of their bytes.
Matching = bytes | Callable[[bytes], bool]


def operation(name: str) -> Callable[[bytes], bool]:
    """Match requests that run the script *name* of this library: ``send``, ``receive``, ...

    The names are those of the table of scripts in the documentation of the protocol.

    Args:
        name: name of the operation's script, such as ``send``.
    """
    script = load(name)
    return lambda request: script.sha in request or script.source in request


class Intercept:
    """Waits for the n-th request that matches, and reports when it came."""

    def __init__(self, matching: Matching, nth: int, kind: Literal["drop", "hold"]) -> None:
        if nth < 1:
            raise InvalidValue(f"nth counts from 1, not from {nth}")
        self._matching = matching
        self._left = nth
        self.kind = kind
        self._caught = asyncio.Event()
        self._released = asyncio.Event()
        self._done = asyncio.Event()

    async def caught(self) -> None:
        """Wait until the request has come."""
        await self._caught.wait()

    async def done(self) -> None:
        """Wait until the server has answered the request (or its connection is gone)."""
        await self._done.wait()

    async def release(self) -> None:
        """Let a request that is held go to the server, and wait until it has answered."""
        self._released.set()
        if self._caught.is_set():
            await self._done.wait()

    def catches(self, request: bytes) -> bool:
        """Count *request* if it matches; return True if it is the one.

        Args:
            request: the bytes of a request.
        """
        matching = self._matching
        if matching in request if isinstance(matching, bytes) else matching(request):
            self._left -= 1
            return self._left == 0
        return False

    async def spring(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do *act* on the request that was caught, once it is released.

        Args:
            act: what to do with the request.
        """
        self._caught.set()
        try:
            if self.kind == "hold":
                await self._released.wait()
            await act()
        finally:
            self._done.set()
