"""``rsmqctl serve dashboard`` and ``rsmqctl dashboard``: queues on web pages."""

from __future__ import annotations

import logging
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .broker import check_pair, reached, read_tokens, stop_signals
from .global_options import current_settings, examples, global_options, wait_for_server
from .health import health_options, probed_service
from .log_format import log_format_option
from .metrics_options import address_of, is_loopback, not_listening
from .session import DAEMON_LOG, finish, start_log

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    import uvicorn

    from aiorsmq_ng.broker.tokens import Tokens
    from aiorsmq_ng.probes import ProgramState

logger = logging.getLogger("aiorsmq_ng.dashboard")

_HOST, _PORT = "127.0.0.1", 8710
#: Seconds that a stop waits for replies; streams are ended at once.
_GRACE_S = 5

environment_option = click.option(
    "--environment", metavar="WORD", default="", help="Show this on every page, as 'production'."
)
read_only_option = click.option(
    "--read-only", is_flag=True, help="Leave out everything that writes."
)


@click.command(
    "dashboard",
    epilog=examples(
        "$ rsmqctl serve dashboard",
        "$ rsmqctl serve dashboard --listen 0.0.0.0:8710 --tokens tokens.toml \\",
        "      --cert server.pem --key server.key",
        "$ rsmqctl serve dashboard --read-only --environment production",
    ),
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"{_HOST}:{_PORT}",
    show_default=True,
    help="Address to listen on.",
)
@click.option("--tokens", metavar="FILE", help="Tokens and their rights (TOML), for logins.")
@read_only_option
@environment_option
@click.option("--host", multiple=True, metavar="NAME", help="Name it is reached by; repeatable.")
@click.option("--cert", metavar="FILE", help="The server's certificate (PEM), for TLS.")
@click.option("--key", metavar="FILE", help="The certificate's key (PEM).")
@click.option("--insecure", is_flag=True, help="Allow other hosts without TLS.")
@health_options
@log_format_option
@wait_for_server
@global_options()
def serve_dashboard(**given: Any) -> None:
    """Serve the dashboard: queues and their messages on web pages.

    Only this machine can connect unless --listen says otherwise; that needs tokens, with which
    people log in, and a certificate. The token file is that of rsmqctl serve grpc; a single token
    with all rights can be given in RSMQ_BROKER_TOKEN instead. The JSON API is under /api/v1, its
    description is /api/v1/openapi.json.

    On SIGTERM or Ctrl-C it ends all streams and exits with 0.
    """
    start_log(DAEMON_LOG, logging.INFO, form=given["log_format"])
    host, port = address_of("--listen", given["listen"])
    tokens = read_tokens(given["tokens"])
    if not is_loopback(host):
        if tokens is None:
            raise click.UsageError(f"--listen {given['listen']} needs --tokens")
        if given["cert"] is None and not given["insecure"]:
            raise click.UsageError(f"--listen {given['listen']} needs --cert, or --insecure")
    if (given["cert"] is None) != (given["key"] is None):
        raise click.UsageError("--cert and --key belong together")
    check_pair(given["cert"], given["key"], None)
    _serve((host, port), tokens, given)


@click.command(epilog=examples("$ rsmqctl dashboard", "$ rsmqctl dashboard --read-only"))
@read_only_option
@environment_option
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port.  [default: any]")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@global_options()
def dashboard(read_only: bool, environment: str, port: int, no_browser: bool) -> None:
    """Open the dashboard in a browser, until Ctrl-C.

    It listens on this machine only. The address has a token, so other users of the machine cannot
    use it.
    """
    import secrets

    from aiorsmq_ng.broker.tokens import Tokens

    start_log("rsmqctl: %(message)s", logging.WARNING)
    token = secrets.token_urlsafe(24)
    given = {
        "read_only": read_only,
        "environment": environment,
        "host": (),
        "cert": None,
        "key": None,
        "wait_for_server": 5.0,
        "health_port": None,
        "health_listen": None,
        "health_blocked": 10.0,
    }
    _serve((_HOST, port), Tokens.single(token), given, (token, not no_browser))


def _serve(
    address: tuple[str, int],
    tokens: Tokens | None,
    given: dict[str, Any],
    invitation: tuple[str, bool] | None = None,
) -> None:
    """Serve until a signal; an *invitation* is a token, and True to open the browser."""
    try:
        import uvicorn

        from aiorsmq_ng.dashboard import app as dashboards
    except ImportError as error:
        hint = 'the dashboard needs its extra: pip install "aiorsmq-ng[dashboard]"'
        raise click.ClickException(hint) from error

    class Server(uvicorn.Server):
        """A server that leaves signals to the command."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    async def session() -> None:
        rsmq, signals = current_settings().client(), stop_signals()
        listening = _listen(*address)
        states: list[ProgramState] = ["starting"]
        try:
            async with probed_service(rsmq, lambda: states[-1], given):
                if not await reached(rsmq, given["wait_for_server"], signals):
                    return
                app = dashboards.dashboard(
                    rsmq,
                    tokens=tokens,
                    read_only=given["read_only"],
                    allowed_hosts=given["host"],
                    environment=given["environment"],
                )
                server = Server(_config(app, given))
                logging.getLogger("uvicorn").setLevel(logging.WARNING)
                _announce(listening, given, rsmq.ns, invitation)

                def end_streams() -> None:
                    states.append("stopping")
                    dashboards.close(app)

                states.append("running")
                await _until_stopped(server, listening, signals, end_streams)
        finally:
            listening.close()
            await rsmq.aclose()

    finish(session, patient=True, fast=True)


def _config(app: Any, given: dict[str, Any]) -> uvicorn.Config:
    import uvicorn

    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=given["cert"],
        ssl_keyfile=given["key"],
        timeout_graceful_shutdown=_GRACE_S,
    )


async def _until_stopped(
    server: Any, listening: socket.socket, signals: asyncio.Queue[str], end_streams: Any
) -> None:
    import asyncio

    serving = asyncio.create_task(server.serve(sockets=[listening]))
    stopped = asyncio.create_task(signals.get())
    await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        logger.info("stopping because of %s", stopped.result())
    end_streams()
    server.should_exit = True
    stopped.cancel()
    await serving


def _announce(
    listening: socket.socket, given: dict[str, Any], ns: str, invitation: tuple[str, bool] | None
) -> None:
    host, port = listening.getsockname()[:2]
    scheme = "https" if given["cert"] else "http"
    place = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
    logger.info("serving namespace %r on %s", ns, place)
    if invitation is not None:
        token, opens = invitation
        place = f"{place}login#token={token}"
        click.echo(place)
        if opens:
            import webbrowser

            webbrowser.open(place)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise not_listening(host, port, error) from None
