"""Command groups whose commands are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

import click


class LazyGroup(click.Group):
    """A group whose *table* names its commands as ``module:function`` in this package.

    Commands that were added with ``add_command`` come after those.
    """

    def __init__(self, *, table: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self._table = table

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help without a command and exit with 2, in every version of click."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the table."""
        return [*self._table, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command *cmd_name*, or None; imports its module."""
        if cmd_name not in self._table:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._table[cmd_name].partition(":")
        return cast(click.Command, getattr(import_module(f".{module}", __package__), function))
