"""Reads single key presses without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from typing import Any, Self


class Keyboard:
    """Collects the keys that are pressed inside ``async with``; none without a terminal.

    Ctrl-C works as usual, and the terminal's settings are restored at the end.
    """

    def __init__(self) -> None:
        self._pressed = asyncio.Event()
        self._keys: list[str] = []
        self._before: list[Any] | None = None

    def wake(self) -> None:
        """Wake up ``until`` without a key press."""
        self._pressed.set()

    async def until(self, when: float) -> list[str]:
        """Return the pressed keys: at once if there are any, else at *when* or when woken."""
        try:
            async with asyncio.timeout_at(when):
                await self._pressed.wait()
        except TimeoutError:
            return []
        self._pressed.clear()
        keys, self._keys = self._keys, []
        return keys

    def _read(self) -> None:
        text = os.read(self._fd, 64).decode(errors="ignore")
        if not text:
            asyncio.get_running_loop().remove_reader(self._fd)  # the terminal was closed
        self._keys += text
        self._pressed.set()

    @property
    def _fd(self) -> int:
        return sys.stdin.fileno()

    async def __aenter__(self) -> Self:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._before is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
