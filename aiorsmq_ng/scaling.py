"""How much work a queue has, for autoscalers: the dashboard's API and the broker's scaler."""

from __future__ import annotations

import math
import time

from msgspec import Struct

from ._common.durations import Seconds, at_least_0
from ._protocol.operations import inspection
from ._runtime.queue_context import context_of
from .errors import InvalidValue
from .queue import Queue

#: Seconds before a delayed message is due at which it counts.
DUE_S = 10.0
#: Delayed messages that are due soon are counted up to this number, and hidden ones are looked at
#: up to the other: leases that end before are among them.
_COUNTED, _LOOKED_AT = 20, 1000
#: Messages that one call looks at.
_PAGE = 100


class Scale(Struct, kw_only=True):
    """The work of a queue at one moment."""

    ready: int
    leased: int
    delayed: int
    #: Delayed messages that are due soon, 20 at most; of the next 1000 hidden messages.
    due_soon: int
    #: Ready and leased: what workers have to do.
    backlog: int
    #: Seconds for which the first message has been ready; null if none is.
    oldest_age: float | None
    #: Replicas: the backlog by the target, rounded up; null without a target.
    desired: int | None = None


async def scale_of(queue: Queue, *, target: float | None = None, due: Seconds = DUE_S) -> Scale:
    """Return the work of *queue*; ``QueueNotFound`` if it does not exist.

    *target* is how many messages of its backlog one replica may have. A delayed message counts as
    due soon *due* seconds before it is due.
    """
    check_target(target)
    due_s = at_least_0("due", due)
    found = await queue.attributes()
    due_soon = await _due_soon(queue, found.ready, due_s) if found.delayed and due_s else 0
    backlog = found.ready + found.leased
    return Scale(
        ready=found.ready,
        leased=found.leased,
        delayed=found.delayed,
        due_soon=due_soon,
        backlog=backlog,
        oldest_age=found.oldest_age,
        desired=None if target is None else math.ceil(backlog / target),
    )


async def _due_soon(queue: Queue, ready: int, due_s: float) -> int:
    """Return how many delayed messages are due within *due_s*, by the server's clock."""
    context = context_of(queue)
    place: inspection.Place | None = (ready,)
    counted = looked_at = 0
    while place is not None and counted < _COUNTED and looked_at < _LOOKED_AT:
        page = await context.transport.run(inspection.scan(context.keys, _PAGE, at=place))
        now_ms = time.time() * 1000 if page.now_ms is None else page.now_ms
        before = now_ms + due_s * 1000
        counted += sum(m.state == "delayed" and m.score <= before for m in page.messages)
        if page.messages and page.messages[-1].score > before:
            break
        looked_at += len(page.messages)
        place = page.next
    return min(counted, _COUNTED)


def check_target(target: float | None) -> None:
    """Raise ``InvalidValue`` for a target that is not more than 0."""
    if target is not None and not 0 < target < math.inf:
        raise InvalidValue(f"target must be more than 0 messages, not {target!r}")
