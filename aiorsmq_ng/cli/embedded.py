"""``rsmqctl server``: starts and stops the embedded server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

import click
from click.core import ParameterSource

from .global_options import current_settings, examples, global_options
from .lazy_group import LazyGroup
from .output import Record, complain, show_record, without_secrets
from .shared_options import NOTHING_THERE

folder_option = click.option(
    "--folder",
    metavar="FOLDER",
    help="Its data; not given: the folder of an embedded:// URL, or AIORSMQ_DATA_DIR, or "
    "aiorsmq-ng/default in ~/.local/state.",
)


@click.group(
    cls=LazyGroup,
    table={verb: f"embedded:{verb}" for verb in ("start", "stop", "status")},
    epilog=examples("$ rsmqctl server start", "$ rsmqctl -r embedded:// queue list"),
)
@global_options()
def server() -> None:
    """Start and stop the embedded server, and print its status.

    A program that uses embedded:// starts the server if needed, and the last program to close it
    stops it. These commands keep it running in between.
    """


@click.command(
    epilog=examples(
        "$ rsmqctl server start",
        '{"running": true, "url": "unix:///home/me/.local/state/aiorsmq-ng/...", ...}',
        "$ export RSMQ_URL=embedded://",
    )
)
@folder_option
@global_options()
def start(folder: str | None) -> None:
    """Start the server, and keep it running until it is stopped.

    It may run already. It keeps running after this command and the programs that use it. After a
    reboot the next program that uses it starts it again.
    """
    from aiorsmq_ng.embedded import EmbeddedServer

    with EmbeddedServer.acquire(_path(folder)) as held:
        held.keep()
    show_record(_record(folder))


@click.command(epilog=examples("$ rsmqctl server stop"))
@folder_option
@global_options()
def stop(folder: str | None) -> None:
    """Stop the server. Its data stay.

    While programs use it, it keeps running; the last of them stops it.
    """
    from aiorsmq_ng.embedded import stop

    gone = stop(_path(folder))
    show_record(_record(folder))
    if not gone:
        complain("the server is in use; it stops with the last program that uses it, see users")


@click.command(
    epilog=examples(
        "$ rsmqctl server status -o table",
        "running  true",
        "url      unix:///home/me/.local/state/aiorsmq-ng/default/server.sock",
        "engine   valkey 9.1.2",
        "pid      4711",
        "...",
    )
)
@folder_option
@global_options()
def status(folder: str | None) -> None:
    """Print if and where the server runs, and which processes use it.

    kept: it keeps running without users. users: ids of the processes that use it, or null where
    the system does not list them. Exit status 3 if it does not run.
    """
    found = _record(folder)
    show_record(found)
    if not found["running"]:
        click.get_current_context().exit(NOTHING_THERE)


def _path(folder: str | None) -> Path | None:
    url = current_settings().redis_url or ""
    if not url.startswith("embedded://"):
        _refuse_other_servers(url)
    elif folder is None:
        folder = unquote(url.removeprefix("embedded://"))
    return Path(folder).expanduser() if folder else None


def _refuse_other_servers(url: str) -> None:
    """Refuse -r with another server; RSMQ_URL may be meant for the other commands."""
    context: click.Context | None = click.get_current_context()
    while context is not None:
        if context.get_parameter_source("redis_url") is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{without_secrets(url)} is not an embedded server; leave -r out, or give embedded://"
            )
        context = context.parent


def _record(folder: str | None) -> Record:
    from aiorsmq_ng.embedded import status

    found = status(_path(folder))
    binary = found.binary
    return {
        "running": found.running,
        "url": f"unix://{quote(str(found.socket))}",
        "socket": str(found.socket),
        "folder": str(found.folder),
        "engine": binary and f"{binary.engine} {'.'.join(map(str, binary.version))}",
        "program": binary and binary.path,
        "pid": found.pid,
        "kept": found.kept,
        "in_use": found.in_use,
        "users": None if found.users is None else list(found.users),
    }
