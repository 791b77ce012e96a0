"""Actions: what changes queues and messages. Each is written to the audit log.

A long action reports its progress line by line and ends with its reader: nothing goes on
unwatched. What one batch does is never interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import NamedTuple, TypeVar

import anyio
from msgspec import Struct

from aiorsmq_ng import InvalidValue, MessageState, Queue, QueueAttributes

from .._common.queue_defaults import MAX_SECONDS
from ..broker.tokens import ADMIN, PRODUCER
from .message_search import Match, Matcher
from .request_context import Visit

#: Ids of one request; messages of one batch.
_MOST_IDS, _BATCH = 10_000, 100
#: Most messages of one action that hides messages for longer: each is remembered.
_MOST_EXTENDED = 100_000
_MOST_COPIES = 1000


class Chosen(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which messages: those with these ids, or all that match."""

    ids: list[str] | None = None
    match: Match | None = None
    #: How many at most; null for all.
    count: int | None = None
    #: Only count.
    dry_run: bool = False

    def said(self) -> str:
        """Return what was chosen, for the audit log."""
        if self.ids is not None:
            more = f" and {len(self.ids) - 3} more" if len(self.ids) > 3 else ""
            return "ids " + ", ".join(self.ids[:3]) + more
        return self.match.said() if self.match else "nothing"


class Extending(Chosen, kw_only=True):
    """Which leased messages, and for how long they are hidden from now on."""

    seconds: float


class Moving(Chosen, kw_only=True):
    """Which ready messages, and where they go."""

    target: str
    #: Messages per second at most; null for no limit.
    rate: float | None = None


class Redriving(Chosen, kw_only=True):
    """Which dead letters go back to their queue; all of them if nothing is chosen."""

    rate: float | None = None


class Purging(Struct, kw_only=True, forbid_unknown_fields=True):
    """Remove all messages that are not leased, or with ``leased`` all."""

    #: The name of the queue once more.
    confirm: str
    leased: bool = False


class Sending(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message, or several that are alike."""

    body: str
    #: Seconds; null for the queue's own.
    delay: float | None = None
    copies: int = 1


class Changing(Struct, kw_only=True, forbid_unknown_fields=True):
    """Attributes of a queue; null leaves one as it is."""

    vt: float | None = None
    delay: float | None = None
    maxsize: int | None = None


class Sent(Struct, kw_only=True):
    """The ids of what was sent."""

    ids: list[str]


class Progress(Struct, kw_only=True):
    """How far an action is; the last line is its result."""

    looked_at: int
    #: Messages that were chosen so far.
    matched: int
    #: Messages that were changed so far.
    done: int
    finished: bool = False
    error: str = ""


class Manner(NamedTuple):
    """How an action goes on."""

    #: Only messages of these states; empty for all.
    states: tuple[MessageState, ...] = ()
    batch: int = _BATCH
    #: Messages that are looked at, at most.
    looked_at: int | None = None
    #: Whether a message may come up again because of the action, and is then left alone.
    once: bool = False


C = TypeVar("C", bound=Chosen)
Steps = AsyncGenerator[Progress, None]
#: Changes messages; returns how many were.
Apply = Callable[[list[str]], Awaitable[int]]


async def send(visit: Visit) -> Sent:
    """Send a message, or several copies of it."""
    visit.caller.need(PRODUCER, what="sending")
    queue, given = visit.queue(), await visit.decoded(Sending)
    said = f"{len(given.body)} characters"
    with _attempt(visit, "send", said):
        if not 1 <= given.copies <= _MOST_COPIES:
            raise InvalidValue(f"copies must be between 1 and {_MOST_COPIES}, not {given.copies}")
        ids = await queue.send_many([given.body] * given.copies, delay=given.delay)
    _record(visit, "send", said, len(ids), "done")
    return Sent(ids=ids)


async def change(visit: Visit) -> QueueAttributes:
    """Change the attributes of a queue."""
    visit.caller.need(ADMIN, what="changing attributes")
    queue, given = visit.queue(), await visit.decoded(Changing)
    said = f"vt={given.vt}, delay={given.delay}, maxsize={given.maxsize}"
    with _attempt(visit, "set attributes", said):
        changed = await queue.set_attributes(vt=given.vt, delay=given.delay, maxsize=given.maxsize)
    _record(visit, "set attributes", said, 0, "done")
    return changed


async def delete(visit: Visit) -> Steps:
    """Delete messages, also leased ones."""
    queue, chosen = visit.queue(), await _decoded(visit, Chosen, "deleting messages")

    async def apply(ids: list[str]) -> int:
        return len(await queue.delete_many(ids))

    return _audited(visit, "delete", chosen, _act(visit, queue, chosen, apply, Manner()))


async def release(visit: Visit) -> Steps:
    """Make leased and delayed messages visible at once."""
    queue, chosen = visit.queue(), await _decoded(visit, Chosen, "releasing messages")
    steps = _act(visit, queue, chosen, _shown_in(queue, 0), Manner(("leased", "delayed")))
    return _audited(visit, "release", chosen, steps)


async def extend(visit: Visit) -> Steps:
    """Hide leased messages for some seconds from now on."""
    queue, chosen = visit.queue(), await _decoded(visit, Extending, "extending leases")
    with _attempt(visit, "extend", chosen.said(), dry_run=chosen.dry_run):
        if not 0 <= chosen.seconds <= MAX_SECONDS:
            limits = f"between 0 and {MAX_SECONDS}"
            raise InvalidValue(f"seconds must be {limits}, not {chosen.seconds}")
    if chosen.ids is None:
        chosen.count = min(chosen.count or _MOST_EXTENDED, _MOST_EXTENDED)
    apply = _shown_in(queue, chosen.seconds)
    steps = _act(visit, queue, chosen, apply, Manner(("leased",), once=True))
    return _audited(visit, "extend", chosen, steps)


async def move(visit: Visit) -> Steps:
    """Move ready messages to another queue, where they start with rc 0."""
    queue, chosen = visit.queue(), await _decoded(visit, Moving, "moving messages")
    action = f"move to {chosen.target!r}"
    with _attempt(visit, action, chosen.said(), dry_run=chosen.dry_run):
        target = visit.queue(chosen.target)
        await target.attributes()  # raises if the queue does not exist
        if target.name == queue.name:
            raise InvalidValue(f"messages of queue {queue.name!r} cannot be moved into itself")
    steps = _move(visit, queue, target, chosen, chosen.rate)
    return _audited(visit, action, chosen, steps)


async def redrive(visit: Visit) -> Steps:
    """Move dead letters back to their queue, where they start with rc 0."""
    queue, chosen = visit.queue(), await _decoded(visit, Redriving, "redriving")
    if chosen.ids is None and chosen.match is None:
        chosen.match = Match()
    with _attempt(visit, "redrive", chosen.said(), dry_run=chosen.dry_run):
        letters = visit.queue(queue.dead_letter)
        await queue.attributes()  # raises if the queue does not exist
    return _audited(visit, "redrive", chosen, _move(visit, letters, queue, chosen, chosen.rate))


async def purge(visit: Visit) -> Steps:
    """Remove all messages that are not leased, or with ``leased`` all of them."""
    visit.caller.need(ADMIN, what="purging")
    queue, given = visit.queue(), await visit.decoded(Purging)
    words = Chosen(match=Match(), dry_run=False)
    action = "purge with leased" if given.leased else "purge"
    with _attempt(visit, action, words.said()):
        if given.confirm != queue.name:
            raise InvalidValue(f"confirm must be the name of the queue, {queue.name!r}")
        await queue.attributes()  # raises if the queue does not exist
    return _audited(visit, action, words, _purge(visit, queue, leased=given.leased))


async def _decoded(visit: Visit, type: type[C], what: str) -> C:
    """Return what was chosen, if the caller may do that."""
    visit.caller.need(ADMIN, what=what)
    chosen = await visit.decoded(type)
    if (chosen.ids is None) == (chosen.match is None) and type is not Redriving:
        raise InvalidValue("choose messages either by ids or by match")
    if chosen.ids is not None and len(chosen.ids) > _MOST_IDS:
        raise InvalidValue(f"choose up to {_MOST_IDS} ids, not {len(chosen.ids)}; or use match")
    if chosen.count is not None and chosen.count < 1:
        raise InvalidValue(f"count must be at least 1, not {chosen.count}")
    rate = getattr(chosen, "rate", None)
    if rate is not None and not rate > 0:
        raise InvalidValue(f"rate must be more than 0 messages per second, not {rate}")
    return chosen


def _shown_in(queue: Queue, seconds: float) -> Apply:
    async def apply(ids: list[str]) -> int:
        changed = await asyncio.gather(*(queue.change_visibility(id, seconds) for id in ids))
        return sum(changed)

    return apply


async def _move(
    visit: Visit, source: Queue, target: Queue, chosen: Chosen, rate: float | None
) -> Steps:
    # What arrives meanwhile is left alone: it may be what was moved, and failed again.
    ready = (await source.attributes()).ready
    chosen.count = ready if chosen.count is None else min(ready, chosen.count)
    batch = _BATCH if rate is None else max(1, min(_BATCH, int(rate)))

    async def apply(ids: list[str]) -> int:
        return await visit.board.rsmq.gateway.move_page(source, target, ids)

    async with aclosing(
        _act(visit, source, chosen, apply, Manner(("ready",), batch, looked_at=ready))
    ) as steps:
        before = 0
        async for step in steps:
            yield step
            if rate is not None and step.done > before and not step.finished:
                await asyncio.sleep((step.done - before) / rate)
            before = step.done


async def _act(
    visit: Visit,
    queue: Queue,
    chosen: Chosen,
    apply: Apply,
    manner: Manner,
) -> Steps:
    """Change what is chosen, batch by batch."""
    so_far = Progress(looked_at=0, matched=0, done=0)
    most = chosen.count
    seen: set[str] = set()
    async with aclosing(_found(visit, queue, chosen, manner)) as found:
        async for looked, ids in found:
            so_far.looked_at = looked
            fresh = [id for id in ids if id not in seen] if manner.once else ids
            if manner.once:
                seen.update(fresh)
            wanted = fresh if most is None else fresh[: most - so_far.matched]
            if not wanted:
                yield so_far
            for at in range(0, len(wanted), manner.batch):
                page = wanted[at : at + manner.batch]
                so_far.matched += len(page)
                if not chosen.dry_run:
                    with anyio.CancelScope(shield=True):
                        so_far.done += await apply(page)
                yield so_far
            if most is not None and so_far.matched >= most:
                break
    so_far.finished = True
    yield so_far


async def _found(
    visit: Visit, queue: Queue, chosen: Chosen, manner: Manner
) -> AsyncGenerator[tuple[int, list[str]], None]:
    """Yield how many messages were looked at, and ids of those that are chosen."""
    states = manner.states
    if chosen.ids is not None:
        ids = list(dict.fromkeys(chosen.ids))
        for at in range(0, len(ids), _BATCH):
            page = ids[at : at + _BATCH]
            known = await asyncio.gather(*map(queue.find, page))
            there = [m.id for m in known if m is not None and (not states or m.state in states)]
            yield at + len(page), there
        return
    match = chosen.match or Match()
    if not match.state and len(states) == 1:
        match = Match(
            text=match.text,
            where=match.where,
            state=states[0],
            reason_kind=match.reason_kind,
        )
    async with aclosing(Matcher(visit.board, queue, match).steps(manner.looked_at)) as steps:
        async for step in steps:
            hits = [m.id for m in step.hits if not states or m.state in states]
            yield step.looked_at, hits


async def _purge(visit: Visit, queue: Queue, *, leased: bool) -> Steps:
    so_far = Progress(looked_at=0, matched=0, done=0)
    if leased:
        so_far.done = await queue.purge(leased=True)
    else:
        at, before = 0, None
        while at >= 0 and (before is None or so_far.done < before):
            with anyio.CancelScope(shield=True):
                page = await visit.board.rsmq.gateway.purge_page(queue, at)
                so_far.done += page.removed
                at, before = page.next_at, page.before if before is None else before
            so_far.matched = so_far.looked_at = so_far.done
            yield so_far
    so_far.matched = so_far.looked_at = so_far.done
    so_far.finished = True
    yield so_far


async def _audited(visit: Visit, action: str, chosen: Chosen, steps: Steps) -> Steps:
    """Pass steps on, and record the action when it has ended, however it does."""
    done, outcome = 0, "stopped"
    try:
        async with aclosing(steps):
            async for step in steps:
                done = step.done
                yield step
        outcome = "done"
    except Exception as error:
        outcome = str(error)
        raise
    finally:
        if not chosen.dry_run:
            _record(visit, action, chosen.said(), done, outcome)


@contextmanager
def _attempt(visit: Visit, action: str, what: str, *, dry_run: bool = False) -> Iterator[None]:
    """Record an action that fails in this block, and why."""
    try:
        yield
    except BaseException as error:
        why = str(error) or type(error).__name__
        if not dry_run:
            outcome = why if isinstance(error, Exception) else "stopped"
            _record(visit, action, what, 0, outcome)
        raise


def _record(visit: Visit, action: str, what: str, count: int, outcome: str) -> None:
    queue = visit.name()
    visit.board.audit.record(
        visit.caller.identity, action, queue, what, count=count, outcome=outcome
    )
