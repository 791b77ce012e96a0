"""``rsmqctl demo``: a short tour of a message queue."""

from __future__ import annotations

import click

from .global_options import current_settings, examples, global_options
from .session import finish


@click.command(
    epilog=examples("$ rsmqctl demo", "$ NO_COLOR=1 rsmqctl -r redis://localhost:6379 demo")
)
@global_options()
def demo() -> None:
    """See what a message queue does, in about four seconds.

    Without a URL it starts a server of its own (embedded://, needs no Redis). It works in the
    namespace "demo", on a queue that it creates and deletes.
    """
    from .demo_stage import play

    settings = current_settings()
    finish(lambda: play(settings))
