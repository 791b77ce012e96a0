"""The stream of live figures that every open page reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response

from ..broker.tokens import Caller
from .live_sampler import LiveSampler, QueueRow, Watcher, totals_of
from .request_context import Visit
from .streaming_responses import EVENTS, Stream, event


async def events(visit: Visit) -> Response:
    """Return live figures of all queues, or of one: a stream of events ``sample``."""
    sampler, name = visit.board.sampler, visit.text("queue")
    if name:
        return Stream(queue_events(sampler, visit.queue(name).name), EVENTS)
    return Stream(overview_events(sampler, visit.caller), EVENTS)


async def overview_events(sampler: LiveSampler, caller: Caller) -> AsyncGenerator[bytes, None]:
    """Yield what has changed among all queues, sample by sample."""
    before: dict[str, QueueRow] = {}
    async for is_news in sampler.watch(Watcher(None)):
        if not is_news:
            yield b": still here\n\n"
            continue
        rows = [] if sampler.error else sampler.rows(caller)
        changed = [row for row in rows if before.get(row.name) != row]
        after = {row.name: row for row in rows}
        sample: dict[str, Any] = {"error": sampler.error}
        if not sampler.error:
            gone = [name for name in before if name not in after]
            sample |= {"rows": changed, "gone": gone, "totals": totals_of(rows)}
            before = after
        yield event("sample", sample)


async def queue_events(sampler: LiveSampler, queue: str) -> AsyncGenerator[bytes, None]:
    """Yield the figures of one queue: first with its history, then the last point each time."""
    first = True
    async for is_news in sampler.watch(Watcher(queue)):
        if not is_news:
            yield b": still here\n\n"
            continue
        row = sampler.row(queue)
        points = sampler.history(queue).columns()
        last = points if first else {name: column[-1:] for name, column in points.items()}
        sample: dict[str, Any] = {"error": sampler.error, "row": row, "consumers": []}
        if not sampler.error:
            sample |= {"points": last, "consumers": sampler.consumers(queue), "first": first}
            first = False
        yield event("sample", sample)
