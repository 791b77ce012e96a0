"""The root of ``rsmqctl``: its table of commands, and the mapping of errors to exit statuses."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Sequence

import click

import aiorsmq_ng

from . import EXTRA, INTERRUPTED
from .global_options import Settings, examples, global_options, program
from .lazy_group import LazyGroup
from .output import complain, harmless

FAILED, USAGE, UNREACHABLE = 1, 2, 4

#: Command -> ``module:function`` in this package, in the order of the help. A module is imported
#: when its command is used, and imports nothing large itself until the command runs.
COMMANDS = {
    "queue": "queue:queue",
    "message": "message:message",
    "topic": "topic:topic",
    "dlq": "dlq:dlq",
    "worker": "worker:worker",
    "serve": "broker:serve",
    "dashboard": "dashboard:dashboard",
    "rmq": "rmq:rmq",
    "pipeline": "pipeline:pipeline",
    "doctor": "doctor:doctor",
    "top": "top.command:top",
    "bench": "bench:bench",
    "ping": "ping:ping",
    "demo": "demo:demo",
    "server": "embedded:server",
    "completion": "completion:completion",
}

#: Exit status for every ``code`` of the library's errors.
EXIT_STATUS = {
    "rsmqError": FAILED,
    "serverError": FAILED,
    "usageError": FAILED,
    "queueExists": FAILED,
    "queueNotFound": FAILED,
    "messageTooLong": FAILED,
    "invalidValue": USAGE,
    "invalidFormat": USAGE,
    "missingParameter": USAGE,
    "messageNotString": USAGE,
    "noAttributeSupplied": USAGE,
    "leaseLost": FAILED,
    "serverOutOfMemory": FAILED,
    "queueCorrupt": FAILED,
    "unavailable": UNREACHABLE,
    "sendUnknown": UNREACHABLE,
    "durabilityUnmet": FAILED,
    "accessDenied": UNREACHABLE,
    "notSupported": FAILED,
    "clientClosed": FAILED,
    "wrongContext": FAILED,
    "claimLost": FAILED,
    "rowsDiffer": FAILED,
    "snapshotGone": FAILED,
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "$ rsmqctl demo",
        "$ rsmqctl queue create -n jobs",
        '$ rsmqctl message send -n jobs -m "Hello, World"',
        "$ rsmqctl -r redis://db.example:6379/1 --ns shop queue list",
        "",
        "Exit status: 0 done, 1 failed, 2 wrong usage, 3 nothing there (with",
        "--fail-empty, or by server status), 4 server unreachable, 130 interrupted.",
    ),
)
@global_options(hidden=False)
@click.version_option(aiorsmq_ng.__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Manage Redis message queues (RSMQ) from the command line.

    Results go to stdout, as JSON unless -o says otherwise; everything else goes to stderr. The
    options below may stand before or after the command.
    """


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    settings = Settings()
    try:
        return cli.main(args, "rsmqctl", standalone_mode=False, obj=settings) or 0
    except Exception as error:
        status = _report(error)
        if settings.verbose:
            click.echo(harmless("".join(traceback.format_exception(error))), err=True)
        return status


def _report(error: Exception) -> int:
    """Print the error and how to fix it on stderr; return the exit status."""
    match error:
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
        case aiorsmq_ng.InvalidValue(__cause__=OSError()):
            complain(str(error))  # as of a port in use
            return FAILED
        case aiorsmq_ng.RSMQError():
            complain(_explain(error))
            return EXIT_STATUS.get(error.code, FAILED)
        case ModuleNotFoundError(name=str(name)) if name.split(".")[0] in EXTRA:
            raise error
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG | errno.EIO):
            complain(
                f"the output cannot be written: {error.strerror}; free space, or write elsewhere"
            )
            return FAILED
    complain(f"unexpected {type(error).__name__}: {error}; run it again with -v to see where")
    return FAILED


def _explain(error: aiorsmq_ng.RSMQError) -> str:
    """Return the library's error text with a next step as a command line."""
    match error:
        case aiorsmq_ng.QueueNotFound(queue=name, ns=namespace):
            fact = f"queue {name!r} does not exist in namespace {namespace!r}"
            if getattr(error, "unwanted", False):
                return f"{fact}; list the existing ones with: {program(namespace)} queue list"
            if "topic.subscribe()" in str(error):
                return f"{fact}; a subscription's is made by: {program(namespace)} topic subscribe"
            return f"{fact}; create it with: {program(namespace)} queue create -n {name}"
        case aiorsmq_ng.QueueExists(queue=name, ns=namespace):
            fact = f"queue {name!r} exists already in namespace {namespace!r}"
            return f"{fact}; look at it with: {program(namespace)} queue describe -n {name}"
        case aiorsmq_ng.MessageTooLong():
            return f"{error}; send less, or use a queue with a larger maxsize"
        case aiorsmq_ng.QueueCorrupt(layout="rmq"):
            return f"{error}; look at the types of its keys, which begin with rmq::"
        case aiorsmq_ng.QueueCorrupt(queue=name):
            return f"{error}; look closer with: rsmqctl doctor {name}"
        case aiorsmq_ng.SendUnknown():
            return f"{error}; look into the queue before you send again"
        case aiorsmq_ng.Unavailable(transient=True):
            return f"{error}; check that the server runs and that -r or RSMQ_URL names it"
    return str(error)


def _clause(sentence: str) -> str:
    """Return click's error text in our style: lower case, without a full stop."""
    clause = (sentence[:1].lower() + sentence[1:]).rstrip(".").replace(". (", " (")
    return clause.replace(". Choose from:", ", one of").replace(
        "\n\t", " "
    )  # a list of one choice per line
