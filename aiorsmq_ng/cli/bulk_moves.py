"""Moves and removes many messages, with a progress bar and a report after an interruption."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiorsmq_ng

from .output import complain
from .progress import SHORT, progress
from .shared_options import messages


async def move(
    target: aiorsmq_ng.Queue,
    source: aiorsmq_ng.Queue,
    *,
    count: int | None,
    where: Callable[[aiorsmq_ng.Message], bool] | None = None,
    rate: float | None = None,
) -> int:
    """Move up to *count* messages of *source*; if interrupted, report how many were moved."""
    ready = (await source.attributes()).ready
    total = min(ready, count or ready) if where is None else None
    short = SHORT if rate is None else 0  # with a rate limit, even a few messages may take long
    with _telling("moving", total, f"moved to queue {target.name!r}", short) as tell:
        return await target.redrive(source, count=count, where=where, rate=rate, progress=tell)


async def purge(queue: aiorsmq_ng.Queue, *, leased: bool = False) -> int:
    """Remove messages; if interrupted, report how many were removed."""
    if leased:
        return await queue.purge(leased=True)  # one step: all or nothing
    with _telling("removing", None, f"removed from queue {queue.name!r}") as tell:
        return await queue.purge(progress=tell)


@contextmanager
def _telling(
    label: str, total: int | None, what: str, short: int = SHORT
) -> Iterator[Callable[[int], None]]:
    """Yield a callback that is given the size of every finished batch."""
    done = 0
    try:
        with progress(label, total, sys.stderr.isatty(), short) as advance:

            def tell(more: int) -> None:
                nonlocal done
                done += more
                advance(more)

            yield tell
    except BaseException as error:
        if done or not isinstance(error, Exception):
            complain(f"{messages(done)} {what}; the others are unchanged")
        raise
