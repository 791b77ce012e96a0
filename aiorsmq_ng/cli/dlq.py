"""``rsmqctl dlq``: list, show, redrive and purge dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

import aiorsmq_ng

from .._common.queue_defaults import DEAD_SUFFIX, dead_letter_queue
from .completion import complete_queue
from .confirmation import asks, confirm, yes_option
from .filters import compile_filter
from .global_options import examples, global_options
from .lazy_group import LazyGroup
from .output import Record, complain, message_record, show_record, show_rows
from .session import run
from .shared_options import (
    count_option,
    fail_empty_option,
    most_option,
    nothing,
    rate_option,
    removing,
    start_option,
)

if TYPE_CHECKING:
    from ..filters import Filter

name_option = click.option(
    "-n",
    "--name",
    required=True,
    help="The queue that the dead letters come from.",
    shell_complete=complete_queue,
)
dead_letter_option = click.option(
    "--dead-letter",
    metavar="NAME",
    help="Its dead-letter queue, if that is not <queue>-dead.",
    shell_complete=complete_queue,
)
#: Number of reasons that are fetched concurrently.
_AT_ONCE = 100


@click.group(
    cls=LazyGroup,
    table={
        "list": "dlq:list_dead",
        "show": "dlq:show",
        "redrive": "dlq:redrive",
        "purge": "dlq:purge",
    },
    epilog=examples("$ rsmqctl dlq list", "$ rsmqctl dlq redrive -n jobs --rate 100/s"),
)
@global_options()
def dlq() -> None:
    """Look at dead letters, and move them back to work.

    Messages that were rejected, or delivered too often, are in an ordinary queue: by default
    <queue>-dead. -n names the queue they come from.
    """


@click.command(
    "list",
    epilog=examples(
        "$ rsmqctl dlq list -o table",
        "QUEUE  DEAD_LETTER  DEAD  OLDEST_AGE",
        "jobs   jobs-dead       3       812.5",
    ),
)
@fail_empty_option
@global_options()
def list_dead(fail_empty: bool) -> None:
    """Print the queues that have dead letters, and how many.

    oldest_age is the age in seconds of the oldest dead letter; null, with a note on stderr, if the
    dead-letter queue may not be read. Only queues called <queue>-dead are found.
    """

    async def collect(rsmq: aiorsmq_ng.RSMQ) -> list[Record]:
        from ..sampling import all_stats

        found = await all_stats(rsmq)
        rows: list[Record] = []
        for name, stats in found.items():
            if stats.dead:
                dead = dead_letter_queue(name)
                age = found[dead].oldest_age if dead in found else None
                row = {"queue": name, "dead_letter": dead, "dead": stats.dead, "oldest_age": age}
                rows.append(row)
                if dead not in found:
                    complain(f"queue {dead!r} could not be read: its oldest_age is unknown")
        return rows

    rows = run(collect)
    show_rows(rows, ["queue", "dead_letter", "dead", "oldest_age"])
    if not rows:
        nothing("no queue has dead letters", fail=fail_empty)


@click.command(
    epilog=examples(
        "$ rsmqctl dlq show -n jobs -c 1",
        '[{"id": "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd", "message": "Hello, World",',
        '  "rc": 5, "ts": 1645021703008, "reason": "KeyError: 7"}]     (on one line)',
    )
)
@name_option
@start_option
@count_option
@dead_letter_option
@fail_empty_option
@global_options()
def show(name: str, start: int, count: int, dead_letter: str | None, fail_empty: bool) -> None:
    """Print the dead letters of a queue, with reasons.

    They are not received. rc is how often each was delivered before it was rejected; reason is
    null if none was given, or if it is older than 14 days.
    """

    async def collect(rsmq: aiorsmq_ng.RSMQ) -> list[Record]:
        dead = await _dead_queue(rsmq, name, dead_letter)
        if dead is None:
            return []
        return [
            {**message_record(message), "reason": await dead.reason(message.id)}
            for message in await dead.peek(start, count)
        ]

    rows = run(collect)
    show_rows(rows, ["id", "message", "rc", "ts", "reason"])
    if not rows:
        looked_at = dead_letter or dead_letter_queue(name)
        note = f"queue {looked_at!r} has no dead letters of queue {name!r}"
        if start:
            note += f" from -s {start} on"
        source = name.removesuffix(DEAD_SUFFIX)
        if source not in ("", name):
            note += f"; {name!r} is a dead-letter queue itself: give -n {source}"
        nothing(note, fail=fail_empty)


@click.command(
    epilog=examples(
        "$ rsmqctl dlq redrive -n jobs --filter \"body.type == 'invoice'\" --dry-run",
        '{"would_redrive": 2}',
        "$ rsmqctl dlq redrive -n jobs --filter \"'Timeout' in reason\"",
        "$ rsmqctl dlq redrive -n jobs --rate 100/s --yes",
        '{"redriven": 3}',
    )
)
@name_option
@click.option(
    "--filter",
    "condition",
    type=compile_filter,
    metavar="CONDITION",
    help="Only messages that match. It compares id, rc, fr, sent (ms), size (bytes), text, "
    "reason and body (decoded JSON: body.user.name, body['a-b'], body[0]) by ==, !=, <, >, in, "
    "and, or, not.",
)
@most_option
@rate_option
@click.option("--dry-run", is_flag=True, help="Move nothing, only count.")
@dead_letter_option
@yes_option
@global_options()
def redrive(**how: object) -> None:
    """Move dead letters back to their queue, with rc 0.

    Without --filter and -c it moves all of them, and asks first. Dead letters that arrive while it
    runs are not moved. Interrupted at any point, every message is in exactly one queue, and a
    note on stderr says how many were moved.
    """
    show_record(_redrive(**how))  # type: ignore[arg-type]


def _redrive(
    *,
    name: str,
    condition: Filter | None,
    count: int | None,
    rate: float | None,
    dry_run: bool,
    dead_letter: str | None,
    yes: bool,
) -> Record:
    if not (dry_run or condition or count is not None) and asks(yes=yes):
        if not (dead := run(lambda rsmq: _count(rsmq, name, dead_letter)).ready):
            return {"redriven": 0}
        confirm(f"Move {_letters(dead)} of queue {name!r} back to it?")

    async def work(rsmq: aiorsmq_ng.RSMQ) -> Record:
        from .bulk_moves import move

        dead = await _dead_queue(rsmq, name, dead_letter)
        if dead is not None and condition is not None and condition.needs_reasons:
            await _learn_reasons(dead, condition)
        if dry_run:
            return {"would_redrive": await _matching(dead, condition, count) if dead else 0}
        if dead is None:
            return {"redriven": 0}
        moved = await move(rsmq.queue(name), dead, count=count, where=condition, rate=rate)
        return {"redriven": moved}

    return run(work, patient=True)


@click.command(epilog=examples("$ rsmqctl dlq purge -n jobs --yes", '{"purged": 3}'))
@name_option
@dead_letter_option
@yes_option
@global_options()
@removing()
def purge(name: str, dead_letter: str | None, yes: bool) -> None:
    """Remove the dead letters of a queue for good; asks first."""
    if asks(yes=yes):
        found = run(lambda rsmq: _count(rsmq, name, dead_letter))
        if not (dead := found.ready + found.delayed):
            show_record({"purged": 0})
            return
        confirm(f"Remove {_letters(dead)} of queue {name!r} for good?")

    async def work(rsmq: aiorsmq_ng.RSMQ) -> int:
        from .bulk_moves import purge

        dead = await _dead_queue(rsmq, name, dead_letter)
        return await purge(dead) if dead else 0

    show_record({"purged": run(work)})


async def _dead_queue(
    rsmq: aiorsmq_ng.RSMQ, name: str, dead_letter: str | None
) -> aiorsmq_ng.Queue | None:
    """Return the dead-letter queue of an existing queue, or None if it was never created."""
    source = rsmq.queue(name, dead_letter=dead_letter)
    await source.attributes()
    dead = rsmq.queue(source.dead_letter)
    try:
        await dead.attributes()
    except aiorsmq_ng.QueueNotFound:
        if dead_letter is not None:
            raise
        return None
    return dead


class _Count(NamedTuple):
    ready: int = 0
    delayed: int = 0


async def _count(rsmq: aiorsmq_ng.RSMQ, name: str, dead_letter: str | None) -> _Count:
    """Return how many dead letters of a queue are not leased."""
    dead = await _dead_queue(rsmq, name, dead_letter)
    if dead is None:
        return _Count()
    found = await dead.attributes()
    return _Count(found.ready, found.delayed)


def _letters(count: int) -> str:
    return f"{count} dead letter{'s' * (count != 1)}"


async def _learn_reasons(dead: aiorsmq_ng.Queue, condition: Filter) -> None:
    """Fetch the reasons of all ready dead letters, a hundred at a time."""
    import asyncio

    ids = [message.id async for message in dead.scan() if message.state == "ready"]
    for at in range(0, len(ids), _AT_ONCE):
        page = ids[at : at + _AT_ONCE]
        reasons = await asyncio.gather(*(dead.reason(id) for id in page))
        condition.reasons.update(zip(page, reasons, strict=True))


async def _matching(dead: aiorsmq_ng.Queue, condition: Filter | None, count: int | None) -> int:
    found = 0
    async for message in dead.scan():
        if message.state != "ready" or found == count:
            break
        found += condition is None or condition(message)
    return found
