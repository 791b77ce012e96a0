"""The stream of live figures that every open page reads."""

from __future__ import annotations

from starlette.responses import Response

from .live_sampler import overview_events, queue_events
from .request_context import Visit
from .streaming_responses import EVENTS, Stream


async def events(visit: Visit) -> Response:
    """Return live figures of all queues, or of one: a stream of events ``sample``."""
    sampler, name = visit.board.sampler, visit.text("queue")
    if name:
        return Stream(queue_events(sampler, visit.queue(name).name), EVENTS)
    return Stream(overview_events(sampler, visit.caller), EVENTS)
