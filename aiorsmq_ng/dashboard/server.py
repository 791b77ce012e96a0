"""The server, what is dangerous in its settings, and an examination of all queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from msgspec import Struct
from starlette.responses import Response

from aiorsmq_ng import DoctorReport, Finding, ServerFacts

from ..broker.tokens import ADMIN
from .request_context import Visit
from .streaming_responses import EVENTS, Stream, event

#: Seconds between two reports of progress.
_REPORT_S = 0.2


class ServerView(Struct, kw_only=True):
    """The server and the findings about its settings."""

    facts: ServerFacts
    findings: list[Finding]


async def server(visit: Visit) -> ServerView:
    """Return what the server reports about itself, and what is dangerous in its settings."""
    visit.caller.need(ADMIN, what="looking at the server")
    report = await visit.board.rsmq.doctor(server_only=True)
    return ServerView(facts=report.server, findings=report.findings)


async def doctor(visit: Visit) -> Response:
    """Examine all queues: a stream of events ``progress`` and ``report``; nothing is repaired."""
    visit.caller.need(ADMIN, what="the doctor")
    return Stream(_examine(visit), EVENTS)


async def _examine(visit: Visit) -> AsyncGenerator[bytes, None]:
    at: list[tuple[str, int, int]] = [("queues", 0, 0)]

    def progress(what: str, done: int, total: int) -> None:
        at[0] = what, done, total

    rsmq = visit.board.rsmq
    names = [name for name in await rsmq.list_queues() if visit.caller.sees_queue(name)]
    sees_all = visit.caller.queues == visit.caller.topics == visit.caller.consumers == ("*",)
    examining = asyncio.create_task(
        rsmq.doctor(*(() if sees_all else names), progress=progress, server_only=not names)
    )
    try:
        while not examining.done():
            await asyncio.wait([examining], timeout=_REPORT_S)
            what, done, total = at[0]
            if what == "queues" or sees_all or visit.caller.sees_queue(what):
                yield event("progress", {"what": what, "done": done, "total": total})
        try:
            report: DoctorReport = examining.result()
        except Exception as error:
            yield event("failed", {"error": str(error)})
            return
        result = {"queues": len(report.queues), "findings": report.findings}
        yield event("report", result | {"healthy": report.healthy})
    finally:
        examining.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await examining
