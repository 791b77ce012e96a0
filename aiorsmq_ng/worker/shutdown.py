"""Orderly shutdown, even if the caller is cancelled repeatedly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import anyio


async def run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Run *work*, which ends by itself, to its end; a cancellation is raised afterwards.

    This holds for repeated cancellations, too: ``Task.cancel`` passes through every scope, and
    AnyIO cancels again in every tick unless a scope shields from that.
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
    tasks: Iterable[asyncio.Task[Any]], within_s: float, grace_over: asyncio.Event
) -> None:
    """Wait until all *tasks* have ended, or *grace_over* is set; at most *within_s* seconds."""
    waits = [asyncio.ensure_future(asyncio.wait(tasks)), asyncio.ensure_future(grace_over.wait())]
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
