"""Metrics of a long-running command: the options that serve them, and the HTTP server for them."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from .health import check_one_address

if TYPE_CHECKING:
    import asyncio

    from aiorsmq_ng import RSMQ
    from aiorsmq_ng.broker import Tokens
    from aiorsmq_ng.queue_metrics import QueueMetrics

F = TypeVar("F", bound=Callable[..., Any])
#: Returns status, content type and body for the headers ``accept`` and ``authorization``.
Page = Callable[[str, str], tuple[int, str, bytes]]

logger = logging.getLogger("aiorsmq_ng.telemetry")

#: Environment variable with the address of the metrics.
VARIABLE = "RSMQ_METRICS_LISTEN"
#: Seconds for a request to arrive, and for a page to be made.
_ARRIVAL_S, _PAGE_S = 5.0, 20.0
_TEXT = "text/plain; charset=utf-8"


def metrics_options(function: F) -> F:
    """Add the options that serve the metrics of the process."""
    for option in (
        click.option(
            "--metrics-listen",
            envvar=VARIABLE,
            metavar="HOST:PORT",
            help=f"Serve /metrics for Prometheus on this address; also by {VARIABLE}.",
        ),
        click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            metavar="PORT",
            help="Serve /metrics for Prometheus on this port of all addresses.",
        ),
    ):
        function = option(function)
    return function


def metrics_address(given: dict[str, Any]) -> tuple[str, int] | None:
    """Return where the metrics of the process are served; ``None`` if they are not.

    Clients that are made after this call report to Prometheus.
    """
    check_one_address("metrics")
    if given["metrics_port"] is not None:
        address = ("", given["metrics_port"])
    elif given["metrics_listen"] is not None:
        address = address_of("--metrics-listen", given["metrics_listen"])
    else:
        return None
    from aiorsmq_ng.telemetry.environment import VARIABLE as OUTLETS
    from aiorsmq_ng.telemetry.environment import outlet_class

    outlet_class("prometheus")
    names = [name for name in os.environ.get(OUTLETS, "").split(",") if name]
    if "prometheus" not in names:
        os.environ[OUTLETS] = ",".join([*names, "prometheus"])
    return address


@contextmanager
def measured(address: tuple[str, int] | None, rsmq: RSMQ | None = None) -> Iterator[None]:
    """Serve the metrics of this process meanwhile, if *address* says where.

    With *rsmq*, an open client of the running event loop, also those of its queues.
    """
    if address is None:
        yield
        return
    from prometheus_client import REGISTRY
    from prometheus_client.exposition import choose_encoder

    def own_page(accept: str, authorization: str) -> tuple[int, str, bytes]:
        del authorization
        encode, content_type = choose_encoder(accept)
        return 200, content_type, encode(REGISTRY)

    page: Page = own_page

    if rsmq is not None:
        import asyncio

        from aiorsmq_ng.queue_metrics import QueueMetrics

        metrics = QueueMetrics(rsmq, beside=REGISTRY)
        page = queue_page(metrics, None, asyncio.get_running_loop())
    with serving(address, page) as place:
        logger.info("metrics are on %s", place)
        yield


class _Handler(BaseHTTPRequestHandler):
    """Answers scrapers."""

    timeout = _ARRIVAL_S

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path.partition("?")[0] != "/metrics":
            self._reply(404, _TEXT, b"metrics are on /metrics\n")
            return
        headers = self.headers
        try:
            page = cast("_Server", self.server).page
            found = page(headers.get("accept", ""), headers.get("authorization", ""))
        except Exception:
            logger.exception("the page of metrics could not be made")
            found = (500, _TEXT, b"the page of metrics could not be made\n")
        self._reply(*found)

    def _reply(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        if status == 401:
            self.send_header("www-authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Name no versions."""
        return "rsmqctl"

    def log_message(self, format: str, *_: object) -> None:
        """Log no requests."""


class _Server(ThreadingHTTPServer):
    """Serves each scraper in a thread."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], page: Page) -> None:
        self.page = page
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Report nothing: a scraper has gone."""


@contextmanager
def serving(address: tuple[str, int], page: Page) -> Iterator[str]:
    """Serve ``/metrics`` in threads; yields the URL."""
    host, port = address
    try:
        server = _Server(address, page)
    except (OSError, OverflowError) as error:
        raise not_listening(host, port, error) from None
    thread = threading.Thread(target=server.serve_forever, name="rsmqctl metrics", daemon=True)
    thread.start()
    shown = f"[{host}]" if ":" in host else host or "*"
    try:
        yield f"http://{shown}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def queue_page(
    metrics: QueueMetrics, tokens: Tokens | None, loop: asyncio.AbstractEventLoop
) -> Page:
    """Return the page of queues, for callers in other threads than that of *loop*."""
    import asyncio

    from aiorsmq_ng.broker.tokens import Refused

    def page(accept: str, authorization: str) -> tuple[int, str, bytes]:
        sees: Callable[[str], bool] = lambda _: True  # noqa: E731
        if tokens is not None:
            try:
                sees = tokens.caller([("authorization", authorization)]).sees_queue
            except Refused:
                return 401, _TEXT, b"send 'authorization: Bearer <token>'\n"
        made = asyncio.run_coroutine_threadsafe(metrics.page(accept, sees), loop)
        body, content_type = made.result(_PAGE_S)
        return 200, content_type, body

    return page


def address_of(option: str, text: str) -> tuple[str, int]:
    """Return host and port of *text*, the value of *option*."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.UsageError(f"{option} {text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


def not_listening(host: str, port: int, error: Exception) -> click.ClickException:
    """Return the error of an address on which the system does not allow to listen."""
    number = getattr(error, "errno", None)
    known = isinstance(number, int) and not isinstance(error, socket.gaierror)
    # Python's own text repeats the address.
    reason = os.strerror(number) if known and number else str(error)
    shown = f"[{host}]" if ":" in host else host
    return click.ClickException(f"cannot listen on {shown}:{port}: {reason.lower()}")


def is_loopback(host: str) -> bool:
    """Return True if *host* is this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
