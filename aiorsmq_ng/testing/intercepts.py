"""Intercepts of the fault proxy: a single request that is held, or whose reply is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from .._protocol.scripts import load
from ..errors import InvalidValue

#: Selects requests: by bytes that occur in them, or by a predicate on their bytes.
Matching = bytes | Callable[[bytes], bool]


def operation(name: str) -> Callable[[bytes], bool]:
    """Match requests that run the script *name* of this library: ``send``, ``receive``, ...

    The names are those of the table of scripts in the protocol reference.

    Args:
        name: name of the operation's script, such as ``send``.
    """
    script = load(name)
    return lambda request: script.sha in request or script.source in request


class Intercept:
    """Catches the n-th matching request; its events say when it arrived and was executed."""

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
        """Wait until the proxy has received the request."""
        await self._caught.wait()

    async def done(self) -> None:
        """Wait until the server has replied to the request, or its connection is closed."""
        await self._done.wait()

    async def release(self) -> None:
        """Pass a held request on to the server, and wait until the server has replied."""
        self._released.set()
        if self._caught.is_set():
            await self._done.wait()

    def catches(self, request: bytes) -> bool:
        """Count *request* if it matches; return True if it is the n-th.

        Args:
            request: the bytes of a request.
        """
        matching = self._matching
        if matching in request if isinstance(matching, bytes) else matching(request):
            self._left -= 1
            return self._left == 0
        return False

    async def spring(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run *act* for the request that was caught; a held request waits for ``release``.

        Args:
            act: coroutine function that handles the request.
        """
        self._caught.set()
        try:
            if self.kind == "hold":
                await self._released.wait()
            await act()
        finally:
            self._done.set()
