"""``rsmqctl message``: commands on the messages of a queue."""

from __future__ import annotations

import click

import aiorsmq_ng

from .output import complain, emit, message_record, printable
from .queues import name_option
from .session import current_settings, examples, global_options, program, run, seconds

#: Exit status for an empty queue, for scripts that ask for it.
NOTHING_THERE = 3

id_option = click.option("-i", "--id", required=True, help="The message's id.")
fail_empty_option = click.option(
    "--fail-empty", is_flag=True, help=f"Exit with {NOTHING_THERE} if no message is ready."
)


@click.group(
    epilog=examples(
        '$ rsmqctl message send -n jobs -m "Hello, World"',
        "$ rsmqctl message receive -n jobs",
        "$ rsmqctl message delete -n jobs -i g73zkl38qzSBNq2NcnVVlCldqwqFXRJd",
    )
)
@global_options()
def message() -> None:
    """Send, receive, pop, hide and delete messages."""


@message.command(
    epilog=examples(
        '$ rsmqctl message send -n jobs -m "Hello, World"', "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
    )
)
@name_option
@click.option("-m", "--message", "body", metavar="TEXT", required=True, help="What to send.")
@click.option(
    "-d",
    "--delay",
    type=seconds,
    help="How long it waits before it can be received; not given: the queue's own delay.",
)
@global_options()
def send(name: str, body: str, delay: float | None) -> None:
    """Send a message and print its id."""
    # Arguments that are not text reach Python as surrogates; this gives their bytes back.
    raw = body.encode(errors="surrogateescape")
    click.echo(run(lambda rsmq: rsmq.send_message(name, raw, delay=delay)))


@message.command(
    epilog=examples(
        "$ rsmqctl message receive -n jobs",
        '{"id": "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd", "message": "Hello, World",',
        ' "rc": 1, "ts": 1645021703008}     (on one line)',
    )
)
@name_option
@click.option(
    "-t",
    "--vt",
    type=seconds,
    help="How long it stays hidden from others; not given: the queue's own visibility timeout.",
)
@fail_empty_option
@global_options()
def receive(name: str, vt: float | None, fail_empty: bool) -> None:
    r"""Receive the next message and print it as JSON.

    The message stays in the queue, hidden. Delete it when its work is done; otherwise it comes
    back after the visibility timeout, with a higher rc.

    rc counts how often it was received; ts is the time of the first receive in epoch
    milliseconds. Bytes that are not UTF-8 text are shown as \xff. From an empty queue nothing is
    printed but a note on stderr.
    """
    _show(run(lambda rsmq: rsmq.receive_message(name, vt=vt)), name, fail_empty)


@message.command(
    epilog=examples(
        "$ rsmqctl message pop -n jobs",
        '{"id": "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd", "message": "Hello, World",',
        ' "rc": 1, "ts": 1645021703008}     (on one line)',
    )
)
@name_option
@fail_empty_option
@global_options()
def pop(name: str, fail_empty: bool) -> None:
    r"""Take the next message and delete it; print it as JSON.

    The message is deleted at once: if its work fails, it is lost. Bytes that are not UTF-8 text
    are shown as \xff. From an empty queue nothing is printed but a note on stderr.
    """
    _show(run(lambda rsmq: rsmq.pop_message(name)), name, fail_empty)


@message.command(
    epilog=examples("$ rsmqctl message delete -n jobs -i g73zkl38qzSBNq2NcnVVlCldqwqFXRJd")
)
@name_option
@id_option
@global_options()
def delete(name: str, id: str) -> None:
    """Delete a message, whoever holds it. Prints nothing."""
    if not run(lambda rsmq: rsmq.delete_message(name, id)):
        raise _absent(name, id)


@message.command(
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
    """Change how long a message is hidden, whoever holds it.

    0 makes it ready at once.
    """
    if not run(lambda rsmq: rsmq.change_message_visibility(name, id, vt)):
        raise _absent(name, id)
    click.echo(printable(f"Message ID: {id} visibility timeout set to {vt}s"))


def _show(found: aiorsmq_ng.Message | None, name: str, fail_empty: bool) -> None:
    if found is not None:
        emit(message_record(found))
        return
    complain(f"no message is ready in queue {name!r}")
    if fail_empty:
        click.get_current_context().exit(NOTHING_THERE)


def _absent(name: str, id: str) -> click.ClickException:
    look = f"{program(current_settings().namespace)} queue describe -n {name}"
    return click.ClickException(
        f"message {id} is not in queue {name!r}, it was perhaps deleted; look with: {look}"
    )
