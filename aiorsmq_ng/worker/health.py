"""What a worker is doing, and how much of it at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

State = Literal["new", "running", "paused", "draining", "stopped"]


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker at one moment."""

    state: State
    #: Handlers running now, and those that do not end although they were cancelled.
    running: int
    stuck: int
    #: Messages since the start: done, given back for another try, moved to the dead letters.
    done: int
    failed: int
    rejected: int
    last_error: str | None


@dataclass(slots=True)
class Slots:
    """Room for so many handlers at a time."""

    free: int
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self) -> None:
        """Wait for room and take it."""
        while self.free <= 0:
            self.changed.clear()
            await self.changed.wait()
        self.free -= 1

    def give(self) -> None:
        """Give room back."""
        self.free += 1
        self.changed.set()
