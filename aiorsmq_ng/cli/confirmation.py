"""Asks the user before messages or queues are removed; without a terminal ``--yes`` is required."""

from __future__ import annotations

import sys

import click

from .output import printable

yes_option = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask. Required without a terminal."
)


def asks(*, yes: bool) -> bool:
    """Return True if the user must confirm; without a terminal ``--yes`` is required."""
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("there is no terminal to ask on; give --yes to go on unasked")
    return not yes


def confirm(question: str) -> None:
    """Ask the user; raise ``ClickException`` unless the answer is yes."""
    if not click.confirm(printable(question), err=True):
        raise click.ClickException("nothing was changed")
