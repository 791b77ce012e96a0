"""Responses that go on: server-sent events, and lines of JSON. They end with their reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

EVENTS, LINES = "text/event-stream", "application/x-ndjson"
#: Seconds after which a comment keeps a silent stream alive.
BEAT_S = 15.0
_RETRY_MS = 2000


def event(name: str, value: object) -> bytes:
    """Return one server-sent event with *value* as JSON, which has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(value))


def line(value: object) -> bytes:
    """Return *value* as a line of JSON."""
    return msgspec.json.encode(value) + b"\n"


class Stream(Response):
    """Sends chunks as they come. When the reader goes away, the generator is cancelled."""

    def __init__(self, chunks: AsyncGenerator[bytes, None], media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._chunks = chunks
        self._begin = b"retry: %d\n\n" % _RETRY_MS if media_type == EVENTS else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream to its end, or to that of its reader."""
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            async with aclosing(self._chunks):
                await _put(send, self._begin, more=True)
                async for chunk in self._chunks:
                    await _put(send, chunk, more=True)
            await _put(send, b"", more=False)
            tasks.cancel_scope.cancel()


async def _put(send: Send, chunk: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": more})
