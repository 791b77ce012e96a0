"""Probes of long-running commands: the options that serve them, and ``rsmqctl worker health``."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from .global_options import examples, global_options

if TYPE_CHECKING:
    from aiorsmq_ng import RSMQ
    from aiorsmq_ng.probes import Probes, ProgramState

F = TypeVar("F", bound=Callable[..., Any])

#: Environment variable with the address of the probes, for the program and for its check.
VARIABLE = "RSMQ_HEALTH_LISTEN"
_LONGEST = 65_536
#: Addresses that mean every address of this machine, and what to connect to instead.
_EVERY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104


def health_options(function: F) -> F:
    """Add the options that serve probes."""
    for option in (
        click.option(
            "--health-blocked",
            type=click.FloatRange(min=0, min_open=True),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="Seconds for which the event loop may be blocked before /livez fails.",
        ),
        click.option(
            "--health-listen",
            envvar=VARIABLE,
            metavar="ADDRESS",
            help=f"Serve the probes on HOST:PORT, unix:/path or a port; also by {VARIABLE}.",
        ),
        click.option(
            "--health-port",
            type=click.IntRange(0, 65535),
            metavar="PORT",
            help="Serve the probes /livez, /readyz and /startupz on this port of all addresses.",
        ),
    ):
        function = option(function)
    return function


def check_one_address(what: str) -> None:
    """Refuse ``--WHAT-port`` and ``--WHAT-listen`` together; an option replaces the variable."""
    context = click.get_current_context()
    options = [f"{what}_port", f"{what}_listen"]
    if all(context.get_parameter_source(o) is ParameterSource.COMMANDLINE for o in options):
        raise click.UsageError(f"give --{what}-port or --{what}-listen, not both")


@asynccontextmanager
async def probed(
    probes: Callable[[], Probes], port: int | None, listen: str | None
) -> AsyncIterator[None]:
    """Serve the probes meanwhile, if an option says where."""
    if port is None and listen is None:
        yield
        return
    import logging

    from aiorsmq_ng import InvalidValue
    from aiorsmq_ng.probes import ProbeServer

    check_one_address("health")
    serving = ProbeServer(probes(), port if port is not None else str(listen))
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(serving)
        except InvalidValue as error:
            named = "--health-port" if port is not None else f"--health-listen or {VARIABLE}"
            raise InvalidValue(f"{named}: {error}") from error.__cause__
        logging.getLogger("aiorsmq_ng.probes").info("probes are on %s", serving.address)
        yield


def probed_service(
    rsmq: RSMQ, state: Callable[[], ProgramState], given: dict[str, Any]
) -> AbstractAsyncContextManager[None]:
    """Serve the probes of a service with a client meanwhile, if an option says where."""

    def probes() -> Probes:
        from aiorsmq_ng.probes import Probes

        return Probes(rsmq, state, blocked_limit=given["health_blocked"])

    return probed(probes, given["health_port"], given["health_listen"])


@click.command(
    epilog=examples(
        "$ rsmqctl worker health 8080",
        "$ rsmqctl worker health unix:/run/worker.sock --probe livez",
        "",
        "Exit status: 0 the probe is fine, 1 it fails or is not answered.",
    )
)
@click.argument("address", required=False, metavar="[ADDRESS]", envvar=VARIABLE)
@click.option(
    "--probe",
    type=click.Choice(["livez", "readyz", "startupz"]),
    default="readyz",
    show_default=True,
    help="The probe to ask.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer.",
)
@global_options()
def health(address: str | None, probe: str, timeout: float) -> None:
    """Ask a running worker for its health, for images without curl.

    ADDRESS is that of --health-port or --health-listen: a port, HOST:PORT or unix:/path; by default
    RSMQ_HEALTH_LISTEN. It works for serve grpc and serve dashboard, too.
    """
    if not address:
        raise click.UsageError(f"give the address of the probes, or set {VARIABLE}")
    try:
        status, answer = ask(address, probe, timeout)
    except TimeoutError:
        raise click.ClickException(
            f"{probe} at {address} has not answered within {timeout:g} s"
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.ClickException(f"{probe} at {address} cannot be asked: {reason}") from None
    reasons = answer.get("reasons", [])
    if status != 200:
        why = "; ".join(map(str, reasons)) or f"status {status}"
        raise click.ClickException(f"{probe} fails: {why}")
    click.echo(f"{probe} is fine: {answer.get('state', '')}")


def ask(address: str, probe: str, timeout: float) -> tuple[int, dict[str, Any]]:
    """Return status and answer of a probe; ``OSError`` if there is none."""
    import time

    until = time.monotonic() + timeout
    with _connected(address, timeout) as connection:
        connection.sendall(f"GET /{probe} HTTP/1.0\r\nhost: localhost\r\n\r\n".encode())
        reply = b""
        while len(reply) < _LONGEST:
            connection.settimeout(max(0.001, until - time.monotonic()))
            if not (chunk := connection.recv(4096)):
                break
            reply += chunk
    head, _, body = reply.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    try:
        status, answer = int(words[1]), json.loads(body)
    except (IndexError, ValueError):
        raise OSError("the answer is not that of a probe") from None
    if not isinstance(answer, dict):
        raise OSError("the answer is not that of a probe")
    return status, answer


def _connected(address: str, timeout: float) -> socket.socket:
    if address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(address.removeprefix("unix:"))
        except BaseException:
            connection.close()
            raise
        return connection
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.UsageError(f"address {address!r} is not a port, HOST:PORT or unix:/path")
    host = _EVERY.get(host, host) or "127.0.0.1"
    return socket.create_connection((host.strip("[]"), int(port)), timeout)
