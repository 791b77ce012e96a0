"""Ending in order, however often the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import anyio


async def run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Run *work*, which ends by itself, to its end; a cancellation is raised afterwards.

    However often it comes: ``Task.cancel`` goes through every scope, and AnyIO would cancel again
    in every tick, if a scope did not keep that away.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


async def wait_until_done(
    tasks: Iterable[asyncio.Task[Any]], within_s: float, hurry: asyncio.Event
) -> None:
    """Wait until all *tasks* have ended, or *hurry* is set, for *within_s* at most."""
    waits = [asyncio.ensure_future(asyncio.wait(tasks)), asyncio.ensure_future(hurry.wait())]
    try:
        await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, or *error* itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
