"""``rsmqctl message export`` and ``import``, and ``send --file``: one message per line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

import aiorsmq_ng

from ..global_options import examples, global_options
from ..output import complain, printable, show_record
from ..session import patiently, run
from ..shared_options import messages, name_option, skip_option

if TYPE_CHECKING:
    from .ndjson import Entry

#: Headers of each message of a call; ``None`` if none has any.
Headers = Sequence[Mapping[str, str] | None] | None
Reader = Callable[[bytes, int], "Entry"]
Show = Callable[[Sequence[str]], None]
#: Sends bodies with a delay, all or none; returns the ids.
Send = Callable[[list[bytes], float | None, Headers], Awaitable[list[str]]]
#: Returns the function that sends, and the largest body (-1: no limit).
Aim = Callable[[aiorsmq_ng.RSMQ], Awaitable[tuple[Send, int]]]

#: Maximum messages, and bytes of bodies and headers, in one call.
_PAGE, _PAGE_BYTES = 1000, 1 << 20
#: Lines that are parsed, or messages that are written, before yielding to the event loop.
_SLICE = 100


@click.command(
    "export",
    epilog=examples(
        "$ rsmqctl message export -n jobs -f jobs.ndjson",
        "$ rsmqctl message export -n jobs | gzip >jobs.ndjson.gz",
        '{"id":"g73zkl38qzSBNq2NcnVVlCldqwqFXRJd","body":"Hello, World",',
        ' "sent":1645020200667,"rc":0,"fr":0,"visible_at":1645020200667}',
    ),
)
@name_option
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    default="-",
    show_default=True,
    help="File to write; - for stdout.",
)
@global_options()
def export_messages(name: str, file: str) -> None:
    """Write all messages of a queue to a file.

    One JSON object per line: ready, delayed and leased messages, in the order in which they become
    visible. They are not received. A body that is not UTF-8 text is in body_base64 instead of
    body. headers are there if the message has some. sent, fr (first receive) and visible_at are
    epoch milliseconds. FILE is replaced atomically at the end, and only you can read it.

    The queue may be in use. A message that is received, released or hidden again during the export
    may be written twice, or left out if it was released; an unchanged message is written once.
    """
    try:
        done = run(lambda rsmq: _export(rsmq, name, file), patient=True)
    except aiorsmq_ng.Unavailable as error:
        if error.executed is not None:
            raise
        # An export only reads, so no outcome is in doubt.
        kept = "" if file == "-" else f", and {file} is unchanged"
        raise aiorsmq_ng.Unavailable(
            f"the server did not answer in time; nothing was changed{kept}", transient=True
        ) from error
    except BaseException as error:
        if file != "-" and not isinstance(error, Exception):
            complain(f"nothing was exported; {file} is unchanged")
        raise
    if file != "-":
        show_record({"exported": done})


async def _export(rsmq: aiorsmq_ng.RSMQ, name: str, file: str) -> int:
    """Write messages; if stdout does not get all of them, report how many it got."""
    from ..progress import progress
    from .files import sink
    from .ndjson import encode

    queue = rsmq.queue(name)
    total = (await queue.attributes()).msgs
    done = 0
    seen = file == "-" and sys.stdout.isatty()
    bar = sys.stderr.isatty() and not seen
    pages = _pages(queue.scan())
    try:
        with sink(file) as out, progress("exporting", total, bar) as advance:
            while page := await patiently(rsmq, anext(pages, None)):
                lines = encode(page)
                out.write(_harmless(lines) if seen else lines)
                out.flush()  # count only what is written
                done += len(page)
                advance(len(page))
    except OSError:
        raise  # the reader has closed the pipe, or the disk is full
    except BaseException as error:
        if file == "-":
            cut = "; a line after them may be incomplete" * isinstance(error, KeyboardInterrupt)
            complain(f"{done} of {messages(max(done, total))} exported{cut}")
        raise
    return done


@click.command(
    "import",
    epilog=examples(
        "$ rsmqctl message import -n jobs -f jobs.ndjson", '{"imported": 120}',
        "$ zcat jobs.ndjson.gz | rsmqctl message import -n jobs-copy",
    ),
)  # fmt: skip
@name_option
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    default="-",
    show_default=True,
    help="File to read; - for stdin.",
)
@skip_option
@click.option("--now", is_flag=True, help="Ignore visible_at: all messages are ready at once.")
@global_options()
def import_messages(name: str, file: str, skip: int, now: bool) -> None:
    """Send the messages of an export to a queue, in order.

    Each line is a JSON object with body (text) or body_base64, and perhaps headers. Of the other
    fields only visible_at is used: if it is in the future, the message is delayed until then.
    Messages get new ids and rc 0. An invalid line ends the import; after a failure a note says how
    many lines are done, to resume with --skip.
    """
    from ..._common.queue_defaults import MAX_SECONDS
    from .ndjson import decode

    late: list[int] = []
    read = partial(decode, ready=now, late=late.append)
    sent = _pump(_to_queue(name), file, read, skip=skip, label="importing")
    show_record({"imported": sent})
    if late:
        complain(
            f"{messages(len(late))}, the first in line {late[0]}, will be visible earlier than "
            f"visible_at says, after {MAX_SECONDS} seconds, which is RSMQ's longest delay"
        )


def publish_file(
    name: str,
    file: str,
    delay: float | None,
    skip: int = 0,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Publish every line of *file* after the first *skip* to a topic, and print the ids."""

    async def aim(rsmq: aiorsmq_ng.RSMQ) -> tuple[Send, int]:
        topic = rsmq.topic(name)
        return lambda bodies, delay, own: topic.publish_many(bodies, delay=delay, headers=own), -1

    _lines(aim, file, delay, skip, "publishing", headers)


def send_file(
    name: str,
    file: str,
    delay: float | None,
    skip: int = 0,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send every line of *file* after the first *skip* as a message, and print the ids."""
    _lines(_to_queue(name), file, delay, skip, "sending", headers)


def _lines(
    aim: Aim,
    file: str,
    delay: float | None,
    skip: int,
    label: str,
    headers: Mapping[str, str] | None,
) -> None:
    from .ndjson import Entry

    def read(line: bytes, number: int) -> Entry:
        return Entry(line, delay, headers)

    def show(ids: Sequence[str]) -> None:
        click.echo("\n".join(ids))

    _pump(aim, file, read, skip=skip, label=label, show=show)


def _to_queue(name: str) -> Aim:
    async def aim(rsmq: aiorsmq_ng.RSMQ) -> tuple[Send, int]:
        queue = rsmq.queue(name)
        try:
            # Report a missing queue before any line is read.
            maxsize = (await queue.attributes()).maxsize
        except aiorsmq_ng.AccessDenied:
            maxsize = -1  # a producer may not read it; the server checks sizes, page by page
        return (
            lambda bodies, delay, own: queue.send_many(bodies, delay=delay, headers=own),
            maxsize,
        )

    return aim


def _pump(
    aim: Aim,
    file: str,
    read: Reader,
    *,
    label: str,
    skip: int = 0,
    show: Show | None = None,
) -> int:
    """Send the lines of *file*, parsed by *read*; return how many messages were sent."""

    async def work(rsmq: aiorsmq_ng.RSMQ) -> int:
        from ..progress import progress
        from .files import Source

        send, maxsize = await aim(rsmq)
        # Ids on the terminal show the progress, and a bar would mix with them.
        bar = sys.stderr.isatty() and not (show is not None and sys.stdout.isatty())
        pump = _Pump(
            lambda bodies, delay, headers: patiently(rsmq, send(bodies, delay, headers)),
            _limited(read, maxsize),
            *(skip, show),
        )
        with Source(file) as source, progress(label, source.count() if bar else 0, bar) as advance:
            try:
                async for lines in source.blocks():
                    await pump.feed(lines)
                    advance(len(lines))
            except BaseException:
                pump.tell()
                raise
        return pump.sent

    return run(work, patient=True)


def _limited(read: Reader, maxsize: int) -> Reader:
    """Return *read* with a check of sizes: the server's error about a page names no line."""
    if maxsize < 0:
        return read

    def limited(line: bytes, number: int) -> Entry:
        entry = read(line, number)
        if len(entry.body) > maxsize:
            raise click.ClickException(
                f"line {number} has a body of {len(entry.body)} bytes, and the queue's maxsize is "
                f"{maxsize}; leave it out, or use a queue with a larger one"
            )
        return entry

    return limited


class _Pump:
    """Sends lines as messages, page by page and in order; reads one page while another is sent."""

    def __init__(self, send: Send, read: Reader, skip: int, show: Show | None) -> None:
        self._store = send
        self._read = read
        self._skip = skip
        self._show = show
        self._number = 0
        self._sending: asyncio.Future[None] | None = None
        #: Number of the line that cannot be sent, if any.
        self._bad: int | None = None
        #: Numbers of lines done, messages sent, and ids printed.
        self.done = self.sent = self._shown = 0

    def tell(self) -> None:
        """Report how many lines are done, and how to resume."""
        done = f"the first {self.done} lines are done; " if self.done > self._skip else ""
        if self._bad is not None and self.done == self._bad - 1:
            complain(
                f"{done}to resume with line {self._bad}: --skip {self.done}, "
                f"without it: --skip {self._bad}"
            )
        elif done:
            complain(f"{done}to resume: --skip {self.done}")
        if self._show is not None and self._shown < self.sent:
            complain(f"only the first {self._shown} ids are certainly printed")

    async def feed(self, lines: list[bytes]) -> None:
        """Send *lines*; lines before an invalid one are sent, too."""
        failure: click.ClickException | None = None
        try:
            for start in range(0, len(lines), _PAGE):
                entries, failure = await self._entries(lines[start : start + _PAGE])
                for page in _cut(entries):
                    await self._sent()
                    self._sending = asyncio.ensure_future(self._send(page))
                if failure is not None:
                    break
        finally:
            await self._sent()
        if failure is not None:
            self.done = self._number - 1  # includes empty and skipped lines before it
            raise failure
        self.done = self._number

    async def _entries(
        self, lines: list[bytes]
    ) -> tuple[list[tuple[int, Entry]], click.ClickException | None]:
        """Return the parsed *lines* with their numbers, up to an invalid one."""
        entries: list[tuple[int, Entry]] = []
        for at, line in enumerate(lines):
            if not at % _SLICE:
                await asyncio.sleep(0)  # lets the previous page be sent meanwhile
            self._number += 1
            if self._number > self._skip and line.strip():
                try:
                    entries.append((self._number, self._read(line, self._number)))
                except click.ClickException as error:
                    self._bad = self._number
                    return entries, error
        return entries, None

    async def _sent(self) -> None:
        """Wait until the page in flight is stored."""
        sending, self._sending = self._sending, None
        if sending is None:
            return
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait([sending])  # to report exactly how many lines are done
            raise

    async def _send(self, page: Sequence[tuple[int, Entry]]) -> None:
        by_delay: dict[float | None, list[Entry]] = {}
        for _, entry in page:
            by_delay.setdefault(entry.delay, []).append(entry)
        calls = (self._store(*_call(entries)) for entries in by_delay.values())
        ids = await asyncio.gather(*calls)
        self.done = page[-1][0]
        self.sent += len(page)
        if self._show is not None:
            self._show([id for some in ids for id in some])
            self._shown = self.sent


def _call(entries: Sequence[Entry]) -> tuple[list[bytes], float | None, Headers]:
    """Return bodies, delay and headers of entries with the same delay."""
    headers = [entry.headers for entry in entries]
    return [entry.body for entry in entries], entries[0].delay, headers if any(headers) else None


def _cut(entries: Sequence[tuple[int, Entry]]) -> Iterator[Sequence[tuple[int, Entry]]]:
    """Split entries into pages that fit into one call."""
    start = size = 0
    for at, (_, entry) in enumerate(entries):
        if at - start == _PAGE or (size and size + entry.size > _PAGE_BYTES):
            yield entries[start:at]
            start, size = at, 0
        size += entry.size
    if start < len(entries):
        yield entries[start:]


def _harmless(lines: bytes) -> bytes:
    """Escape control characters that JSON allows, for a terminal."""
    return "".join(f"{printable(line)}\n" for line in lines.decode().split("\n")[:-1]).encode()


async def _pages(
    messages: AsyncIterator[aiorsmq_ng.ScannedMessage],
) -> AsyncIterator[list[aiorsmq_ng.ScannedMessage]]:
    page: list[aiorsmq_ng.ScannedMessage] = []
    size = 0
    async for message in messages:
        page.append(message)
        size += len(message.body)
        if len(page) == _PAGE or size >= _PAGE_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page
