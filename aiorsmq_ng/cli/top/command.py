"""``rsmqctl top``: the command, its loop and its output without a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

import aiorsmq_ng

from ..global_options import DEFAULT_URL, Settings, current_settings, examples, global_options
from ..output import Rows, emit, without_secrets, write
from ..session import run
from ..shared_options import positive

if TYPE_CHECKING:
    from ...sampling import Sampler
    from .screen import View

COLUMNS = (
    "queue", "ready", "leased", "delayed", "oldest_age", "in_s", "out_s", "retries_s", "dead",
    "consumers",
)  # fmt: skip


@click.command(
    epilog=examples(
        "$ rsmqctl top",
        "$ rsmqctl top --once -o table",
        "$ rsmqctl top --interval 10 -o ndjson >>queues.ndjson",
    )
)
@click.option("--once", is_flag=True, help="Print one table of records and exit.")
@click.option(
    "-i",
    "--interval",
    type=positive,
    default=1.0,
    show_default=True,
    help="Seconds between two samples; rates are averages over this time.",
)
@click.option(
    "--sort",
    type=click.Choice([column for column in COLUMNS if column != "consumers"]),
    default="queue",
    show_default=True,
    help="Order of the queues: by name, or by a number, highest first.",
)
@global_options()
def top(once: bool, interval: float, sort: str) -> None:
    """Watch all queues, live.

    ready, leased and delayed count messages; oldest_age is how long the first one has been ready,
    in seconds; in_s, out_s and retries_s are messages per second that were sent, that left the
    queue, and that came back after a delivery; dead counts <queue>-dead.

    On a terminal: keys n r l d o i u t x sort by the columns, the same key again reverses the
    order, q quits. Elsewhere, or with --once or -o, records are printed; --once takes one interval,
    because a rate needs two samples.
    """
    settings = current_settings()
    live = sys.stdout.isatty() and not once and settings.output is None

    async def work(rsmq: aiorsmq_ng.RSMQ) -> None:
        from ...sampling import Sampler
        from .screen import View

        place = f"{without_secrets(settings.redis_url or DEFAULT_URL)} ns={rsmq.ns}"
        view = View(place, sort, backwards=sort != "queue")
        sampler = Sampler()
        await sampler.look(rsmq)
        if live:
            await _watch(rsmq, sampler, view, interval)
        else:
            await _print(rsmq, sampler, view, interval, once, settings)

    run(work)


async def _print(
    rsmq: aiorsmq_ng.RSMQ,
    sampler: Sampler,
    view: View,
    interval_s: float,
    once: bool,
    settings: Settings,
) -> None:
    import asyncio

    shown, header = Rows(COLUMNS), True
    while True:
        await asyncio.sleep(interval_s)
        await sampler.look(rsmq)
        rows = view.ordered(sampler.rows())
        match settings.output:
            case "table":
                write("".join(shown.table(rows)))
            case "csv":
                write("".join(shown.csv(rows, header=header)))
            case "ndjson":
                for row in rows:
                    emit(row if once else {"at": round(time.time(), 3), **row})
            case _:
                emit(rows)
        header = False
        if once:
            return
        sys.stdout.flush()


async def _watch(rsmq: aiorsmq_ng.RSMQ, sampler: Sampler, view: View, interval_s: float) -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from .keyboard import Keyboard
    from .screen import picture

    console = Console()
    unicode = (console.encoding or "").lower().startswith("utf")
    loop = asyncio.get_running_loop()
    due = loop.time() + interval_s
    # A sample may take seconds while the server is unreachable; keys are handled meanwhile.
    looking: asyncio.Task[None] | None = None
    try:
        async with Keyboard() as keyboard:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    clock = time.strftime("%H:%M:%S")
                    shown = picture(view, sampler.traces, clock, console.size, unicode)
                    live.update(shown, refresh=True)
                    for key in await keyboard.until(due):
                        if not view.press(key):
                            return
                    if looking is not None and looking.done():
                        looking.result()
                        looking = None
                    if loop.time() >= due:
                        due = loop.time() + interval_s
                        if looking is None:
                            looking = asyncio.create_task(_look(rsmq, sampler, view))
                            looking.add_done_callback(lambda _: keyboard.wake())
    finally:
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])


async def _look(rsmq: aiorsmq_ng.RSMQ, sampler: Sampler, view: View) -> None:
    """Take a sample; during an outage show the error and try again later."""
    try:
        await sampler.look(rsmq)
        view.trouble = ""
    except (aiorsmq_ng.Unavailable, aiorsmq_ng.AccessDenied) as error:
        view.trouble = f"trying again: {error}"
