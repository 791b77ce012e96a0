"""``rsmqctl worker``: runs the workers of a program."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any

import click

import aiorsmq_ng

from .global_options import current_settings, examples, global_options, wait_for_server
from .health import health, health_options, probed
from .log_format import log_format_option
from .metrics_options import measured, metrics_address, metrics_options
from .session import DAEMON_LOG, start_log

logger = logging.getLogger("aiorsmq_ng.worker")


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
@click.option(
    "--health-stuck",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds for which a handler may ignore its cancellation before /livez fails.",
)
@health_options
@log_format_option
@metrics_options
@wait_for_server
@global_options()
def run(target: str, wait_for_server: float | None, log_format: str, **probing: Any) -> None:
    """Run the Worker called NAME in the Python module MODULE.

    If the server is unreachable at the start, the worker waits for it, as the program or
    --wait-for-server says. On SIGTERM or Ctrl-C it receives no more messages, lets handlers end
    within the worker's grace period, releases the other messages and exits with 0. A second signal
    does not wait for handlers. -r and RSMQ_URL apply to a Worker that was created without a URL;
    the namespace is the program's. The program gets the URL, also with the password, and the token
    of a broker in its environment (RSMQ_URL, RSMQ_TOKEN), which its child processes inherit.

    The probes answer 200 or 503 with the reason, from a thread of their own, so also while a
    handler blocks the event loop. They need no token: they show no bodies and no errors of
    handlers. Neither do the metrics, which have names of queues and counts; without them nothing
    is counted.
    """
    import anyio

    settings = current_settings()
    start_log(DAEMON_LOG, logging.INFO, form=log_format)
    os.environ["RSMQ_URL"] = settings.full_url()
    if (token := settings.token()) is not None:
        os.environ["RSMQ_TOKEN"] = token
    # The operator's flags apply unless the program sets these itself.
    for variable, given in (
        ("RSMQ_PLAIN_PASSWORD", settings.plain_password),
        ("RSMQ_INSECURE_TLS", settings.insecure_tls),
    ):
        if given:
            os.environ[variable] = "1"
    address = metrics_address(probing)
    found = load(target)
    if settings.namespace not in (None, found.rsmq.ns):
        raise click.UsageError(
            f"{target!r} works in namespace {found.rsmq.ns!r}, also with --ns; change it in "
            f"the program: Worker(RSMQ(ns={settings.namespace!r}))"
        )
    if wait_for_server is not None:
        found.wait_for_server = wait_for_server
    logger.info("starting %r", found)
    with measured(address):
        anyio.run(_run, found, probing)


async def _run(worker: aiorsmq_ng.Worker, probing: dict[str, Any]) -> None:
    from aiorsmq_ng.worker import WorkerProbes

    def probes() -> WorkerProbes:
        return WorkerProbes(
            worker,
            blocked_limit=probing["health_blocked"],
            stuck_limit=probing["health_stuck"],
        )

    failed = True
    try:
        async with probed(probes, probing["health_port"], probing["health_listen"]):
            await worker.run()
        failed = False
    finally:
        if worker.health.stuck:
            # A handler that ignores its cancellation would block the exit for ever.
            sys.stderr.flush()
            os._exit(int(failed))


worker.add_command(health)


def load(target: str) -> aiorsmq_ng.Worker:
    """Return the worker that *target* (``module:name``) names."""
    module, colon, name = target.partition(":")
    if not (module and colon and name) or module.startswith("."):
        raise click.UsageError(f"{target!r} is not of the form MODULE:NAME")
    # As with python -m, modules of the current directory can be imported.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(module, error) from error
        raise click.UsageError(f"there is no module {error.name!r}") from None
    except Exception as error:
        raise _broken(module, error) from error
    worker = getattr(found, name, None)
    if not isinstance(worker, aiorsmq_ng.Worker):
        what = f"module {module!r} has no Worker called {name!r}"
        if hasattr(found, name):
            what += f": that is a {type(worker).__name__}"
        if callable(worker):
            what += f"; add worker = {name}() to the module and give {module}:worker"
        raise click.UsageError(what)
    return worker


def _broken(module: str, error: Exception) -> click.ClickException:
    what = f"{type(error).__name__}: {error}"
    return click.ClickException(
        f"module {module!r} cannot be imported: {what}; run it again with -v to see where"
    )
