"""Operations on leased messages that somebody else holds: take them over, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .keys import QueueKeys
from .messages import Intake, give_back, read_received
from .operation import Operation, Reply
from .scripts import load
from .values import Received


class Recovered(NamedTuple):
    """One page of messages taken over, and what the next page must know."""

    received: Received
    #: Where the next page starts; ``None``: this was the last.
    next_at: int | None
    #: When the first page ran, epoch ms by the server's clock.
    started_ms: int


def recover(
    intake: Intake, count: int, *, idle_ms: int, vt_ms: int, after: Recovered | None = None
) -> Operation[Recovered]:
    """Lease up to *count* messages anew whose last delivery is at least *idle_ms* ago.

    Looks at up to 4096 hidden messages, the first ones or those that follow the page *after*.
    Undone by making what was taken visible again.
    """
    keys = intake.keys
    names: tuple[str, ...] = (keys.zset, keys.hash, keys.deliveries)
    if intake.max_receives:
        names += (*intake.dead_keys, keys.namespace.index)
    place = (0, 0) if after is None else (after.next_at or 0, after.started_ms)

    def parse(reply: Reply) -> Recovered:
        vt_ms, next_at, started_ms, *rest = reply
        received = read_received(intake, [vt_ms, 0, *rest])
        return Recovered(received, None if next_at < 0 else next_at, started_ms)

    return Operation(
        script=load("recover"),
        keys=names,
        args=(intake.holder(), *intake.limit, count, idle_ms, vt_ms, *place),
        parse=parse,
        fail=keys.failure,
        weight=count,
        memory=keys.memory,
        dated=lambda page, asked_at: page._replace(received=page.received.at(asked_at)),
        undo=lambda page: give_back(page.received),
        news=lambda page: page.received.buried,
        took=lambda reply: len(reply) > 3,
    )


def delete_leased(keys: QueueKeys, ids: Sequence[str]) -> Operation[list[str]]:
    """Delete messages by id, whoever holds them; the result is those that were under lease."""
    return Operation(
        script=load("delete_leased"),
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=tuple(ids),
        parse=lambda reply: [id for id, done in zip(ids, reply, strict=True) if done == 1],
        # Gone by now means that the first attempt, or somebody else, has deleted it.
        parse_again=lambda reply: [id for id, how in zip(ids, reply, strict=True) if how >= 0],
        fail=keys.failure,
        weight=len(ids),
        repeatable=True,
    )
