"""The search for messages: the same conditions for a search, a selection and actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal, NamedTuple

from msgspec import Struct

from aiorsmq_ng import InvalidValue, Queue, ScannedMessage

from ..filters import Filter, compile_filter
from .reason_groups import reason_kind
from .request_context import Board

#: Messages that are looked at between two reports of progress.
STEP = 500
#: Reasons that are asked for at the same time.
_REASONS = 100

State = Literal["", "ready", "delayed", "leased"]


class Match(Struct, kw_only=True, forbid_unknown_fields=True):
    """Conditions on messages; all of them hold."""

    #: Text that is in the body.
    text: str = ""
    #: A condition in the language of ``rsmqctl dlq redrive --filter``.
    where: str = ""
    #: Only messages of this state.
    state: State = ""
    #: Only dead letters with such a reason, as ``reason_kind`` returns it.
    reason_kind: str | None = None

    def said(self) -> str:
        """Return the conditions in words, for the audit log."""
        parts = [
            self.text and f"text {self.text!r}",
            self.where and f"where {self.where}",
            self.state and f"state {self.state}",
            self.reason_kind is not None and f"reason {self.reason_kind!r}",
        ]
        return ", ".join(str(part) for part in parts if part) or "all"


class Step(NamedTuple):
    """How far a walk is, and what it found since the step before."""

    looked_at: int
    hits: list[ScannedMessage]


async def reasons_of(queue: Queue, ids: list[str]) -> dict[str, str | None]:
    """Return why messages were rejected into this queue."""
    found: dict[str, str | None] = {}
    for at in range(0, len(ids), _REASONS):
        page = ids[at : at + _REASONS]
        found |= zip(page, await asyncio.gather(*map(queue.reason, page)), strict=True)
    return found


class Matcher:
    """Walks over a queue without changing it, and finds what matches."""

    def __init__(self, board: Board, queue: Queue, match: Match) -> None:
        self._board = board
        self._queue = queue
        self._match = match
        self._text = match.text.encode(errors="surrogatepass")
        self._where: Filter | None = compile_filter(match.where) if match.where.strip() else None
        self._needs_reasons = match.reason_kind is not None or (
            self._where is not None and self._where.needs_reasons
        )

    async def steps(self, most: int | None = None) -> AsyncGenerator[Step, None]:
        """Yield step by step what matches, of up to *most* messages that are looked at."""
        looked_at, batch = 0, list[ScannedMessage]()
        if most == 0:
            yield Step(0, [])
            return
        # Hidden messages begin behind the last ready one.
        start = -1 if self._match.state in ("leased", "delayed") else 0
        async for message in self._queue.scan(start, most):
            if self._match.state == "ready" and message.state != "ready":
                break
            batch.append(message)
            if len(batch) >= STEP:
                looked_at += len(batch)
                yield Step(looked_at, await self._hits(batch))
                batch = []
        yield Step(looked_at + len(batch), await self._hits(batch))

    async def _hits(self, batch: list[ScannedMessage]) -> list[ScannedMessage]:
        if self._match.state:
            batch = [message for message in batch if message.state == self._match.state]
        reasons: dict[str, str | None] = {}
        if self._needs_reasons:
            reasons = await reasons_of(self._queue, [message.id for message in batch])
        if self._where is not None:
            self._where.reasons = reasons
        return [message for message in batch if self._fits(message, reasons)]

    def _fits(self, message: ScannedMessage, reasons: dict[str, str | None]) -> bool:
        kind = self._match.reason_kind
        if kind is not None and reason_kind(reasons.get(message.id)) != kind:
            return False
        # What is not shown is not searched either: else a search would reveal it.
        shown = self._board.shown(self._queue.name, message.body)
        if self._text and self._text not in shown:
            return False
        if self._where is None:
            return True
        if shown is not message.body:
            message = _with_body(message, shown)
        return self._where(message)


def _with_body(message: ScannedMessage, body: bytes) -> ScannedMessage:
    return ScannedMessage(
        message.id,
        body,
        message.rc,
        message.fr,
        visible_at=message.score,
        state=message.state,
    )


def state_of(text: str) -> State:
    """Return the state that a query names."""
    match text:
        case "" | "ready" | "delayed" | "leased":
            return text
    raise InvalidValue(f"state must be ready, delayed or leased, not {text!r}")
