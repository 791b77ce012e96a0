"""Runs the work of a command with a client that is opened for it and closed after it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TypeVar

import click

import aiorsmq_ng

from .global_options import PATIENT_S, current_settings

R = TypeVar("R")

#: Log format of long-running commands.
DAEMON_LOG = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Seconds without a reply after which a long command reports that it is waiting.
SILENCE_S = 3.0


def run(work: Callable[[aiorsmq_ng.RSMQ], Awaitable[R]], *, patient: bool = False) -> R:
    """Open a client, run *work* with it, and close it; *patient* is for long work."""

    async def session() -> R:
        async with current_settings().client(patient=patient) as rsmq:
            return await work(rsmq)

    return finish(session, patient=patient)


def finish(session: Callable[[], Awaitable[R]], *, patient: bool = False, fast: bool = False) -> R:
    """Run a coroutine to its end; ``InvalidValue`` becomes a usage error.

    With *patient*, the log reports an unreachable server and the command retries; otherwise it
    fails soon. With *fast*, it runs on uvloop if that is installed.
    """
    import anyio

    start_log("rsmqctl: %(message)s", logging.WARNING)
    outages = logging.getLogger("aiorsmq_ng.server")
    before = outages.level
    outages.setLevel(before if patient or current_settings().verbose else logging.ERROR)
    try:
        uvloop = fast and find_spec("uvloop") is not None
        return anyio.run(session, backend_options={"use_uvloop": uvloop})
    except aiorsmq_ng.InvalidValue as error:
        if isinstance(error.__cause__, OSError):  # as of a port in use: nothing is wrong in itself
            raise click.ClickException(str(error)) from error
        raise click.UsageError(str(error), click.get_current_context()) from error
    finally:
        outages.setLevel(before)


async def patiently(rsmq: aiorsmq_ng.RSMQ, work: Awaitable[R]) -> R:
    """Await a call of long work; report on stderr if the server does not answer.

    The log reports failed attempts. A server that does not answer causes none for a long time.
    """
    import asyncio

    from .output import complain

    def tell() -> None:
        if not rsmq.server_status.away:
            complain(
                f"the server has not answered for {SILENCE_S:g} s; waiting for it up to "
                f"{PATIENT_S:g} s; press Ctrl-C to stop"
            )

    timer = asyncio.get_running_loop().call_later(SILENCE_S, tell)
    try:
        return await work
    finally:
        timer.cancel()


def start_log(text: str, level: int, *, form: str = "text") -> None:
    """Log to stderr from *level* on, in the *form* text or json; with -v everything."""
    from .log_format import JsonFormatter
    from .output import HarmlessFormatter

    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else HarmlessFormatter(text))
    handler.setLevel(logging.DEBUG if current_settings().verbose else level)
    logging.basicConfig(level=handler.level, handlers=[handler])
