"""``rsmqctl serve metrics``: metrics of queues for Prometheus."""

from __future__ import annotations

import logging
from typing import Any

import click

from .broker import reached, read_tokens, stop_signals
from .global_options import current_settings, examples, global_options, wait_for_server
from .metrics_options import address_of, is_loopback, queue_page, serving
from .session import DAEMON_LOG, finish, start_log

logger = logging.getLogger("aiorsmq_ng.telemetry")

_PORT = 9464


@click.command(
    "metrics",
    epilog=examples(
        "$ rsmqctl serve metrics",
        "$ rsmqctl serve metrics --name 'orders-*' --interval 30",
        "$ rsmqctl serve metrics --listen 0.0.0.0:9464 --tokens tokens.toml",
    ),
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"127.0.0.1:{_PORT}",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--name", "names", multiple=True, metavar="NAME",
    help="Queue, or pattern as 'orders-*'; repeatable.  [default: all]",
)  # fmt: skip
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long what was read is used again; longer for more than 1250 queues.",
)
@click.option("--tokens", metavar="FILE", help="Tokens and their rights (TOML), for scrapers.")
@click.option("--insecure", is_flag=True, help="Allow other hosts without tokens.")
@wait_for_server
@global_options()
def serve_metrics(**given: Any) -> None:
    """Serve metrics of queues for Prometheus, on /metrics.

    Run one for each namespace: several would count the same queues several times. Reading a queue
    changes nothing and costs one call, shared by all scrapers of an interval. While the server is
    away, rsmq_up is 0 and there are no metrics of queues.

    Only this machine can connect unless --listen says otherwise; that needs tokens, which scrapers
    send as 'authorization: Bearer ...', or --insecure. The token file is that of rsmqctl serve
    grpc: a token sees the queues that it may use.
    """
    start_log(DAEMON_LOG, logging.INFO)
    address = address_of("--listen", given["listen"])
    tokens = read_tokens(given["tokens"])
    if not is_loopback(address[0]) and tokens is None and not given["insecure"]:
        raise click.UsageError(f"--listen {given['listen']} needs --tokens, or --insecure")
    import asyncio

    from aiorsmq_ng.queue_metrics import QueueMetrics

    async def session() -> None:
        rsmq, signals = current_settings().client(), stop_signals()
        metrics = QueueMetrics(rsmq, given["names"] or ("*",), interval=given["interval"])
        page = queue_page(metrics, tokens, asyncio.get_running_loop())
        try:
            if not await reached(rsmq, given["wait_for_server"], signals):
                return
            with serving(address, page) as place:
                logger.info("metrics of namespace %r are on %s", rsmq.ns, place)
                logger.info("stopping because of %s", await signals.get())
        finally:
            await rsmq.aclose()

    finish(session, patient=True, fast=True)
