"""``rsmqctl ping``: measures connect and round-trip time."""

from __future__ import annotations

import time

import click

from .global_options import DEFAULT_URL, current_settings, examples, global_options
from .output import show_record, without_secrets
from .session import finish


@click.command(
    epilog=examples(
        "$ rsmqctl ping", '{"url": "redis://localhost:6379", "connect_ms": 2.1, "ping_ms": 0.2}'
    )
)
@global_options()
def ping() -> None:
    """Ping the server and print the connect and round-trip times."""
    settings = current_settings()

    async def measure() -> tuple[float, float]:
        client = settings.client()  # imports the driver before the time is taken
        started = time.perf_counter()
        async with client as rsmq:
            connected = time.perf_counter()
            await rsmq.open()
            return connected - started, time.perf_counter() - connected

    connect_s, ping_s = finish(measure)
    show_record(
        {
            "url": without_secrets(settings.redis_url or DEFAULT_URL),
            "connect_ms": round(connect_s * 1000, 3),
            "ping_ms": round(ping_s * 1000, 3),
        }
    )
