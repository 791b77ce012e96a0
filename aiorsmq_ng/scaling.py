"""How much work a queue has, for autoscalers: the dashboard's API and the broker's scaler."""

from __future__ import annotations

import math
import time

from msgspec import Struct

from ._common.durations import Seconds, at_least_0
from .errors import InvalidValue
from .queue import Queue

#: Seconds before a delayed message is due at which it counts.
DUE_S = 10.0
#: Hidden messages that are looked at to count those that are due soon.
_LOOKED_AT = 20


class Scale(Struct, kw_only=True):
    """The work of a queue at one moment."""

    ready: int
    leased: int
    delayed: int
    #: Delayed messages that are due soon; of the next 20 hidden messages.
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
    due_soon = 0
    if found.delayed and due_s:
        before = (time.time() + due_s) * 1000
        async for message in queue.scan(found.ready, _LOOKED_AT):
            due_soon += message.state == "delayed" and message.score <= before
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


def check_target(target: float | None) -> None:
    """Raise ``InvalidValue`` for a target that is not more than 0."""
    if target is not None and not 0 < target < math.inf:
        raise InvalidValue(f"target must be more than 0 messages, not {target!r}")
