"""``rsmqctl serve``: runs a broker for programs that have no Redis client."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import aiorsmq_ng

from .global_options import (
    DEFAULT_NAMESPACE,
    Settings,
    current_settings,
    examples,
    global_options,
    wait_for_server,
)
from .health import health_options, probed_service
from .lazy_group import LazyGroup
from .log_format import log_format_option
from .metrics_options import measured, metrics_address, metrics_options
from .session import DAEMON_LOG, finish, start_log

if TYPE_CHECKING:
    import asyncio

    from aiorsmq_ng.broker import BrokerOptions, Tokens
    from aiorsmq_ng.broker.extra_service import Service

logger = logging.getLogger("aiorsmq_ng.broker")

#: Limits that have an option ``--max-...``.
_LIMITS = (
    "message_bytes", "batch", "calls", "streams", "connection_streams", "receiving_bytes",
    "reply_bytes", "unread_bytes", "wait", "subscriptions",
)  # fmt: skip
#: Environment variable with a single admin token, instead of a file.
TOKEN_VARIABLE, RECEIPT_VARIABLE = "RSMQ_BROKER_TOKEN", "RSMQ_RECEIPT_KEY"


@click.group(
    cls=LazyGroup,
    table={
        "grpc": "broker:grpc",
        "dashboard": "dashboard:serve_dashboard",
        "metrics": "metrics:serve_metrics",
    },
    epilog=examples("$ rsmqctl serve grpc", "$ rsmqctl serve dashboard", "$ rsmqctl serve metrics"),
)
@global_options()
def serve() -> None:
    """Serve queues and topics to other programs, and to people."""


@click.command(
    epilog=examples(
        "$ rsmqctl serve grpc",
        "$ rsmqctl serve grpc --listen 0.0.0.0:10001 --tokens tokens.toml \\",
        "      --cert server.pem --key server.key",
        "",
        "A token file:",
        "",
        "  [shop]",
        '  sha256 = "9f86d081884c7d65..."      # or token = "..."',
        '  roles = ["producer", "consumer"]    # or "admin"',
        '  queues = ["orders-*"]               # names or patterns',
        '  topics = ["news"]',
        '  consumers = ["shop-*"]              # consumers that it may subscribe as',
        "",
        "Without any of the three lists: everything. With one of them, a missing",
        "one means none.",
    )
)
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT",
    help="Address to listen on, also unix:/path; repeatable.  [default: 127.0.0.1:10001]",
)
@click.option(
    "--tokens",
    metavar="FILE",
    help="Tokens of the clients and their rights (TOML).",
)
@click.option("--cert", metavar="FILE", help="The server's certificate (PEM), for TLS.")
@click.option("--key", metavar="FILE", help="The certificate's key (PEM).")
@click.option("--client-ca", metavar="FILE", help="Require client certificates of this CA (PEM).")
@click.option("--insecure", is_flag=True, help="Allow remote clients without TLS and tokens.")
@click.option(
    "--receipt-key",
    metavar="FILE",
    help="Key that signs receipts. They outlive this process, and brokers with the same key accept "
    "each other's.",
)
@click.option("--reflection", is_flag=True, help="Enable gRPC server reflection.")
@click.option(
    "--gomq",
    type=click.Choice(["copy", "share", "off"]),
    default="copy",
    show_default=True,
    help="Mode of GOMQ clients: every peer of a consumer gets its own copy, or they share one.",
)
@click.option(
    "--keda",
    is_flag=True,
    help="Serve KEDA's external scaler, too. Its tokens are in the metadata of triggers.",
)
@click.option("--max-message-bytes", type=click.IntRange(min=1024), help="Largest request.")
@click.option("--max-batch", type=click.IntRange(min=1), help="Maximum messages in a request.")
@click.option("--max-calls", type=click.IntRange(min=1), help="Maximum calls in flight.")
@click.option(
    "--max-streams", type=click.IntRange(min=1), help="Maximum open streams and waiting calls."
)
@click.option(
    "--max-connection-streams",
    type=click.IntRange(min=1),
    help="Maximum calls and streams of one connection.",
)
@click.option(
    "--max-receiving-bytes",
    type=click.IntRange(min=1024),
    help="Maximum total bytes of requests that are being received or processed.",
)
@click.option("--max-reply-bytes", type=click.IntRange(min=1024), help="Largest reply.")
@click.option(
    "--max-unread-bytes",
    type=click.IntRange(min=1024),
    help="Maximum total bytes of replies that clients have not read yet.",
)
@click.option(
    "--max-wait", type=click.FloatRange(min=0.1), help="Longest wait of a call, in seconds."
)
@click.option(
    "--max-subscriptions", type=click.IntRange(min=1), help="Maximum subscriptions of a topic."
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds that a stop waits for messages to be settled and calls to end.",
)
@health_options
@log_format_option
@metrics_options
@wait_for_server
@global_options()
def grpc(**given: Any) -> None:
    """Serve queues and topics over gRPC.

    Clients of GOMQ are served on the same port. Only this machine can connect unless --listen says
    otherwise; that needs a certificate and tokens. A single token with all rights can be given in
    RSMQ_BROKER_TOKEN instead of a file, and the key for receipts in RSMQ_RECEIPT_KEY. A token has
    at least 16 characters.

    If the Redis server is unreachable at the start, the broker waits for it. On SIGTERM or Ctrl-C
    it accepts no new calls, waits for calls in flight and for unsettled messages of clients,
    releases what streams still hold and exits with 0. A second signal does not wait.
    """
    settings = current_settings()
    start_log(DAEMON_LOG, logging.INFO, form=given["log_format"])
    # The C library of gRPC would log errors that are reported here already.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from aiorsmq_ng.broker import Broker, Keda
        from aiorsmq_ng.compat.gomq import Gomq
    except ImportError as error:
        raise click.ClickException(str(error)) from None

    async def session() -> None:
        options, tokens = read_options(given), read_tokens(given["tokens"])
        address = metrics_address(given)
        rsmq, signals = _client(settings), stop_signals()
        services: list[Service] = [Keda()] if given["keda"] else []
        if given["gomq"] != "off":
            services.append(Gomq(given["gomq"]))
        broker = Broker(rsmq, options, tokens, services)
        try:
            async with probed_service(rsmq, lambda: broker.state, given):
                if await reached(rsmq, given["wait_for_server"], signals):
                    _raise_open_files()
                    await broker.start()
                    guard = f"{_described(tokens)}, gomq: {given['gomq']}"
                    _announce(broker.addresses, options, guard, rsmq.ns)
                    with measured(address, rsmq):
                        await _until_stopped(broker, signals)
        finally:
            await rsmq.aclose()

    finish(session, patient=True, fast=True)


def read_options(given: dict[str, Any]) -> BrokerOptions:
    """Return the broker's options from the command line."""
    from aiorsmq_ng.broker import BrokerOptions, Limits, Tls

    files = {name: _read(name, given[name]) for name in ("cert", "key", "client_ca")}
    if (files["cert"] is None) != (files["key"] is None):
        raise click.UsageError("--cert and --key belong together")
    tls = None
    check_pair(given["cert"], given["key"], given["client_ca"])
    if files["cert"] is not None and files["key"] is not None:
        tls = Tls(certificate=files["cert"], key=files["key"], client_ca=files["client_ca"])
    elif files["client_ca"] is not None:
        raise click.UsageError("--client-ca needs --cert and --key")
    limits = {name: given[f"max_{name}"] for name in _LIMITS if given[f"max_{name}"] is not None}
    receipt_key = _read("receipt_key", given["receipt_key"])
    if receipt_key is None and os.environ.get(RECEIPT_VARIABLE):
        receipt_key = os.environ[RECEIPT_VARIABLE].encode()
    more: dict[str, Any] = {"listen": given["listen"]} if given["listen"] else {}
    return BrokerOptions(
        tls=tls,
        insecure=given["insecure"],
        limits=Limits(**limits),
        receipt_key=receipt_key,
        reflection=given["reflection"],
        grace=given["grace"],
        **more,
    )


def check_pair(cert: str | None, key: str | None, client_ca: str | None) -> None:
    """Refuse files that are unusable for TLS, and name the file; gRPC does not name it."""
    if cert is None or key is None:
        return
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for option, file in (("--cert", cert), ("--client-ca", client_ca)):
        try:
            if file is not None:
                context.load_verify_locations(file)
        except (ssl.SSLError, OSError):
            raise click.UsageError(f"{option} {file!r} holds no certificate in PEM") from None
    try:
        context.load_cert_chain(cert, key, password="")  # never prompt on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise click.UsageError(f"--key {key!r} is not the key of --cert {cert!r}") from None
        raise click.UsageError(
            f"--key {key!r} holds no key in PEM, or one with a password, which cannot be used here"
        ) from None


def read_tokens(file: str | None) -> Tokens | None:
    """Return the tokens of a file or of the environment; None: clients need no token."""
    from aiorsmq_ng.broker import Tokens

    text = _read("tokens", file)
    if file is not None and text is not None:
        if Path(file).stat().st_mode & 0o077:
            logger.warning("other users can read the token file %s; chmod 600 it", file)
        try:
            return Tokens.read(text.decode())
        except UnicodeDecodeError:
            raise click.UsageError(f"--tokens {file!r} is not text") from None
    token = os.environ.get(TOKEN_VARIABLE)
    return Tokens.single(token) if token else None


def _read(name: str, file: str | None) -> bytes | None:
    if file is None:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        option = "--" + name.replace("_", "-")
        raise click.UsageError(f"{option} {file!r} cannot be read: {error.strerror}") from None


def _raise_open_files() -> None:
    """Raise the limit of open files to the hard limit, for more connections."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _client(settings: Settings) -> aiorsmq_ng.RSMQ:
    return aiorsmq_ng.RSMQ(
        settings.full_url(),
        ns=(settings.namespace or DEFAULT_NAMESPACE).split(","),
        options=aiorsmq_ng.Options(
            insecure_tls=settings.insecure_tls, plain_password=settings.plain_password
        ),
    )


def _described(tokens: Tokens | None) -> str:
    return f"{len(tokens)} token{'s' * (len(tokens) != 1)}" if tokens else "no tokens"


def _announce(addresses: tuple[str, ...], options: BrokerOptions, guard: str, ns: str) -> None:
    logger.info(
        "serving namespace %r over gRPC on %s (%s, %s)",
        *(ns, ", ".join(addresses), "TLS" if options.tls else "no TLS", guard),
    )
    if options.insecure:
        logger.warning("--insecure: any host that can reach this address can use the queues")


def stop_signals() -> asyncio.Queue[str]:
    """Return a queue that receives the name of every SIGTERM or SIGINT."""
    import asyncio

    signals: asyncio.Queue[str] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        name = signal.Signals(number).name
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, name)
    return signals


async def reached(
    rsmq: aiorsmq_ng.RSMQ, within_s: float | None, signals: asyncio.Queue[str]
) -> bool:
    """Wait for the server; return False if a signal came first."""
    import asyncio

    opening = asyncio.create_task(rsmq.open(wait_for_server=within_s))
    stopped = asyncio.create_task(signals.get())
    await asyncio.wait([opening, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        logger.info("stopped by %s while waiting for the server", stopped.result())
        return False
    stopped.cancel()
    await opening
    return True


async def _until_stopped(broker: Any, signals: asyncio.Queue[str]) -> None:
    """Run until a signal arrives; then stop gracefully, or at once on a second signal."""
    import asyncio

    name = await signals.get()
    logger.info("stopping because of %s", name)
    stopping = asyncio.create_task(broker.stop())
    second = asyncio.create_task(signals.get())
    await asyncio.wait([stopping, second], return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        logger.info("stopping at once")
        broker.end_grace()
    await stopping
    second.cancel()
    logger.info("stopped")
