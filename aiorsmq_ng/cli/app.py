"""``rsmqctl`` as a whole: the commands, and how errors become sentences and exit statuses."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence

import click

import aiorsmq_ng

from .messages import message
from .output import complain, emit, without_secrets
from .pipeline import pipeline
from .queues import queue
from .session import (
    DEFAULT_URL,
    Settings,
    current_settings,
    examples,
    finish,
    global_options,
    program,
)
from .workers import worker

FAILED, USAGE, UNREACHABLE, INTERRUPTED = 1, 2, 4, 130

#: Exit status for every ``code`` of the library's errors.
EXIT_STATUS = {
    "rsmqError": FAILED,
    "queueExists": FAILED,
    "queueNotFound": FAILED,
    "messageTooLong": FAILED,
    "invalidValue": USAGE,
    "invalidFormat": USAGE,
    "missingParameter": USAGE,
    "messageNotString": USAGE,
    "noAttributeSupplied": USAGE,
    "leaseLost": FAILED,
    "queueFull": FAILED,
    "queueCorrupt": FAILED,
    "unavailable": UNREACHABLE,
    "sendUnknown": UNREACHABLE,
    "durabilityUnmet": FAILED,
}


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "$ rsmqctl demo",
        "$ rsmqctl queue create -n jobs",
        '$ rsmqctl message send -n jobs -m "Hello, World"',
        "$ rsmqctl -r redis://db.example:6379/1 --ns shop queue list",
        "",
        "Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing there (only with",
        "--fail-empty), 4 server unreachable, 130 interrupted.",
    ),
)
@global_options(hidden=False)
@click.version_option(aiorsmq_ng.__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Look after Redis message queues (RSMQ) from the command line.

    Results are JSON on stdout, everything else goes to stderr. The options below may stand
    before or after the command.
    """


cli.add_command(queue)
cli.add_command(message)
cli.add_command(worker)
cli.add_command(pipeline)


@cli.command(
    epilog=examples(
        "$ rsmqctl ping", '{"url": "redis://localhost:6379", "connect_ms": 2.1, "ping_ms": 0.2}'
    )
)
@global_options()
def ping() -> None:
    """Ask the server for an answer and print how long it took."""
    settings = current_settings()

    async def measure() -> tuple[float, float]:
        started = time.perf_counter()
        async with settings.client() as rsmq:
            connected = time.perf_counter()
            await rsmq.open()
            return connected - started, time.perf_counter() - connected

    connect_s, ping_s = finish(measure)
    emit(
        {
            "url": without_secrets(settings.redis_url or DEFAULT_URL),
            "connect_ms": round(connect_s * 1000, 3),
            "ping_ms": round(ping_s * 1000, 3),
        }
    )


@cli.command(
    epilog=examples("$ rsmqctl demo", "$ NO_COLOR=1 rsmqctl -r redis://localhost:6379 demo")
)
@global_options()
def demo() -> None:
    """See what a message queue does, in about four seconds.

    Without a URL it starts a server of its own (embedded://, needs no Redis). It works in the
    namespace "demo", on a queue that it creates and deletes.
    """
    from .demo import play  # noqa: PLC0415 - needs rich, which costs other commands 0.1 s

    settings = current_settings()
    finish(lambda: play(settings))


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    settings = Settings()
    try:
        return cli.main(args, "rsmqctl", standalone_mode=False, obj=settings) or 0
    except Exception as error:
        status = _report(error)
        if settings.verbose:
            click.echo("".join(traceback.format_exception(error)), err=True)
        return status


def _report(error: Exception) -> int:
    """Print what went wrong and what to do about it; return the exit status."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return USAGE
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else "rsmqctl"
            complain(f"{_clause(error.format_message())}; see: {path} --help")
            return USAGE
        case click.ClickException():
            complain(_clause(error.format_message()))
            return error.exit_code
        case click.Abort():
            complain("interrupted")
            return INTERRUPTED
        case aiorsmq_ng.RSMQError():
            complain(_explain(error))
            return EXIT_STATUS.get(error.code, FAILED)
        case ModuleNotFoundError():
            raise error
    complain(f"unexpected {type(error).__name__}: {error}; run it again with -v to see where")
    return FAILED


def _explain(error: aiorsmq_ng.RSMQError) -> str:
    """Return the library's sentence with a next step in terms of this command line."""
    match error:
        case aiorsmq_ng.QueueNotFound(queue=name, ns=namespace):
            fact = f"queue {name!r} does not exist in namespace {namespace!r}"
            return f"{fact}; create it with: {program(namespace)} queue create -n {name}"
        case aiorsmq_ng.QueueExists(queue=name, ns=namespace):
            fact = f"queue {name!r} exists already in namespace {namespace!r}"
            return f"{fact}; look at it with: {program(namespace)} queue describe -n {name}"
        case aiorsmq_ng.MessageTooLong():
            return f"{error}; send less, or use a queue with a larger maxsize"
        case aiorsmq_ng.QueueCorrupt():
            return f"{error}; look at its keys with redis-cli"
        case aiorsmq_ng.SendUnknown():
            return f"{error}; look into the queue before you send again"
        case aiorsmq_ng.Unavailable(passing=True):
            return f"{error}; check that the server runs and that -r or RSMQ_URL names it"
    return str(error)


def _clause(sentence: str) -> str:
    """Return click's sentence in our style: lower case, and open for a next step."""
    return (sentence[:1].lower() + sentence[1:]).rstrip(".").replace(". (", " (")
