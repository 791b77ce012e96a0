"""Pages of messages, and the page of one message. Looking changes nothing."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator

from msgspec import Struct
from starlette.responses import Response

from aiorsmq_ng import InvalidValue, Queue, ScannedMessage

from .._common.queue_defaults import DEAD_SUFFIX
from ..broker.tokens import ADMIN
from . import bodies
from .error_to_status import NotThere
from .message_search import Match, Matcher, State, reasons_of, state_of
from .request_context import Visit
from .streaming_responses import EVENTS, Stream, event

#: Messages of one page: by default, and at most.
PAGE, MOST = 50, 500
#: Messages that are looked at for one page, when few of them have the wanted state.
_LOOKED_AT = 5000
#: Hits that a search shows; it goes on counting.
_HITS = 1000


class MessageRow(Struct, kw_only=True):
    """One message in a list."""

    id: str
    state: str
    #: Epoch milliseconds; null if the id has no time.
    sent: float | None
    #: Epoch milliseconds.
    visible_at: float
    rc: int
    fr: int
    #: Bytes of the body.
    size: int
    preview: str
    #: Why it was rejected; null if that is not known.
    reason: str | None = None


class MessagesPage(Struct, kw_only=True):
    """One page of messages, in the order in which they become visible."""

    queue: str
    match: Match
    messages: list[MessageRow]
    #: Whether reasons of rejections belong to the queue.
    is_dead: bool
    #: Where the next page begins; null after the last.
    next: str | None = None


class MessageView(Struct, kw_only=True):
    """One message with its body."""

    queue: str
    row: MessageRow
    #: The body as text, control characters as numbers; null if it is not UTF-8.
    text: str | None
    #: The body with indentation; null if it is not JSON.
    pretty: str | None
    #: The first bytes in hexadecimal.
    hex: str
    #: Whether the body is longer than what is shown.
    cut: bool
    #: Name of the consumer that reports to hold it; null if none does.
    holder: str | None


def row_of(visit: Visit, queue: str, message: ScannedMessage, reason: str | None) -> MessageRow:
    """Return a message as a row."""
    return MessageRow(
        id=message.id,
        state=message.state,
        sent=message.sent,
        visible_at=message.score,
        rc=message.rc,
        fr=message.fr,
        size=len(message.body),
        preview=bodies.preview(visit.board.shown(queue, message.body)),
        reason=reason,
    )


async def messages(visit: Visit) -> MessagesPage:
    """Return one page of messages in the order in which they become visible; ``after`` goes on."""
    visit.caller.need(ADMIN, what="looking at messages")
    queue, match = visit.queue(), match_of(visit)
    if match.text or match.where:
        Matcher(visit.board, queue, match)  # raises for a condition that is none
        await queue.attributes()  # raises if the queue does not exist
        return MessagesPage(queue=queue.name, match=match, messages=[], is_dead=_is_dead(queue))
    found, last = await _page(queue, match.state, _after(visit.text("after")), _count(visit))
    is_dead = _is_dead(queue)
    reasons = await reasons_of(queue, [m.id for m in found]) if is_dead else {}
    return MessagesPage(
        queue=queue.name,
        match=match,
        messages=[row_of(visit, queue.name, m, reasons.get(m.id)) for m in found],
        is_dead=is_dead,
        next=None if last is None else f"{last.score!r}~{last.id}",
    )


async def message(visit: Visit) -> MessageView:
    """Return one message with its body as text, with indentation, and in hexadecimal."""
    visit.caller.need(ADMIN, what="looking at messages")
    queue, id = visit.queue(), visit.id()
    found = await queue.find(id)
    if found is None:
        raise NotThere(f"message {id} is not in queue {queue.name!r} any more")
    reason = await queue.reason(id) if _is_dead(queue) else None
    stats = await queue.stats()
    holders = [consumer.name for consumer in stats.consumers if id in consumer.holding]
    body = visit.board.shown(queue.name, found.body)
    start = body[: bodies.SHOWN_BYTES]
    is_cut = len(body) > len(start)
    return MessageView(
        queue=queue.name,
        row=row_of(visit, queue.name, found, reason),
        text=bodies.as_text(_whole_characters(start) if is_cut else start),
        pretty=None if is_cut else bodies.pretty(body),
        hex=bodies.hexadecimal(body),
        cut=is_cut,
        holder=holders[0] if holders else None,
    )


async def body(visit: Visit) -> Response:
    """Return the body as it is stored, as a download."""
    visit.caller.need(ADMIN, what="looking at messages")
    queue, id = visit.queue(), visit.id()
    found = await queue.find(id)
    if found is None:
        raise NotThere(f"message {id} is not in queue {queue.name!r} any more")
    headers = {
        "content-disposition": f'attachment; filename="{id.replace(":", "_")}.bin"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    shown = visit.board.shown(queue.name, found.body)
    return Response(shown, media_type="application/octet-stream", headers=headers)


async def search(visit: Visit) -> Response:
    """Search a queue: a stream of events ``hit``, ``progress`` and ``done``; close it to stop."""
    visit.caller.need(ADMIN, what="looking at messages")
    queue = visit.queue()
    matcher = Matcher(visit.board, queue, match_of(visit))
    total = (await queue.attributes()).msgs
    return Stream(_search(visit, queue, matcher, total), EVENTS)


async def _search(
    visit: Visit, queue: Queue, matcher: Matcher, total: int
) -> AsyncGenerator[bytes, None]:
    looked_at = found = 0
    yield event("progress", {"looked_at": 0, "found": 0, "total": total})
    try:
        async for step in matcher.steps():
            looked_at = step.looked_at
            hits = step.hits[: max(0, _HITS - found)]
            reasons = await reasons_of(queue, [m.id for m in hits]) if _is_dead(queue) else {}
            for hit in hits:
                yield event("hit", row_of(visit, queue.name, hit, reasons.get(hit.id)))
            found += len(step.hits)
            yield event("progress", {"looked_at": looked_at, "found": found, "total": total})
    except Exception as error:
        yield event("failed", {"error": str(error)})
        return
    yield event("done", {"looked_at": looked_at, "found": found, "total": total})


def match_of(visit: Visit) -> Match:
    """Return the conditions in the query."""
    return Match(
        text=visit.text("text"), where=visit.text("where"), state=state_of(visit.text("state"))
    )


async def _page(
    queue: Queue, state: State, after: ScannedMessage | None, count: int
) -> tuple[list[ScannedMessage], ScannedMessage | None]:
    """Return a page of messages, and the last one looked at if there may be more behind it."""
    found: list[ScannedMessage] = []
    looked_at, last = 0, None
    # Hidden messages begin behind the last ready one.
    start = -1 if state in ("leased", "delayed") else 0
    most = count + 1 if not state else _LOOKED_AT
    async for one in queue.scan(start, most, after=after):
        if state == "ready" and one.state != "ready":
            return found, None
        if len(found) == count:
            return found, last
        looked_at += 1
        last = one
        if not state or one.state == state:
            found.append(one)
    return found, last if looked_at == most else None


def _after(place: str) -> ScannedMessage | None:
    if not place:
        return None
    score, _, id = place.partition("~")
    try:
        visible_at = float(score)
    except ValueError:
        visible_at = math.nan
    if not math.isfinite(visible_at):
        raise InvalidValue(f"after={place!r} is no place in a queue")
    return ScannedMessage(id, b"", 0, 0, visible_at=visible_at, state="ready")


def _count(visit: Visit) -> int:
    given = visit.text("count") or str(PAGE)
    if not given.isdecimal() or not 1 <= int(given) <= MOST:
        raise InvalidValue(f"count must be between 1 and {MOST}, not {given!r}")
    return int(given)


def _is_dead(queue: Queue) -> bool:
    return queue.name.endswith(DEAD_SUFFIX)


def _whole_characters(cut: bytes) -> bytes:
    """Return *cut* without a character that is incomplete at its end."""
    return cut.decode(errors="ignore").encode() if _ends_in_text(cut) else cut


def _ends_in_text(cut: bytes) -> bool:
    try:
        cut.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(cut) - 3
    return True
