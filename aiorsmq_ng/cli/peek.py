"""``rsmqctl message peek`` and ``pending``: print messages without receiving them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import click

import aiorsmq_ng

from .._common.durations import epoch_ms
from .global_options import examples, global_options
from .output import (
    MESSAGE_COLUMNS,
    Record,
    columns_of,
    message_record,
    show_rows,
)
from .session import run
from .shared_options import (
    count_option,
    fail_empty_option,
    name_option,
    nothing,
    start_option,
)

PEEK_COLUMNS = (*MESSAGE_COLUMNS, "sent")
PENDING_COLUMNS = (*PEEK_COLUMNS, "delivered", "idle")


def peek_record(message: aiorsmq_ng.Message) -> Record:
    """Return a message that was not received as a record."""
    sent = message.sent
    return {**message_record(message), "sent": None if sent is None else int(sent)}


@asynccontextmanager
async def given_back(found: Iterable[aiorsmq_ng.Delivery]) -> AsyncIterator[None]:
    """Release messages that were received and cannot be printed."""
    try:
        yield
    except BaseException:
        import asyncio

        for message in found:
            # A release in flight completes even if this task is cancelled.
            with suppress(aiorsmq_ng.RSMQError, asyncio.CancelledError):
                await message.release(unseen=True)
        raise


@click.command(
    epilog=examples(
        "$ rsmqctl message peek -n jobs -c 1",
        '[{"id": "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd", "message": "Hello, World",',
        '  "rc": 0, "ts": 0, "sent": 1645020200667}]     (on one line)',
        "$ rsmqctl message peek -n jobs -s -5 -o table",
    )
)
@name_option
@start_option
@count_option
@fail_empty_option
@global_options()
def peek(name: str, start: int, count: int, fail_empty: bool) -> None:
    """Print ready messages without receiving them.

    The next message comes first. sent is its send time in epoch milliseconds; rc and ts are 0 for
    a message that was never received.
    """
    found = run(lambda rsmq: rsmq.queue(name).peek(start, count))
    show_rows(map(peek_record, found), columns_of(found, PEEK_COLUMNS))
    if not found:
        nothing(f"no message is ready in queue {name!r} there", fail=fail_empty)


@click.command(epilog=examples("$ rsmqctl message pending -n jobs -o table"))
@name_option
@start_option
@count_option
@fail_empty_option
@global_options()
def pending(name: str, start: int, count: int, fail_empty: bool) -> None:
    """Print leased messages: received, not deleted, still hidden.

    delivered is the time of the last delivery in epoch milliseconds, idle the seconds since then.
    The message whose lease ends first comes first.
    """
    found = run(lambda rsmq: rsmq.queue(name).pending(start, count))
    rows = [
        {**peek_record(m), "delivered": epoch_ms(m.delivered_at), "idle": m.idle} for m in found
    ]
    show_rows(rows, columns_of(found, PENDING_COLUMNS))
    if not found:
        nothing(f"no message is leased in queue {name!r} there", fail=fail_empty)
