"""``rsmqctl message tail``: prints messages as they become ready, or receives and prints them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

import click

import aiorsmq_ng

from .global_options import current_settings, examples, global_options
from .output import Rows, as_json, as_text, complain, write
from .peek import PEEK_COLUMNS, given_back, peek_record
from .session import run
from .shared_options import messages, name_option, positive


@click.command(
    epilog=examples(
        "$ rsmqctl message tail -n jobs",
        "$ rsmqctl message tail -n jobs --consume -c 100 -o ndjson >taken.ndjson",
    )
)
@name_option
@click.option(
    "-l",
    "--last",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Start with the last N messages that are ready already.",
)
@click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@click.option(
    "--interval", type=positive, default=0.2, show_default=True, help="Seconds between two polls."
)
@click.option("--consume", is_flag=True, help="Receive, print and delete them.")
@global_options()
def tail(name: str, last: int, count: int | None, interval: float, consume: bool) -> None:
    """Print messages as they become ready, until Ctrl-C.

    They are not received, and stay for the consumers. A message that a consumer receives between
    two polls is not printed. With --consume every message in the queue is received, printed and
    then deleted, and Ctrl-C releases what was received and not printed.
    """
    printer = Printer(count)

    async def work(rsmq: aiorsmq_ng.RSMQ) -> None:
        queue = rsmq.queue(name)
        if consume:
            # A consumer would wait for the queue to be created; a user wants an error. The role of
            # a consumer allows this call.
            if not await queue.exists():
                raise aiorsmq_ng.QueueNotFound(name, rsmq.ns)
            with printer.counted("deleted"):
                await _consume(queue, printer)
        else:
            await _follow(queue, printer, last, interval)

    run(work)


class Printer:
    """Prints messages one by one, at most *count* of them."""

    def __init__(self, count: int | None) -> None:
        self._left = count
        self._rows = Rows(PEEK_COLUMNS)
        self._output = current_settings().output
        self._printed = 0

    @property
    def done(self) -> bool:
        """True if *count* messages were printed."""
        return self._left is not None and self._left <= 0

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """If the block is interrupted, report how many messages were printed and their state."""
        try:
            yield
        except BaseException:
            if self._printed:
                complain(f"{messages(self._printed)} printed and {what}")
            raise

    def __call__(self, message: aiorsmq_ng.Message) -> None:
        """Print one."""
        record, header = peek_record(message), not self._printed
        if self._output == "csv":
            self.show("".join(self._rows.csv([record], header=header)))
        elif self._output == "table":
            self.show("".join(self._rows.table([record], header=header)))
        else:
            self.show(f"{as_json(record)}\n")

    def show(self, text: str) -> None:
        """Print the text of one message and count it."""
        write(text)
        self._printed += 1
        if self._left is not None:
            self._left -= 1


async def take(found: Sequence[aiorsmq_ng.Delivery], printer: Printer) -> None:
    """Print messages as one document, and delete each once it is printed.

    If interrupted, messages that were not printed are released. After Ctrl-C the document is
    still well-formed.
    """
    import asyncio

    text = as_text(map(peek_record, found), PEEK_COLUMNS)
    left = deque(found)
    async with given_back(left):
        write(text.head)
        whole = True
        try:
            for row in text.rows:
                async with left.popleft():
                    whole = False
                    printer.show(row)
                    whole = True
        except asyncio.CancelledError:
            if whole:
                write(text.tail)
            raise
        write(text.tail)


async def _consume(queue: aiorsmq_ng.Queue, printer: Printer) -> None:
    async with queue.consume() as messages:
        async for message in messages:
            async with message:
                printer(message)
            if printer.done:
                return


async def _follow(queue: aiorsmq_ng.Queue, printer: Printer, last: int, interval_s: float) -> None:
    async for message in _arrivals(queue, last, interval_s):
        printer(message)
        if printer.done:
            return


async def _arrivals(
    queue: aiorsmq_ng.Queue, last: int, interval_s: float
) -> AsyncIterator[aiorsmq_ng.Message]:
    import anyio

    # Even with last=0 one message is read, because its position is needed.
    start, shown = -max(last, 1), last > 0
    seen: aiorsmq_ng.ScannedMessage | None = None
    while True:
        async for message in queue.scan(start, after=seen):
            if message.state != "ready":
                break
            seen = message
            if shown:
                yield message
        start, shown = 0, True
        await anyio.sleep(interval_s)
