"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

import aiorsmq_ng

from .completion import complete_queue
from .output import complain

#: Exit status for an empty result, for scripts that ask for it.
NOTHING_THERE = 3

_PER = {"s": 1.0, "m": 60.0, "h": 3600.0}


def rate(value: str | float) -> float:
    """Parse a rate as messages per second: ``100``, ``100/s``, ``6000/m`` or ``1/h``."""
    number, slash, unit = str(value).partition("/")
    try:
        found = float(number) / _PER[unit if slash else "s"]
    except (ValueError, KeyError):
        raise click.BadParameter(f"{value!r} is not a rate such as 100/s, 6000/m or 1/h") from None
    if not 0 < found < float("inf"):
        raise click.BadParameter(f"{value!r} is not more than 0 messages per second")
    return found


def positive(value: str | float) -> int | float:
    """Parse a number of seconds greater than 0."""
    from .global_options import seconds

    found = seconds(value)
    if not 0 < found < float("inf"):
        raise click.BadParameter(f"{value!r} is not more than 0 seconds")
    return found


name_option = click.option(
    "-n", "--name", required=True, help="The queue.", shell_complete=complete_queue
)
to_option = click.option(
    "--to", "target", required=True, help="The queue to move to.", shell_complete=complete_queue
)
id_option = click.option("-i", "--id", required=True, help="The message's id.")
ids_option = click.option(
    "-i", "--id", "ids", required=True, multiple=True, help="A message's id; repeatable."
)
count_option = click.option(
    "-c",
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    default=10,
    show_default=True,
    help="Maximum number.",
)
most_option = click.option(
    "-c",
    "--count",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum number, up to 100000; not given: all.",
)
start_option = click.option(
    "-s",
    "--start",
    type=int,
    metavar="N",
    default=0,
    show_default=True,
    help="Index to start at; a negative number counts from the end.",
)
skip_option = click.option(
    "--skip", type=click.IntRange(min=0), default=0, metavar="N", help="Skip the first N lines."
)
dedup_key_option = click.option(
    "--dedup-key", metavar="KEY", help="Store no second message with this key within 5 minutes."
)
header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, given: read_header_options(given),
    help="Header that travels beside the body; may be repeated.",
)
rate_option = click.option("--rate", type=rate, help="Limit per second, as in 100/s.")
fail_empty_option = click.option(
    "--fail-empty", is_flag=True, help=f"Exit with {NOTHING_THERE} if there is nothing."
)
compat_option = click.option(
    "--compat",
    is_flag=True,
    help="Report an empty queue on stdout as the first rsmqctl did: No messages on queue: NAME.",
)


@contextmanager
def removing() -> Iterator[None]:
    """Mark the error about a missing queue, so that it does not advise to create the queue."""
    try:
        yield
    except aiorsmq_ng.QueueNotFound as error:
        error.unwanted = True  # type: ignore[attr-defined]
        raise


def messages(count: int, kind: str = "") -> str:
    """Return a number of messages as text, with the right plural."""
    return f"{count} {kind}{' ' * bool(kind)}message{'s' * (count != 1)}"


def nothing(sentence: str, *, fail: bool) -> None:
    """Print *sentence* about an empty result on stderr; with *fail* exit with 3."""
    complain(sentence)
    if fail:
        click.get_current_context().exit(NOTHING_THERE)


def read_header_options(given: Sequence[str]) -> dict[str, str] | None:
    """Return the headers in ``--header`` options, or ``None`` if there are none."""
    headers: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, such as tenant=acme")
        if name in headers:
            raise click.BadParameter(f"{name!r} is given twice")
        headers[name] = value
    return headers or None


def single_body(
    body: str | None, file: str | None, *, skip: int, dedup_key: str | None
) -> bytes | None:
    """Return the body of ``--message``; None if ``--file`` is given instead."""
    if (body is None) == (file is None):
        raise click.UsageError("give either '-m' / '--message' or '-f' / '--file'")
    if body is None:
        if dedup_key is not None:
            raise click.UsageError("'--dedup-key' is for a single message")
        return None
    if skip:
        raise click.UsageError("'--skip' is for '-f' / '--file'")
    # Arguments that are not UTF-8 reach Python as surrogates; this restores their bytes.
    return body.encode(errors="surrogateescape")
