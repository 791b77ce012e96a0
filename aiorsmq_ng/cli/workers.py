"""``rsmqctl worker``: run the workers of a program."""

from __future__ import annotations

import importlib
import logging
import os
import sys

import click

import aiorsmq_ng

from .session import current_settings, examples, global_options


@click.group(epilog=examples("$ rsmqctl worker run shop.jobs:worker"))
@global_options()
def worker() -> None:
    """Run workers."""


@worker.command(
    epilog=examples(
        "$ rsmqctl worker run shop.jobs:worker",
        "$ RSMQ_URL=redis://db.example rsmqctl worker run jobs:worker",
    )
)
@click.argument("target", metavar="MODULE:NAME")
@global_options()
def run(target: str) -> None:
    """Run the Worker called NAME in the Python module MODULE.

    SIGTERM or Ctrl-C: takes no more messages, lets handlers end within the worker's grace period,
    gives the rest back and exits with 0. A second one does not wait for handlers. -r and RSMQ_URL
    count for a Worker that was made without a URL.
    """
    import anyio

    settings = current_settings()
    logging.basicConfig(
        level=logging.DEBUG if settings.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    os.environ["RSMQ_URL"] = settings.full_url()
    found = load(target)
    logging.getLogger("aiorsmq_ng.worker").info("running %r", found)
    anyio.run(_run, found)


async def _run(worker: aiorsmq_ng.Worker) -> None:
    failed = True
    try:
        await worker.run()
        failed = False
    finally:
        if worker.health.stuck:
            # A handler that ignores its cancellation would keep the event loop, and us, for ever.
            sys.stderr.flush()
            os._exit(int(failed))


def load(target: str) -> aiorsmq_ng.Worker:
    """Return the worker that *target* (``module:name``) names."""
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise click.UsageError(f"{target!r} is not of the form MODULE:NAME")
    # As with python -m, modules of the folder one works in can be named.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise click.UsageError(f"there is no module {error.name!r}") from None
    worker = getattr(found, name, None)
    if not isinstance(worker, aiorsmq_ng.Worker):
        raise click.UsageError(f"module {module!r} has no Worker called {name!r}")
    return worker
