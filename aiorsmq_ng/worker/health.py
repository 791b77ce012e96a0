"""What a worker is doing."""

from __future__ import annotations

from dataclasses import dataclass
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
