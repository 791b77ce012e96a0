"""Helpers for asyncio tasks and futures."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from anyio.abc import TaskGroup


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception of *future* as retrieved: a callback for a future with no other reader.

    Without it asyncio logs "exception was never retrieved" when the future is collected.
    """
    if not future.cancelled():
        future.exception()


def start_soon(
    tasks: TaskGroup, function: Callable[..., Coroutine[Any, Any, Any]], *args: object
) -> None:
    """Start a task in *tasks* that may be cancelled before its first step.

    AnyIO wraps the coroutine, and would leave it to Python, which warns that it "was never
    awaited".
    """
    coroutine = function(*args)
    tasks.start_soon(lambda: coroutine, name=getattr(function, "__qualname__", None))
    # The event loop calls this right after the first step, or after the cancellation in its place.
    asyncio.get_running_loop().call_soon(_close_if_not_started, coroutine)


def _close_if_not_started(coroutine: Coroutine[Any, Any, Any]) -> None:
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
