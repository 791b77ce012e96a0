"""Dead letters: the queues that have some, and the dead letters of one queue by reason."""

from __future__ import annotations

from msgspec import Struct

from aiorsmq_ng import QueueNotFound

from .._common.queue_defaults import dead_letter_queue, has_dead_letters
from ..broker.tokens import ADMIN
from . import bodies
from .error_to_status import NotThere
from .message_search import Match, Matcher, reasons_of
from .reason_groups import reason_kind
from .request_context import Visit

#: Dead letters of one queue that are grouped on its page.
GROUPED = 5000


class DeadRow(Struct, kw_only=True):
    """A queue with dead letters."""

    queue: str
    dead_letter: str
    dead: int
    #: Seconds for which the oldest one has been there; null if that is not known.
    oldest_age: float | None


class DeadView(Struct, kw_only=True):
    """All queues that have dead letters, most of them first."""

    queues: list[DeadRow]


class ReasonGroup(Struct, kw_only=True):
    """Dead letters with reasons of one kind."""

    #: The reason without numbers and ids; empty if none is known.
    reason_kind: str
    count: int
    #: One of the reasons.
    example: str
    #: One of the messages, and the beginning of its body.
    id: str
    preview: str


class ReasonsView(Struct, kw_only=True):
    """The dead letters of one queue by reason."""

    queue: str
    dead_letter: str
    #: How many dead letters there are.
    total: int
    #: How many of them were looked at, oldest first.
    looked_at: int
    groups: list[ReasonGroup]


async def dead(visit: Visit) -> DeadView:
    """Return all queues that have dead letters in <queue>-dead, most of them first."""
    sampler = visit.board.sampler
    await sampler.look()
    rows = []
    for row in sampler.rows(visit.caller):
        if row.dead:
            name = dead_letter_queue(row.name)
            letters = sampler.row(name)
            age = letters.oldest_age if letters else None
            rows.append(DeadRow(queue=row.name, dead_letter=name, dead=row.dead, oldest_age=age))
    return DeadView(queues=sorted(rows, key=lambda row: (-row.dead, row.queue)))


async def reasons(visit: Visit) -> ReasonsView:
    """Return the dead letters of a queue, grouped by what their reasons have in common."""
    visit.caller.need(ADMIN, what="looking at messages")
    queue = visit.queue()
    await queue.attributes()  # raises if the queue does not exist
    if not has_dead_letters(queue.name):
        raise NotThere(f"queue {queue.name!r} has no dead letters: their queue's name is too long")
    letters = visit.queue(queue.dead_letter)
    groups: dict[str, ReasonGroup] = {}
    view = ReasonsView(queue=queue.name, dead_letter=letters.name, total=0, looked_at=0, groups=[])
    try:
        view.total = (await letters.attributes()).msgs
        async for step in Matcher(visit.board, letters, Match()).steps(GROUPED):
            view.looked_at = step.looked_at
            known = await reasons_of(letters, [message.id for message in step.hits])
            for message in step.hits:
                reason = known[message.id]
                kind = reason_kind(reason)
                if kind not in groups:
                    body = visit.board.shown(letters.name, message.body)
                    groups[kind] = ReasonGroup(
                        reason_kind=kind,
                        count=0,
                        example=reason or "",
                        id=message.id,
                        preview=bodies.preview(body),
                    )
                groups[kind].count += 1
    except QueueNotFound:
        return view  # no message was ever rejected
    view.groups = sorted(groups.values(), key=lambda group: -group.count)
    return view
