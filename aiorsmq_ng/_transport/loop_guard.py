"""The event loop and the process that a client belongs to from its first call on."""

from __future__ import annotations

import asyncio
import os
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from weakref import WeakSet

from ..errors import WrongContext

_FOREIGN = object()
_guards: WeakSet[LoopGuard] = WeakSet()
#: Guards of the parent of this process. Their clients are never collected here: closing a
#: connection would take it out of the parent's event loop, whose selector both processes share.
_inherited: list[LoopGuard] = []


class LoopGuard:
    """Refuses calls from another event loop, another thread or a forked child.

    Comparing the running loop is all that a call costs: a fork puts something else in its place.
    """

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The event loop, or something that no call can come from.
        self.here: object = None
        self._pid = 0

    def settle(self) -> asyncio.AbstractEventLoop:
        """Belong to the running event loop from now on."""
        self._loop = self.here = loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        _guards.add(self)
        return loop

    def check(self) -> None:
        """Raise ``WrongContext`` if the running event loop is not the one; none is known at first.

        Nothing has happened then: calls come here before they write anything.
        """
        if self.here is not running_loop() and self.here is not None:
            raise self.refusal()

    @property
    def is_gone(self) -> bool:
        """Return True if the event loop is closed, or is that of the parent of this process."""
        return self.here is _FOREIGN or (self._loop is not None and self._loop.is_closed())

    def refusal(self) -> WrongContext:
        """Return the error for a call that came from elsewhere."""
        if self.here is _FOREIGN:
            return WrongContext(
                f"the client was opened in process {self._pid}, and this is process "
                f"{os.getpid()}; create one client per process, after the fork"
            )
        gone = "an event loop that has ended" if self.is_gone else "another event loop"
        return WrongContext(f"the client belongs to {gone}; create one client per event loop")

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the event loop call *function* in an empty context; from any thread.

        Nothing happens if the event loop is gone.
        """
        if self._loop is not None and self.here is self._loop:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function, context=Context())


def _forked() -> None:
    for guard in list(_guards):
        guard.here = _FOREIGN
        _inherited.append(guard)


os.register_at_fork(after_in_child=_forked)
