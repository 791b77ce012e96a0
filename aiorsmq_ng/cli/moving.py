"""Moving messages between queues, with a bar, and the truth about what an interruption left."""

from __future__ import annotations

import sys
from collections.abc import Callable

import aiorsmq_ng

from .options import messages
from .output import complain
from .progress import progress


async def move(
    target: aiorsmq_ng.Queue,
    source: aiorsmq_ng.Queue,
    *,
    count: int | None,
    where: Callable[[aiorsmq_ng.Message], bool] | None = None,
    rate: float | None = None,
) -> int:
    """Move up to *count* messages of *source*; say how many if it does not come to its end."""
    ready = (await source.attributes()).ready
    moved = 0
    try:
        total = min(ready, count or ready) if where is None else None
        with progress("moving", total, sys.stderr.isatty() and ready > 0) as advance:

            def tell(more: int) -> None:
                nonlocal moved
                moved += more
                advance(more)

            return await target.redrive(source, count=count, where=where, rate=rate, progress=tell)
    except BaseException as error:
        if moved or not isinstance(error, Exception):
            to = f"moved to queue {target.name!r}"
            complain(f"{messages(moved)} {to}; the others are where they were")
        raise
