"""Helpers for asyncio tasks and futures."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any, Self

import anyio


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception of *future* as retrieved: a callback for a future with no other reader.

    Without it asyncio logs "exception was never retrieved" when the future is collected.
    """
    if not future.cancelled():
        future.exception()


class TaskGroup:
    """AnyIO's task group, for tasks that may be cancelled before their first step.

    AnyIO wraps the coroutine of a task. If all tasks of the event loop are cancelled, the wrapper
    of a new one ends and leaves its coroutine to Python, which warns that it "was never awaited".
    When the group has ended, its tasks have ended, so what has not begun by then never begins and
    is closed.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()
        self._new: list[Coroutine[Any, Any, Any]] = []

    @property
    def cancel_scope(self) -> anyio.CancelScope:
        """The cancel scope of all tasks, and of the block."""
        return self._group.cancel_scope

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Run ``function(*args)`` as a task of the group."""
        coroutine = function(*args)
        self._new = [c for c in self._new if _has_not_begun(c)]
        self._new.append(coroutine)
        self._group.start_soon(lambda: coroutine, name=getattr(function, "__qualname__", None))

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._group.__aexit__(kind, error, trace)
        finally:
            for coroutine in filter(_has_not_begun, self._new):
                coroutine.close()


class BackgroundTasks(TaskGroup):
    """A group whose tasks serve the whole client.

    Each begins with an empty context: context variables of the caller that started it, such as the
    current span, say nothing about what it does for other callers.
    """

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Run ``function(*args)`` as a task of the group."""
        Context().run(super().start_soon, function, *args)


def _has_not_begun(coroutine: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
