"""``rsmqctl doctor``: finds and repairs damage in queues, and reports dangerous settings."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import asdict, fields

import click

import aiorsmq_ng

from .confirmation import yes_option
from .global_options import current_settings, examples, global_options, program, seconds
from .output import emit, printable, show_rows
from .session import run

#: Exit status if findings above info are left.
LEFT = 1
_WIDEST = 100


@click.command(
    epilog=examples(
        "$ rsmqctl doctor",
        "$ rsmqctl doctor jobs emails -o json",
        "$ rsmqctl doctor --fix --yes",
        "",
        "Exit status: 0 nothing above info is left, 1 something is.",
    )
)
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@click.option("--fix", is_flag=True, help="Repair what can be repaired; asks first.")
@yes_option
@click.option(
    "--max-hidden",
    type=seconds,
    metavar="SECONDS",
    help="Treat messages hidden for longer than this as stuck; --fix makes them visible.",
)
@global_options()
def doctor(queues: tuple[str, ...], fix: bool, yes: bool, max_hidden: float | None) -> None:
    """Look for damage in queues, and repair it.

    Examines all queues, or those named, and the server's settings. Queues may be in use at the
    same time, also with --fix; it loses and duplicates no message. Settings are never changed.
    Without -o the report is a text on a terminal and JSON elsewhere; ndjson and csv have the
    findings only.
    """
    if fix and not yes:
        _ask(queues)
    progress = _Progress()
    try:
        report = run(
            lambda rsmq: rsmq.doctor(*queues, fix=fix, max_hidden=max_hidden, progress=progress)
        )
    finally:
        progress.clear()
    _show(report, current_settings().output)
    if not report.healthy:
        click.get_current_context().exit(LEFT)


def _show(report: aiorsmq_ng.DoctorReport, output: str | None) -> None:
    if output in ("ndjson", "csv"):
        columns = [field.name for field in fields(aiorsmq_ng.Finding)]
        show_rows((asdict(finding) for finding in report.findings), columns)
    elif output == "json" or (output is None and not sys.stdout.isatty()):
        emit({"healthy": report.healthy, **asdict(report)})
    else:
        click.echo("\n".join(map(printable, _table(report))))


def _ask(queues: tuple[str, ...]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("--fix needs --yes without a terminal to ask on")
    what = ", ".join(queues) or "all queues"
    if not click.confirm(printable(f"Repair damage in {what}?"), err=True):
        raise click.ClickException("nothing was repaired")


class _Progress:
    """Shows progress on stderr, if that is a terminal."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._shown < 0.1:
            return
        self._shown = now
        text = printable(f"{what}: {done} of {max(done, total)}" if total else f"{what}: {done}")
        click.echo(f"\r{text:<{self._width}}", nl=False, err=True)
        self._width = len(text)

    def clear(self) -> None:
        """Erase the progress line."""
        if self._width:
            click.echo(f"\r{'':<{self._width}}\r", nl=False, err=True)


def _table(report: aiorsmq_ng.DoctorReport) -> Iterator[str]:
    """Format a report as text."""
    yield _server_line(report.server)
    yield f"{len(report.queues)} queue{'' if len(report.queues) == 1 else 's'} examined"
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    names = [finding.queue or "-" for finding in report.findings]
    widest = max(map(len, names), default=0)
    for name, found in zip(names, report.findings, strict=True):
        state = "  fixed" if found.fixed else ""
        yield ""
        yield f"{found.severity:<8} {name:<{widest}}  {found.kind} ({found.count}){state}"
        yield from _wrapped(found.detail, width)
        if found.ids:
            yield from _wrapped(", ".join(found.ids), width)
    yield ""
    left = [finding for finding in report.findings if finding.open]
    if not left:
        yield "nothing is left to do"
    elif any(finding.fixable for finding in left):
        command = f"{program(current_settings().namespace)} doctor --fix"
        yield f"{len(left)} left to do; repair what can be repaired with: {command}"
    else:
        yield f"{len(left)} left to do"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=" " * 9, subsequent_indent=" " * 9, break_on_hyphens=False
    )


def _server_line(server: aiorsmq_ng.ServerFacts) -> str:
    """Return the facts about the server on one line."""
    facts = [f"{server.engine} {server.version}" if server.engine else "unknown server"]
    if server.aof is not None:
        synced = f", synced: {server.appendfsync}" if server.appendfsync else ""
        facts.append(f"append-only file on{synced}" if server.aof else "append-only file off")
    if server.eviction_policy is not None:
        limit = f"{server.maxmemory} bytes" if server.maxmemory else "no limit"
        facts.append(f"memory: {limit}, {server.eviction_policy}")
    if server.replicas is not None:
        facts.append(f"replicas: {server.replicas}")
    if server.clock_offset is not None:
        facts.append(f"clock {server.clock_offset * 1000:+.1f} ms")
    return "; ".join(facts)
