"""Lanes: where operations wait for the call that they share."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from .._protocol.operation import Kind, Operation

#: What operations must have in common to share a call: their kind, and the lane of their requests.
Key = tuple[Kind[Any], tuple[Any, ...]]

#: A call with this many messages keeps the server busy for about a millisecond.
MAX_WEIGHT = 256
#: What a socket takes at once; more would be copied again and again while it is written.
MAX_SIZE = 1 << 18
#: From so many operations on, a lane with nothing under way makes two calls of them: while the
#: server works on one, the client packs the other or hands out the replies to the one before.
#: Fewer are not enough work for another call.
SPLIT_FROM = 64


@dataclass(slots=True, eq=False)
class Waiting:
    """An operation on its way, and the future its caller waits for."""

    operation: Operation[Any]
    future: asyncio.Future[Any]
    deadline: float
    #: Whether it is made even if the caller is gone before it is written.
    firm: bool = False

    def fail(self, error: Exception) -> None:
        """Hand *error* to the caller, unless it is gone."""
        if not self.future.done():
            self.future.set_exception(error)
            # A caller that is cancelled just now never looks at it.
            self.future.add_done_callback(_retrieved)


@dataclass(slots=True, eq=False)
class Lane:
    """Operations that may share a call: same kind, and same lane of their requests.

    ``key`` is ``None`` for the lane of an operation that goes alone.
    """

    key: Key | None
    waiting: deque[Waiting] = field(default_factory=deque)
    calls: int = 0
    starting: bool = False

    def batch(self) -> list[Waiting]:
        """Take what goes into the call just begun, one operation at least; skip who has left."""
        batch: list[Waiting] = []
        waiting = self.waiting
        most = len(waiting)
        if self.calls == 1 and most >= SPLIT_FROM:
            most = (most + 1) // 2
        weight = size = 0
        while waiting and len(batch) < most:
            head = waiting[0]
            if head.firm or not head.future.cancelled():
                request = head.operation.request
                weight += request.weight
                size += request.size
                if batch and (weight > MAX_WEIGHT or size > MAX_SIZE):
                    break
                batch.append(head)
            waiting.popleft()
        return batch


def _retrieved(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
