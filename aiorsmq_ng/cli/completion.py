"""``rsmqctl completion``: shell completion of commands, options and names of queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import click

import aiorsmq_ng

from .global_options import examples, global_options


@click.command(
    epilog=examples(
        '$ eval "$(rsmqctl completion bash)"    # a line for ~/.bashrc',
        '$ eval "$(rsmqctl completion zsh)"     # a line for ~/.zshrc',
        "$ rsmqctl completion fish >~/.config/fish/completions/rsmqctl.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@global_options()
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    Names of queues and topics are completed by asking the server that RSMQ_URL (or -r) names. Those
    that hold anything but letters, digits, - and _ are not offered: a shell might run them.
    """
    from click.shell_completion import get_completion_class

    context = click.get_current_context().find_root()
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell!r}")
    # Not source(): for bash that starts one to ask its version, and bash may be elsewhere.
    made = found(context.command, {}, "rsmqctl", "_RSMQCTL_COMPLETE")
    click.echo(made.source_template % made.source_vars())


def complete_queue(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Complete the name of a queue from the server; offer nothing if it does not answer."""
    return complete(context, incomplete, lambda rsmq: rsmq.list_queues())


def complete(
    context: click.Context,
    incomplete: str,
    ask: Callable[[aiorsmq_ng.RSMQ], Awaitable[Sequence[str]]],
) -> list[str]:
    """Return the names that begin with *incomplete* and are safe to use unquoted in a shell.

    A shell inserts a completed name unquoted into the line that it then runs, and every client of
    the server may choose names. So only names in RSMQ's own alphabet are offered.
    """
    from .session import run

    async def work(rsmq: aiorsmq_ng.RSMQ) -> list[str]:
        return [name for name in await ask(rsmq) if _is_plain(rsmq, name)]

    try:
        with context.scope():
            names = run(work)
    except Exception:
        return []  # the shell would show an error message, so none is printed
    return [name for name in names if name.startswith(incomplete)]


def _is_plain(rsmq: aiorsmq_ng.RSMQ, name: str) -> bool:
    try:
        rsmq.queue(name)  # validates the name; no I/O
    except aiorsmq_ng.InvalidValue:
        return False
    return True
