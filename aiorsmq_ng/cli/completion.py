"""``rsmqctl completion``: shell completion of commands, options and names of queues."""

from __future__ import annotations

import click

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
