"""``rsmqctl message``: commands on the messages of a queue."""

from __future__ import annotations

from typing import Any

import click

import aiorsmq_ng

from .global_options import current_settings, examples, global_options, program, seconds
from .lazy_group import LazyGroup
from .output import (
    MESSAGE_COLUMNS,
    columns_of,
    message_record,
    printable,
    show_record,
    show_rows,
    show_sent,
)
from .peek import given_back
from .session import run
from .shared_options import (
    NOTHING_THERE,
    compat_option,
    dedup_key_option,
    fail_empty_option,
    header_option,
    id_option,
    ids_option,
    name_option,
    nothing,
    single_body,
    skip_option,
    to_option,
)


@click.group(
    cls=LazyGroup,
    table={
        **{
            verb: f"message:{verb}"
            for verb in ("send", "receive", "pop", "delete", "visibility", "move")
        },
        **{verb: f"peek:{verb}" for verb in ("peek", "pending")},
        "tail": "tail:tail",
        "export": "transfer.commands:export_messages",
        "import": "transfer.commands:import_messages",
    },
    epilog=examples(
        '$ rsmqctl message send -n jobs -m "Hello, World"',
        "$ rsmqctl message receive -n jobs",
        "$ rsmqctl message delete -n jobs -i g73zkl38qzSBNq2NcnVVlCldqwqFXRJd",
    ),
)
@global_options()
def message() -> None:
    """Send, receive, inspect, move and delete messages."""


@click.command(
    epilog=examples(
        '$ rsmqctl message send -n jobs -m "Hello, World"', "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd",
        "$ jq -c '.items[]' orders.json | rsmqctl message send -n jobs --file - >ids",
    )
)  # fmt: skip
@name_option
@click.option("-m", "--message", "body", metavar="TEXT", help="The body.")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    help="Send every line of FILE (- for stdin) as one message, unchanged.",
)
@skip_option
@click.option(
    "-d",
    "--delay",
    type=seconds,
    help="Delay until it can be received; not given: the queue's own delay.",
)
@dedup_key_option
@header_option
@global_options()
def send(
    name: str,
    body: str | None,
    file: str | None,
    skip: int,
    delay: float | None,
    dedup_key: str | None,
    headers: dict[str, str] | None,
) -> None:
    """Send a message and print its id.

    With --file one message for every line that is not empty, in order, with an id per line on
    stdout and, if only stderr is a terminal, a progress bar there. The body is the line without
    its line break: a file of JSON documents (NDJSON) becomes one JSON message per line. After a
    failure a note says how many lines are done, to resume with --skip.

    With --dedup-key a second message within five minutes is not stored: the id is that of the
    first, and a note on stderr says so.

    Headers are shown by receive, pop, peek and the other commands that print messages. Clients
    other than those of aiorsmq-ng see the body only.
    """
    raw = single_body(body, file, skip=skip, dedup_key=dedup_key)
    if raw is None:
        from .transfer.commands import send_file

        send_file(name, str(file), delay, skip, headers)
        return
    how: dict[str, Any] = {"delay": delay, "dedup_key": dedup_key, "headers": headers}
    show_sent(run(lambda rsmq: rsmq.queue(name).send(raw, **how)))


@click.command(
    epilog=examples(
        "$ rsmqctl message receive -n jobs",
        '{"id": "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd", "message": "Hello, World",',
        ' "rc": 1, "ts": 1645021703008}     (on one line)',
        "$ rsmqctl message receive -n jobs --wait 60 --fail-empty || echo none came",
        "$ rsmqctl message receive -n jobs -c 10 -o ndjson",
    )
)
@name_option
@click.option(
    "-c",
    "--count",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Receive up to N messages, and print a list.",
)
@click.option(
    "-t",
    "--vt",
    type=seconds,
    help="How long it stays hidden from others; not given: the queue's own visibility timeout.",
)
@click.option(
    "-w",
    "--wait",
    type=seconds,
    default=0,
    show_default=True,
    help="Wait up to this time for a message.",
)
@fail_empty_option
@compat_option
@global_options()
def receive(
    name: str, count: int | None, vt: float | None, wait: float, fail_empty: bool, compat: bool
) -> None:
    r"""Receive the next message and print it as JSON.

    The message stays in the queue, hidden. Delete it when its work is done; otherwise it comes
    back after the visibility timeout, with a higher rc.

    rc counts how often it was received; ts is the time of the first receive in epoch
    milliseconds; headers are there if it has some. Bytes that are not UTF-8 text are shown as \xff.
    For an empty queue only a note is printed on stderr; with --compat, the sentence of the first
    rsmqctl on stdout. A message that
    was received and cannot be printed, because of Ctrl-C or a closed pipe, is released at once.
    """

    async def work(rsmq: aiorsmq_ng.RSMQ) -> bool:
        found = await rsmq.queue(name).receive_many(count or 1, vt=vt, wait=wait)
        async with given_back(found):
            if count is not None:
                show_rows(map(message_record, found), columns_of(found, MESSAGE_COLUMNS))
            elif found:
                show_record(message_record(found[0]))
        return bool(found)

    if not run(work):
        _nothing_ready(name, fail_empty, compat)


@click.command(
    epilog=examples(
        "$ rsmqctl message pop -n jobs",
        '{"id": "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd", "message": "Hello, World",',
        ' "rc": 1, "ts": 1645021703008}     (on one line)',
    )
)
@name_option
@fail_empty_option
@compat_option
@global_options()
def pop(name: str, fail_empty: bool, compat: bool) -> None:
    r"""Take the next message and delete it; print it as JSON.

    The message is deleted at once: if its work fails, it is lost. Bytes that are not UTF-8 text
    are shown as \xff. For an empty queue only a note is printed on stderr; with --compat, the
    sentence of the first rsmqctl on stdout.
    """
    found = run(lambda rsmq: rsmq.queue(name).pop())
    if found is None:
        _nothing_ready(name, fail_empty, compat)
    else:
        show_record(message_record(found))


@click.command(
    epilog=examples(
        "$ rsmqctl message delete -n jobs -i g73zkl38qzSBNq2NcnVVlCldqwqFXRJd",
        "$ rsmqctl message delete -n jobs -i g73zkl38qzSBNq2NcnVVlCldqwqFXRJd \\",
        "      -i g7aoitedg36TbsB8eP2yPY8XgaLwfKN3",
    )
)
@name_option
@ids_option
@global_options()
def delete(name: str, ids: tuple[str, ...]) -> None:
    """Delete messages, leased ones too. Prints nothing.

    Exit status 1 if one of them does not exist; the others are deleted all the same.
    """
    gone = set(run(lambda rsmq: rsmq.queue(name).delete_many(ids)))
    if missing := [id for id in dict.fromkeys(ids) if id not in gone]:
        raise _absent(name, *missing)


@click.command(
    epilog=examples(
        "$ rsmqctl message visibility -n q -i g7aoitedg36TbsB8eP2yPY8XgaLwfKN3 -t 600",
        "Message ID: g7aoitedg36TbsB8eP2yPY8XgaLwfKN3 visibility timeout set to 600s",
    )
)
@name_option
@id_option
@click.option("-t", "--vt", type=seconds, required=True, help="How long it is hidden from now on.")
@global_options()
def visibility(name: str, id: str, vt: float) -> None:
    """Change how long a message is hidden, even a leased one.

    0 makes it ready at once.
    """
    if not run(lambda rsmq: rsmq.queue(name).change_visibility(id, vt)):
        raise _absent(name, id)
    click.echo(printable(f"Message ID: {id} visibility timeout set to {vt}s"))


@click.command(
    epilog=examples(
        "$ rsmqctl message move -n jobs -i g73zkl38qzSBNq2NcnVVlCldqwqFXRJd --to slow",
        '{"moved": 1}',
    )
)
@name_option
@ids_option
@to_option
@global_options()
def move(name: str, ids: tuple[str, ...], target: str) -> None:
    """Move ready messages to another queue, by id.

    They start there with rc 0. Leased and delayed messages are not moved: exit status 1 if any
    was not found ready. The search starts at the head of the queue.
    """
    wanted = set(ids)

    async def work(rsmq: aiorsmq_ng.RSMQ) -> int:
        for queue in (name, target):  # report a missing queue even if nothing is moved
            await rsmq.queue(queue).attributes()
        return await rsmq.queue(target).redrive(
            name, count=len(wanted), where=lambda message: message.id in wanted
        )

    moved = run(work)
    show_record({"moved": moved})
    if moved < len(wanted):
        look = f"{program(current_settings().namespace)} message pending -n {name}"
        raise click.ClickException(
            f"{len(wanted) - moved} of {len(wanted)} messages are not ready in queue {name!r}; "
            f"list leased ones with: {look}"
        )


def _nothing_ready(name: str, fail_empty: bool, compat: bool) -> None:
    if compat:
        click.echo(printable(f"No messages on queue: {name}"))
        if fail_empty:
            click.get_current_context().exit(NOTHING_THERE)
        return
    nothing(f"no message is ready in queue {name!r}", fail=fail_empty)


def _absent(name: str, *ids: str) -> click.ClickException:
    look = f"{program(current_settings().namespace)} queue describe -n {name}"
    what = f"message {ids[0]} is" if len(ids) == 1 else f"messages {', '.join(ids)} are"
    which = "it was" if len(ids) == 1 else "they were"
    return click.ClickException(
        f"{what} not in queue {name!r}, {which} perhaps deleted; inspect it with: {look}"
    )
